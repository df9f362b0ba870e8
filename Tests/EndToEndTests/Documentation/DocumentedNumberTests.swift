import BackgroundJobs
import LedgerStorage
import Postgres
import Reports
import Secrets
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// Numbers in articles that are the code's, or follow from it.
@Suite("Numbers that articles name")
struct DocumentedNumberTests {
  @Test("connections are those of the pools")
  func connections() throws {
    let article = try Article.named("Growing").text
    let pool = ConnectionPool.Configuration(uri: "")
    let reports = ReportReader.configuration(like: pool).connectionLimit
    let listening = 1
    for row in [
      "| \(pool.connectionLimit) | each program | its statements and transactions |",
      "| \(listening) | each program | listening",
      "| \(reports) | `serve` | reports |",
      "| \(ReadReplica.connectionLimit) | `serve` with a replica | reads there |",
    ] {
      #expect(article.contains("\n\(row)"), "\(row)")
    }
    let pair = 2 * (pool.connectionLimit + listening) + reports
    #expect(article.contains("one `serve` and one `work` have \(pair) on the primary"))
    #expect(100 / pair == 5 && article.contains("of 100 is enough for five such pairs"))
  }

  @Test("the time for an import is what the settings allow")
  func importHours() async throws {
    let article = try Article.named("MovingIn").text.replacing("\n", with: " ")
    let settings = try Settings(await SettingSource(environment: [:]))
    let polls = settings.pollsPerHour
    let hours = Int((1_000_000 / Double(polls)).rounded(.up))
    let thousands = "\(polls / 1000),000"
    #expect(polls % 1000 == 0)
    #expect(
      article.contains(
        "\(thousands) original transactions an hour, a million take \(hours) hours"))
    #expect(try Article.named("Settings").text.contains("`TENURE_POLLS_PER_HOUR` | `\(polls)` |"))
    let slots = try #require(Worker.concurrency[.polls])
    #expect(article.contains("One worker polls \(slots) at a time"))
    let workers = Int((Double(polls) / 3600 * 0.5 / Double(slots)).rounded(.up))
    #expect(article.contains("half a second for each, \(workers) workers are needed"))
  }
}
