import Foundation
import Postgres
import ScratchDatabases
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("tenure report")
struct ReportCommandTests {
  private func run(_ arguments: String..., on database: ConnectionPool) async throws
    -> ChildProcess.Outcome
  {
    try await withTemporaryDirectory { directory in
      try await ChildProcess.run(
        try TenureProgram.executable, ["report"] + arguments,
        environment: ["DATABASE_URL": database.uri], in: directory)
    }
  }

  @Test("it prints a report in each form")
  func forms() async throws {
    try await withScratchDatabase { database in
      let none = try await run("intake", on: database)
      #expect(none.status == 0)
      #expect(none.output == "Nothing to report.\n")
      try await database.execute(
        """
        INSERT INTO tenure.notification_refusal
        VALUES (date_trunc('hour', now()), 2, 'wrong_signature', 3, now(), 'It is forged.', 9)
        """)
      let table = try await run("intake", on: database)
      #expect(table.output.hasPrefix("measure"))
      #expect(table.output.contains("wrong_signature"))
      let csv = try await run("intake", "--format", "csv", on: database)
      // The days are those of the report.
      #expect(
        csv.output.contains(
          /notifications_refused,,,wrong_signature,\d{4}-\d\d-\d\d,\d{4}-\d\d-\d\d,3,,/),
        "\(csv.output)")
      // All of them, where a table has a thousand.
      let days = try await run(
        "churn", "--format", "csv", "--bucket", "day", "--from", "2020-01-01", "--to", "2023-12-31",
        on: database)
      #expect(days.output.split(separator: "\r\n").count == 1 + 1461)
      let json = try await run("intake", "--format", "json", "--items", on: database)
      let parsed = try JSONSerialization.jsonObject(with: Data(json.output.utf8))
      let rows = try #require((parsed as? [String: Any])?["rows"] as? [[String: Any]])
      #expect(rows.map { $0["subject"] as? String } == ["version 2"])
    }
  }

  @Test("it prints what a report counts")
  func definition() async throws {
    try await withScratchDatabase { database in
      let shown = try await run("churn", "--definition", on: database)
      #expect(shown.status == 0)
      #expect(shown.output.contains("churn_rate = churned / active_at_start"))
      let unknown = try await run("churn", "--time-zone", "Mars/Phobos", on: database)
      #expect(unknown.status != 0)
      #expect(unknown.errors.contains("--time-zone must be a name"), "\(unknown.errors)")
    }
  }

  @Test(
    "an unknown report and a number out of range are said in one line",
    arguments: [
      (["weather"], "weather"), (["intake", "--days", "0"], "--days must be"),
      (["intake", "--limit", "99999"], "--limit is 99999"),
      (["intake", "--known-at", "2026-03-01T00:00:00Z"], "--known-at is not accepted"),
      (["mrr", "--from", "2026-03-02", "--to", "2026-03-01"], "--from is after the last day"),
      (["mrr", "--items", "--column", "weather"], "--column must be one of"),
      (["mrr", "--bucket", "year"], "year"),
    ])
  func mistakes(arguments: [String], words: String) async throws {
    let outcome = try await withTemporaryDirectory { directory in
      try await ChildProcess.run(
        try TenureProgram.executable, ["report"] + arguments, environment: [:], in: directory)
    }
    #expect(outcome.status != 0)
    #expect(outcome.errors.contains(words), "\(outcome.errors)")
  }
}
