import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

/// What somebody who can write to the tables might do, and what the audit says of it.
///
/// The tests' server knows only its superuser, whom no privilege binds.
@Suite("The audit")
struct AuditTests {
  struct Tampering: Sendable, CustomTestStringConvertible {
    var what: String
    var statement: String
    var kind: LedgerAudit.Difference.Kind
    /// Whether `rebuild` mends it.
    var isMendable: Bool
    var testDescription: String { what }
  }

  static let tamperings = [
    Tampering(
      what: "an entry's body is changed",
      statement:
        """
        UPDATE tenure.ledger_entry SET body = replace(body, '"quantity":1', '"quantity":2')
        WHERE number = 1
        """,
      kind: .chain, isMendable: false),
    Tampering(
      what: "an entry in the middle is deleted",
      statement: "DELETE FROM tenure.ledger_entry WHERE number = 2", kind: .chain,
      isMendable: false),
    Tampering(
      what: "the last entry is deleted",
      statement:
        """
        DELETE FROM tenure.ledger_entry
        WHERE number = (SELECT max(number) FROM tenure.ledger_entry)
        """,
      kind: .head, isMendable: false),
    Tampering(
      what: "a holding is prolonged",
      statement: "UPDATE tenure.holding SET ends_at = ends_at + interval '1 year'",
      kind: .projection, isMendable: true),
    Tampering(
      what: "a holding is given to somebody else",
      statement: "UPDATE tenure.holding SET account_id = 'ben'", kind: .projection,
      isMendable: true),
    Tampering(
      what: "a holding is deleted", statement: "DELETE FROM tenure.holding", kind: .projection,
      isMendable: true),
    Tampering(
      what: "an owner is changed",
      statement:
        """
        UPDATE tenure.store_transaction
        SET owner_account_key = (SELECT account_key FROM tenure.account WHERE account_id = 'ben')
        """,
      kind: .projection, isMendable: true),
    Tampering(
      what: "a renewal status is lost", statement: "DELETE FROM tenure.renewal_status",
      kind: .projection, isMendable: true),
    Tampering(
      what: "a claim is lost", statement: "DELETE FROM tenure.claim", kind: .projection,
      isMendable: true),
    Tampering(
      what: "a binding is lost", statement: "DELETE FROM tenure.account_binding",
      kind: .projection, isMendable: true),
  ]

  @Test("finds what was tampered with, and rebuild mends the projections", arguments: tamperings)
  func tampering(_ tampering: Tampering) async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      _ = try await ledger.findOrCreateAccount("ben", at: start)
      try await ledger.submit(
        [charge("1", on: 0), status(true, on: 0.1)], claiming: [key("1")], by: "anna", on: 0.1)
      #expect(try await ledger.audit(at: day(10)).differences == [])

      try await database.runScript(tampering.statement)
      let found = try await ledger.audit(at: day(10))
      #expect(found.differences.contains { $0.kind == tampering.kind }, "\(found.differences)")

      let (_, rewritten) = try await ledger.rebuild()
      #expect(rewritten == (tampering.isMendable ? 1 : rewritten))
      #expect(try await ledger.audit(at: day(10)).isClean == tampering.isMendable)
    }
  }

  @Test("a tail that was cut off together with its head is found by the checkpoint")
  func checkpoint() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      try await ledger.submit(
        [charge("1", on: 0), status(true, on: 0.1)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit([status(false, on: 5)], claiming: [], by: "anna", on: 5)
      #expect(try await ledger.audit(at: day(10)).isClean)
      // Whoever does this knows the schema well.
      try await database.runScript(
        """
        DELETE FROM tenure.ledger_entry WHERE evidence_date = '2026-01-06';
        DELETE FROM tenure.renewal_status WHERE as_of = '2026-01-06';
        UPDATE tenure.original_transaction AS o SET head_number = e.number, head_hash = e.hash,
          head_recorded_at = e.recorded_at
        FROM (SELECT * FROM tenure.ledger_entry ORDER BY number DESC LIMIT 1) AS e;
        UPDATE tenure.holding SET auto_renews = true;
        """)
      let found = try await ledger.audit(at: day(10))
      #expect(found.differences.map(\.kind) == [.head], "\(found.differences)")
    }
  }
}
