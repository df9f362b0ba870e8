import Postgres
import ScratchDatabases
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("tenure audit and tenure rebuild")
struct AuditCommandTests {
  /// Something that a superuser does to the database behind Tenure's back.
  struct Tampering: Sendable, CustomTestStringConvertible {
    var statement: SQL
    /// The audit's name for it.
    var kind: String
    /// Whether it can be made good from the entries.
    var isRepairable: Bool

    init(_ statement: SQL, _ kind: String, repairable: Bool) {
      self.statement = statement
      self.kind = kind
      isRepairable = repairable
    }

    var testDescription: String { statement.text }
  }

  /// The line of the first sample.
  static let line = "300005000000000"

  // swift-format-ignore
  static let tamperings: [Tampering] = [
    Tampering("UPDATE tenure.holding SET ends_at = '2099-01-01' WHERE original_transaction_id = '300005000000000'", "projection", repairable: true),
    Tampering("DELETE FROM tenure.holding WHERE original_transaction_id = '300005000000000'", "projection", repairable: true),
    Tampering("UPDATE tenure.store_transaction SET expires_at = '2099-01-01' WHERE original_transaction_id = '300005000000000'", "projection", repairable: true),
    Tampering("DELETE FROM tenure.ownership_action WHERE original_transaction_id = '300005000000000'", "projection", repairable: true),
    Tampering("UPDATE tenure.renewal_status SET auto_renews = false WHERE original_transaction_id = '300005000000000'", "projection", repairable: true),
    Tampering("INSERT INTO tenure.holding SELECT changed.* FROM tenure.holding AS h, jsonb_populate_record(h, '{\"account_id\": \"mallory\"}') AS changed WHERE h.original_transaction_id = '300005000000000'", "projection", repairable: true),
    Tampering("UPDATE tenure.original_transaction SET paid_through = '2099-01-01' WHERE original_transaction_id = '300005000000000'", "projection", repairable: true),
    Tampering("INSERT INTO tenure.charge_lookup VALUES ('6666', false, 'production', '300005000000000')", "projection", repairable: true),
    Tampering("DELETE FROM tenure.charge_lookup WHERE is_line_item AND original_transaction_id = '300005000000000'", "projection", repairable: true),
    Tampering("DELETE FROM tenure.account_original_transaction WHERE original_transaction_id = '300005000000000'", "projection", repairable: true),
    Tampering("UPDATE tenure.store_transaction SET token_account_key = '00000000-0000-4000-8000-000000000000' WHERE original_transaction_id = '300005000000000'", "projection", repairable: true),
    Tampering("UPDATE tenure.purchase_order SET transaction_id = '6666' WHERE transaction_id IS NOT NULL", "order", repairable: false),
    Tampering("UPDATE tenure.ledger_entry SET recorded_at = '2020-01-01' WHERE original_transaction_id = '300005000000000'", "chain", repairable: false),
    Tampering("UPDATE tenure.ledger_entry SET body = '[]' WHERE original_transaction_id = '300005000000000'", "chain", repairable: false),
    Tampering("UPDATE tenure.original_transaction SET head_number = head_number - 1 WHERE original_transaction_id = '300005000000000'", "head", repairable: false),
    Tampering("DELETE FROM tenure.ledger_entry WHERE original_transaction_id = '300005000000000'", "head", repairable: false),
    Tampering("UPDATE tenure.store_transaction SET order_id = NULL", "order", repairable: false),
  ]

  @Test("an untouched ledger is clean")
  func clean() async throws {
    try await withScratchDatabase { database in
      let ledger = try await SampleLedger(submissions: 4, in: database)
      let outcome = try await run("audit", on: database)
      #expect(outcome.status == 0, "\(outcome.output)")
      for count in [
        "original transactions  \(ledger.samples.count)\n",
        "charges                \(ledger.samples.count)\n",
        "holdings               \(ledger.samples.count)\n", "orders                 2\n",
        "differences            0\n",
      ] {
        #expect(outcome.output.contains(count), "\(outcome.output)")
      }
      let rebuilt = try await run("rebuild", on: database)
      #expect(rebuilt.status == 0)
      #expect(rebuilt.output.contains("rewritten              0\n"))
    }
  }

  @Test(
    "what was changed behind its back is found, and repaired where that is possible",
    arguments: tamperings)
  func tampered(_ tampering: Tampering) async throws {
    try await withScratchDatabase { database in
      _ = try await SampleLedger(submissions: 2, in: database)
      let touched = try await database.execute(tampering.statement)
      #expect(touched > 0)

      let audit = try await run("audit", on: database)
      #expect(audit.status == 1, "\(audit.output)")
      let differences = audit.output.split(separator: "\n").filter {
        $0.hasPrefix("  ") && !$0.hasPrefix("  The movements")
      }
      #expect(differences.contains { $0.hasPrefix("  \(tampering.kind)") }, "\(audit.output)")
      if tampering.kind != "order" {
        #expect(differences.allSatisfy { $0.contains(Self.line) }, "\(audit.output)")
      }

      guard tampering.isRepairable else {
        _ = try await run("rebuild", on: database)
        #expect(try await run("audit", on: database).status == 1)
        return
      }
      let rebuilt = try await run("rebuild", on: database)
      #expect(rebuilt.status == 0)
      #expect(rebuilt.output.contains("rewritten              1\n"), "\(rebuilt.output)")
      let again = try await run("audit", on: database)
      #expect(again.status == 0, "\(again.output)")
    }
  }

  private func run(_ command: String, on database: ConnectionPool) async throws
    -> ChildProcess.Outcome
  {
    try await TenureProgram.run(
      command, environment: ["DATABASE_URL": database.uri])
  }
}
