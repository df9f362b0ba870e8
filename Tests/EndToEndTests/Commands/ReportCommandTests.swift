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
          /notifications_refused,,,wrong_signature,\d{4}-\d\d-\d\d,\d{4}-\d\d-\d\d,true,3,,/),
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

  @Test("rates are set and listed, and a report says which ones are missing")
  func rates() async throws {
    try await withScratchDatabase { database in
      func run(_ arguments: String...) async throws -> ChildProcess.Outcome {
        try await TenureProgram.run(
          arguments: arguments, environment: ["DATABASE_URL": database.uri])
      }
      #expect(
        try await run("rates").output == "No rates are set. Apple's commission counts as 30 %.\n")
      let set = try await run("rates", "exchange", "USD", "EUR", "0.92", "--from", "2026-01-31")
      #expect(set.output == "set  USD in EUR 0.92 from 2026-01-31\n", "\(set.errors)")
      _ = try await database.execute(
        "INSERT INTO tenure.product (product_id, valid_from, type) VALUES ('monthly', now(), 'consumable')"
      )
      let unknown = try await run(
        "rates", "commission", "15", "--from", "2026-01-01", "--product", "montly")
      #expect(unknown.status == 64)
      #expect(unknown.errors.contains("is not in the catalogue (did you mean monthly?)."))
      for product in [[], ["--product", "monthly"]] {
        let arguments = ["rates", "commission", "15", "--from", "2026-01-01"] + product
        let set = try await TenureProgram.run(
          arguments: arguments, environment: ["DATABASE_URL": database.uri])
        #expect(set.status == 0, "\(set.errors)")
      }
      let list = try await run("rates")
      #expect(
        list.output == """
          kind        of            rate  valid from
          exchange    USD in EUR    0.92  2026-01-31
          commission  all products  15 %  2026-01-01
          commission  monthly       15 %  2026-01-01

          """)
      let refused = try await run("rates", "exchange", "XXQ", "EUR", "0.92", "--from", "2026-01-31")
      #expect(refused.status == 64)
      #expect(refused.errors.contains("The currency must be a code of ISO 4217, such as EUR."))
      _ = try await database.execute(
        """
        INSERT INTO tenure.movement (environment, original_transaction_id, kind, at, transaction_id,
          charge_original_transaction_id, product_id, number, ownership_type, period_type, quantity,
          currency, amount_milliunits, rule, decided_at, has_moved, is_renewal, expires_at, known_from)
        SELECT 'production', code, 'charged', now(), code, code, 'monthly', 1, 'purchased', 'normal',
          1, code, 1500, 'submitter', now(), false, false, 'infinity', now()
        FROM unnest(ARRAY['USD', 'GBP']) AS code
        """)
      let report = try await run("report", "revenue", "--reporting-currency", "EUR")
      #expect(report.output.contains("1.38 EUR"), "\(report.output)")
      #expect(report.output.contains("not converted to EUR, as exchange rates are missing: GBP."))
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
