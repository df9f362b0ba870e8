import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

/// Manipulations by an attacker who can write to the tables, and the audit's findings.
///
/// The tests' server knows only its superuser, whom no privilege binds.
@Suite("The audit")
struct AuditTests {
  struct Tampering: Sendable, CustomTestStringConvertible {
    var what: String
    var statement: String
    var kind: LedgerAudit.Difference.Kind
    /// Whether `rebuild` repairs it.
    var isRepairable: Bool
    var testDescription: String { what }
  }

  static let tamperings = [
    Tampering(
      what: "an entry's body is changed",
      statement:
        """
        UPDATE tenure.ledger_entry SET body = set_byte(body, 20, get_byte(body, 20) # 1)
        WHERE number = (SELECT min(number) FROM tenure.ledger_entry)
        """,
      kind: .chain, isRepairable: false),
    Tampering(
      what: "an entry before others is deleted",
      statement:
        """
        DELETE FROM tenure.ledger_entry WHERE (original_transaction_id, number) = (
          SELECT original_transaction_id, min(number) FROM tenure.ledger_entry
          GROUP BY 1 HAVING count(*) > 1 LIMIT 1)
        """,
      kind: .chain, isRepairable: false),
    Tampering(
      what: "the last entry is deleted",
      statement:
        """
        DELETE FROM tenure.ledger_entry
        WHERE number = (SELECT max(number) FROM tenure.ledger_entry)
        """,
      kind: .head, isRepairable: false),
    Tampering(
      what: "a holding is prolonged",
      statement: "UPDATE tenure.holding SET ends_at = '2099-01-01'",
      kind: .projection, isRepairable: true),
    Tampering(
      what: "a holding is given to another account",
      statement: copy("holding", with: ["account_id": "ben"])
        + "; DELETE FROM tenure.holding WHERE account_id <> 'ben'",
      kind: .projection, isRepairable: true),
    Tampering(
      what: "a holding is deleted", statement: "DELETE FROM tenure.holding", kind: .projection,
      isRepairable: true),
    Tampering(
      what: "an owner is changed",
      statement:
        """
        DO $$
        DECLARE
          ben uuid := (SELECT account_key FROM tenure.account WHERE account_id = 'ben');
        BEGIN
          UPDATE tenure.store_transaction SET owner_account_key = ben WHERE rule <> 'unclaimed';
        END
        $$
        """,
      kind: .projection, isRepairable: true),
    Tampering(
      what: "a renewal status is lost", statement: "DELETE FROM tenure.renewal_status",
      kind: .projection, isRepairable: true),
    Tampering(
      what: "a claim is lost", statement: "DELETE FROM tenure.ownership_action", kind: .projection,
      isRepairable: true),
    Tampering(
      what: "an unknown account holds what another account owns",
      statement: copy("holding", with: ["account_id": "mallory"]), kind: .projection,
      isRepairable: true),
    Tampering(
      what: "an unknown account holds an original transaction that was never recorded",
      statement: copy(
        "holding", with: ["account_id": "mallory", "original_transaction_id": "6666"]),
      kind: .projection, isRepairable: true),
    Tampering(
      what: "the owner holds a transaction that was never recorded",
      statement: copy("holding", with: ["transaction_id": "6666"]), kind: .projection,
      isRepairable: true),
    Tampering(
      what: "a line's state is changed",
      statement:
        """
        UPDATE tenure.original_transaction SET paid_through = '2099-01-01'
        WHERE original_transaction_id = '1000'
        """,
      kind: .projection, isRepairable: true),
    Tampering(
      what: "a transaction can't be looked up",
      statement: "DELETE FROM tenure.charge_lookup WHERE name = '1' AND NOT is_line_item",
      kind: .projection, isRepairable: true),
    Tampering(
      what: "a transaction is looked up on a line that doesn't have it",
      statement: copy("charge_lookup", with: ["name": "6666", "is_line_item": "false"]),
      kind: .projection,
      isRepairable: true),
    Tampering(
      what: "a line item can't be looked up",
      statement: "DELETE FROM tenure.charge_lookup WHERE is_line_item",
      kind: .projection, isRepairable: true),
    Tampering(
      what: "a line item is looked up on a line that doesn't have it",
      statement: copy("charge_lookup", with: ["name": "6666", "is_line_item": "true"]),
      kind: .projection, isRepairable: true),
    Tampering(
      what: "an account's line can't be looked up",
      statement: "DELETE FROM tenure.account_original_transaction",
      kind: .projection, isRepairable: true),
    Tampering(
      what: "a stranger's look-up leads to a line",
      statement:
        """
        INSERT INTO tenure.account_original_transaction
        SELECT account_key, 'production', '1000' FROM tenure.account WHERE account_id = 'ben'
        """,
      kind: .projection, isRepairable: true),
    Tampering(
      what: "a transaction is said to have been recorded later",
      statement:
        """
        UPDATE tenure.store_transaction SET number = number + 100
        WHERE original_transaction_id = '1000'
        """,
      kind: .projection, isRepairable: true),
    Tampering(
      what: "a transaction's token is said to be another account's",
      statement:
        """
        UPDATE tenure.store_transaction
        SET token_account_key = '00000000-0000-4000-8000-000000000000'
        WHERE app_account_token IS NOT NULL
        """,
      kind: .projection, isRepairable: true),
    Tampering(
      what: "a renewal status's token is said to be another account's",
      statement:
        """
        UPDATE tenure.renewal_status
        SET token_account_key = '00000000-0000-4000-8000-000000000000'
        """,
      kind: .projection, isRepairable: true),
    Tampering(
      what: "lines are linked that Apple doesn't link",
      statement:
        """
        UPDATE tenure.original_transaction
        SET linked = ARRAY[CASE original_transaction_id WHEN '1000' THEN '5000' ELSE '1000' END]
        WHERE original_transaction_id IN ('1000', '5000')
        """,
      kind: .projection, isRepairable: true),
    Tampering(
      what: "an order is given to another account",
      statement:
        """
        DO $$
        DECLARE
          ben uuid := (SELECT account_key FROM tenure.account WHERE account_id = 'ben');
          moved tenure.purchase_order;
        BEGIN
          FOR moved IN SELECT * FROM tenure.purchase_order LOOP
            DELETE FROM tenure.purchase_order
            WHERE account_key = moved.account_key AND order_id = moved.order_id;
            moved.account_key := ben;
            INSERT INTO tenure.purchase_order VALUES (moved.*);
            UPDATE tenure.purchase_order_account SET account_key = ben
            WHERE order_id = moved.order_id;
          END LOOP;
        END
        $$
        """,
      kind: .order, isRepairable: false),
    Tampering(
      what: "an order names another transaction",
      statement: "UPDATE tenure.purchase_order SET transaction_id = '6666'", kind: .order,
      isRepairable: false),
    Tampering(
      what: "an order is open again",
      statement:
        """
        UPDATE tenure.purchase_order SET status = 'open', fulfilled_at = NULL, environment = NULL,
          original_transaction_id = NULL, transaction_id = NULL
        """,
      kind: .order, isRepairable: false),
    Tampering(
      what: "a charge forgets its order",
      statement: "UPDATE tenure.store_transaction SET order_id = NULL", kind: .order,
      isRepairable: false),
  ]

  /// Adds a row like the one that a table has, but for some columns.
  private static func copy(_ table: String, with changes: [String: String]) -> String {
    let pairs = changes.sorted { $0.key < $1.key }.map { "'\($0)', '\($1)'" }
    return """
      INSERT INTO tenure.\(table)
      SELECT changed.* FROM (SELECT * FROM tenure.\(table) LIMIT 1) AS t,
        jsonb_populate_record(t::tenure.\(table), jsonb_build_object(
          \(pairs.joined(separator: ", ")))) AS changed
      """
  }

  @Test("finds tampering, and a rebuild repairs the projections", arguments: tamperings)
  func tampering(_ tampering: Tampering) async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      try await ledger.recordSomethingOfEverything()
      #expect(try await ledger.auditor.audit().differences == [])

      try await database.runScript(tampering.statement)
      let found = try await ledger.auditor.audit()
      #expect(found.differences.contains { $0.kind == tampering.kind }, "\(found.differences)")

      let (_, rewritten) = try await ledger.auditor.rebuild()
      #expect(rewritten == (tampering.isRepairable ? 1 : 0))
      #expect(try await ledger.auditor.audit().isClean == tampering.isRepairable)
    }
  }

  @Test("many parts are read at once, reported in order, and continued where a run ended")
  func parts() async throws {
    try await withLedger { ledger in
      let lines = (1000..<1180).map {
        OriginalTransactionKey(.production, OriginalTransactionID("\($0)"))
      }
      let (middle, late, early) = (lines[89], lines[150], lines[20])
      try await ledger.submit(
        lines.map { charge(TransactionID($0.originalTransactionID.rawValue), on: 0, line: $0) },
        claiming: lines.map { key(TransactionID($0.originalTransactionID.rawValue), line: $0) },
        by: "anna", on: 0.1)
      @Sendable func audit(after start: OriginalTransactionKey? = nil) async throws -> LedgerAudit {
        try await ledger.auditor.audit(after: start, checkpointAge: .zero) { progress in
          #expect(progress.done == progress.total)
          #expect(progress.total == (start == nil ? 180 : 90))
          #expect(progress.last == lines.last)
        }
      }
      let whole = try await audit()
      #expect(whole.differences == [])
      #expect((whole.lines, whole.charges, whole.holdings) == (180, 180, 180))
      let rest = try await audit(after: middle)
      #expect(rest.differences == [])
      #expect((rest.lines, rest.charges, rest.holdings) == (90, 90, 180))
      // Only an audit of all leaves a checkpoint.
      let marks = try await ledger.database.query("SELECT count(*) FROM tenure.ledger_checkpoint")
      #expect(try marks.decodeOnly(Int.self) == 1)

      for line in [late, early] {
        try await ledger.database.execute(
          "UPDATE tenure.holding SET period_type = 'trial' WHERE \(line.condition)")
      }
      #expect(try await audit().differences.map(\.line) == [early, late])
      #expect(try await audit(after: middle).differences.map(\.line) == [late])
      #expect(try await ledger.auditor.rebuild(after: middle) == (90, 1))
      #expect(try await audit().differences.map(\.line) == [early])
      #expect(try await ledger.auditor.rebuild() == (180, 1))
      #expect(try await audit().differences == [])
    }
  }

  @Test("two accounts whose ids are two spellings of one word are two accounts")
  func spellings() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "caf\u{e9}", on: 0.1)
      try await ledger.submit(
        [charge("2", on: 40)], claiming: [key("2")], by: "cafe\u{301}", on: 40.1)
      let holders = try await database.query(
        "SELECT DISTINCT account_id FROM tenure.holding"
      ).decode(String.self)
      #expect(Set(holders.map(AccountID.init(_:))).count == 2)
      #expect(try await ledger.auditor.audit().differences == [])
      let (_, rewritten) = try await ledger.auditor.rebuild()
      #expect(rewritten == 0)
    }
  }

  @Test(
    "an id that Apple signed is taken as it is, whatever it looks like",
    arguments: ["-1", " 12", "\u{ff11}\u{ff12}", "=1+1", "00"])
  func oddIdentifiers(id: String) async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let line = OriginalTransactionKey(.production, OriginalTransactionID(id))
      try await ledger.submit(
        [charge(TransactionID(id), on: 0, line: line)],
        claiming: [key(TransactionID(id), line: line)], by: "anna", on: 0.1)
      #expect(try await ledger.ownership.lines(of: TransactionID(id)) == [line])
      for other in ["1", "12", "2", "0"] {
        #expect(try await ledger.ownership.lines(of: TransactionID(other)) == [])
      }
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("what a line that is linked shows of itself is what both come to")
  func linked() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let other = OriginalTransactionKey(.production, "2000")
      try await ledger.submit(
        [charge("1", on: 0, lineItem: "w1")], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit(
        [charge("9", on: 0, line: other, lineItem: "w1")], claiming: [], by: "anna", on: 5)
      // An entry on the one line alone.
      try await ledger.submit(
        [charge("10", on: 30, line: other)], claiming: [], by: "anna", on: 30.1)
      let audit = try await ledger.auditor.audit()
      #expect(audit.differences == [])
      #expect(audit.lines == 2)
      let paidThrough = try await database.query(
        "SELECT DISTINCT paid_through FROM tenure.original_transaction"
      ).decode(Timestamp.self)
      #expect(paidThrough == [day(60)])

      try await database.runScript("UPDATE tenure.original_transaction SET linked = '{}'")
      #expect(try await ledger.auditor.audit().differences.map(\.kind).contains(.projection))
      _ = try await ledger.auditor.rebuild()
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a tail that was cut off together with its head is found by the checkpoint")
  func checkpoint() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      try await ledger.submit(
        [charge("1", on: 0), status(true, on: 0.1)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit([status(false, on: 5)], claiming: [], by: "anna", on: 5)
      try await checkpoint(ledger)
      #expect(try await ledger.auditor.audit().checkpoints == 1)
      // An attacker who does this knows the schema well.
      try await database.runScript(
        """
        DELETE FROM tenure.ledger_entry WHERE recorded_at = '2026-01-06';
        DELETE FROM tenure.renewal_status WHERE as_of = '2026-01-06';
        UPDATE tenure.original_transaction AS o SET head_number = e.number, head_hash = e.hash,
          head_recorded_at = e.recorded_at, head_stored_at = e.stored_at
        FROM (SELECT * FROM tenure.ledger_entry ORDER BY number DESC LIMIT 1) AS e;
        UPDATE tenure.holding SET auto_renews = true;
        """)
      _ = try await ledger.auditor.rebuild()
      let found = try await ledger.auditor.audit()
      #expect(found.differences.map(\.kind) == [.head, .head], "\(found.differences)")
      #expect(found.differences.last?.detail.contains("checkpoint 1") == true)
    }
  }

  @Test("an entry of a program whose clock is slow is under no earlier checkpoint")
  func slowClock() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 20)
      try await checkpoint(ledger)
      let other = OriginalTransactionKey(.production, "2000")
      try await ledger.submit([charge("9", on: 0, line: other)], claiming: [], by: "anna", on: 1)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("lines that become one while an audit goes on are counted once")
  func linkedMeanwhile() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let other = OriginalTransactionKey(.production, "2000")
      try await ledger.submit(
        [charge("1", on: 0, lineItem: "w1")], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit([charge("8", on: 50, line: other)], claiming: [], by: "anna", on: 50)
      try await checkpoint(ledger)
      let before = try await ledger.entryCount()
      try await ledger.submit(
        [charge("9", on: 0, line: other, lineItem: "w1")], claiming: [], by: "anna", on: 51)
      let audit = try await ledger.auditor.audit()
      #expect(audit.differences == [])
      #expect(audit.checkpoints == 1)
      #expect(audit.entries == (try await ledger.entryCount()))
      #expect(audit.entries > before)
    }
  }

  /// Leaves a checkpoint over everything that is there.
  private func checkpoint(_ ledger: Ledger) async throws {
    // Marks count milliseconds.
    try await Task.sleep(for: .milliseconds(2))
    #expect(try await ledger.auditor.audit(checkpointAge: .zero).differences == [])
  }
}

extension Ledger {
  /// A charge with all that a charge can have, an order, and two more lines.
  fileprivate func recordSomethingOfEverything() async throws {
    _ = try await accounts.findOrCreateAccount("ben", at: start)
    _ = try await products.describe(
      Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
    let order = try await orders.openOrder(accountID: "anna", productID: "monthly", at: start)
    try await submit(
      [
        .transaction(
          TransactionRecord(
            key: key("1"), asOf: day(0.1), purchaseDate: start, expiresDate: day(30),
            webOrderLineItemID: "w1", appAccountToken: order.appAccountToken)),
        .renewalStatus(
          RenewalStatus(
            asOf: day(0.1), autoRenews: true, phase: .undisturbed,
            appAccountToken: order.appAccountToken),
          line: originalKey),
      ], claiming: [key("1")], by: "anna", on: 0.1)
    let other = OriginalTransactionKey(.production, "5000")
    try await submit([charge("50", on: 1, line: other)], claiming: [], by: "anna", on: 1.1)
    try await submit([status(false, on: 5)], claiming: [], by: "anna", on: 5)
  }
}
