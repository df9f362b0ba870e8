import Foundation
import Postgres
import PrivatePostgres
import ScratchDatabases
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// The code in the articles of the DocC catalogues: run, and compared with the expected output.
@Suite("The articles")
struct ArticleTests {
  /// Articles whose blocks run on a database with a schema.
  static let runs = [
    ArticleRun(name: "ConnectingAnAppServer"),
    ArticleRun(name: "HandlingRefunds", needsServer: true),
    ArticleRun(name: "MovingIn", needsServer: true),
    ArticleRun(name: "Reports"),
  ]

  /// Articles that make their own database, on a server without any.
  static let runsOnBareServer = [
    ArticleRun(name: "Operating")
  ]

  @Test("do what they say", arguments: runs)
  func examples(run: ArticleRun) async throws {
    try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        let url = database.uri
        try await run.run(environment: ["DATABASE_URL": url, "SQL_URL": url], in: directory)
      }
    }
  }

  @Test("do what they say, from the database on", arguments: runsOnBareServer)
  func examplesOnBareServer(run: ArticleRun) async throws {
    try await withTemporaryDirectory { directory in
      let server = try await PrivatePostgres.start(
        in: directory.appending(path: "postgres"), options: .temporary)
      do {
        let uri = await server.uri()
        try await run.run(
          environment: try Self.place(of: uri).merging(["SQL_URL": uri]) { $1 }, in: directory)
      } catch {
        await server.stop()
        throw error
      }
      await server.stop()
    }
  }

  /// Where the server is, for URLs that name no host.
  private static func place(of uri: String) throws -> [String: String] {
    let items = try #require(URLComponents(string: uri)?.queryItems)
    let values = Dictionary(uniqueKeysWithValues: items.map { ($0.name, $0.value ?? "") })
    return ["PGHOST": try #require(values["host"]), "PGPORT": try #require(values["port"])]
  }

  @Test("name settings that there are")
  func settingsAreKnown() throws {
    let table = try Article.named("Settings").text
    for article in try Article.all {
      for block in article.blocks where block.isSettings {
        for name in block.settings {
          #expect(table.contains("`\(name)`"), "\(article.path), line \(block.line)")
        }
      }
    }
  }

  @Test("are all named on the first page of the catalogue")
  func firstPage() throws {
    let page = try Article.named("Tenure")
    let links = page.text.matches(of: /\n- <doc:\/\/(\w+)\/documentation\/(\w+)(?:\/(\w+))?>/)
    let named = links.map { "Sources/\($0.1)/\($0.2).docc/\($0.3 ?? $0.2).md" }
    #expect(try named.sorted() == Article.all.map(\.path).filter { $0 != page.path }.sorted())
  }

  @Test("have no code that is not run, unless they say why")
  func everyBlockIsRun() throws {
    let known = Set((Self.runs + Self.runsOnBareServer).map(\.name))
    for article in try Article.all {
      let (run, left) = article.examples
      for block in left {
        Issue.record(
          """
          \(article.path), line \(block.line): this is not run. If it can't be run, write the \
          reason above it: <!-- Not run: … -->
          """)
      }
      #expect(
        run.isEmpty != known.contains(article.name),
        "\(article.path): the lists of this suite have the articles with commands, and no others"
      )
    }
  }
}
