import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

/// A thousand single changes by the owner of the database, each of which the audit finds and names.
///
/// Each is made and audited in a transaction that is rolled back.
@Suite(
  "Tampering",
  .disabled(
    if: ScratchPlace.environment.isDistributed, "Distributed tables refuse most of the changes."))
struct TamperingTests {
  /// The tables of the proof, with the columns that it does not cover: work, repetitions that no
  /// decision depends on, and copies of what is covered elsewhere.
  private static let uncovered: KeyValuePairs<String, Set<String>> = [
    "ledger_entry": [], "original_transaction": ["repeated", "repeated_as_of", "repeated_by"],
    "store_transaction": [], "renewal_status": [], "ownership_action": [],
    "charge_lookup": [], "account_original_transaction": [],
    "holding": [], "account": ["created_at", "published_at", "label", "email"],
    "account_by_key": [],
    "account_by_token": [], "purchase_order": [], "purchase_order_account": [],
    "account_grant": ["reason", "submission_id", "environment", "original_transaction_id"],
    "account_grant_account": [],
    "submission": ["retry_at", "attempts", "problem_detail", "erased_at"],
    "administrator_action": [], "product": [], "product_entitlement": [], "account_chain": [],
    "account_entry": [], "ledger_checkpoint": [],
  ]

  /// Names under which the audit reports columns that are parts of a larger value.
  private static let names: [String: [String]] = [
    "token_account_key": ["token_holder", "token_account_key"],
    "grace_ends_at": ["phase", "grace_ends_at"], "recorded_at": ["recorded_at", " at"],
    "account_key": ["account", "vouches"],
    "effective_from": ["received_at", "bought_until", "effective_from"],
    "id_salt": ["account_id"], "app_account_token": ["app_account_token", "look-up"],
    "original_transaction_id": ["original_transaction_id", "look-up"],
    "order_id": ["order"], "is_claim": ["claim or placement"], "linked": ["links"],
  ]

  private struct Column: Sendable {
    var name: String
    var type: String
    var isKey: Bool
  }

  private struct Table: Sendable {
    var name: String
    var columns: [Column]
    var rows: Int
  }

  private static func tables(_ database: ConnectionPool) async throws -> [Table] {
    var tables: [Table] = []
    for (name, uncovered) in uncovered {
      let columns = try await database.query(
        """
        SELECT attname::text, format_type(atttypid, NULL), attnum = ANY (coalesce(conkey, '{}'))
        FROM pg_attribute LEFT JOIN pg_constraint ON conrelid = attrelid AND contype = 'p'
        WHERE attrelid = \("tenure." + name)::regclass AND attnum > 0 AND NOT attisdropped
          AND attidentity = ''
        ORDER BY attnum
        """
      ).decode(String.self, String.self, Bool.self).map(Column.init)
      let rows = try await database.query("SELECT count(*) FROM tenure.\(unescaped: name)")
        .decodeOnly(Int.self)
      #expect(rows > 0, "\(name) is empty")
      tables.append(
        Table(name: name, columns: columns.filter { !uncovered.contains($0.name) }, rows: rows))
    }
    return tables
  }

  /// Another value of a column.
  private static func value(_ column: Column, _ number: Int) -> String {
    let name = column.name
    switch column.type {
    case "timestamp with time zone":
      return "coalesce(\(name), '2026-02-01') + interval '\(1 + number % 5000) seconds'"
    case "integer", "bigint", "smallint": return "coalesce(\(name), 0) + \(1 + number % 3)"
    case "boolean": return "\(name) IS NOT TRUE"
    case "uuid": return "md5('\(number)')::uuid"
    case "uuid[]": return "ARRAY[md5('\(number)')::uuid]"
    case "timestamp with time zone[]":
      return "ARRAY[timestamptz '2026-02-01' + interval '\(1 + number % 5000) seconds']"
    case "bytea": return "sha256('\(number)')"
    case _ where name == "environment":
      return "CASE t.environment WHEN 'sandbox' THEN 'production' ELSE 'sandbox' END"
    default:
      // Of the words that the column may have, or longer.
      return number.isMultiple(of: 2)
        ? "coalesce((SELECT max(o.\(name)) FROM tenure.TABLE AS o WHERE o.\(name) <> t.\(name)), 'x')"
        : "concat(\(name), 'x')"
    }
  }

  @Test func `each of a thousand changes is found and named`() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      try await ledger.recordALittleOfEverything()
      let clean = try await ledger.auditor.audit(checkpointAge: .zero - .minutes(1))
      #expect(clean.differences == [])
      let kept = try await ledger.auditor.checkpoints(limit: 10)
      #expect(kept.count == 1)
      let tables = try await Self.tables(database)
      var seed = Seed(state: 20_261_124)
      var (found, made, refused) = (0, 0, 0)
      while made < 1000 {
        let table = tables[seed.next(below: tables.count)]
        let column = table.columns[seed.next(below: table.columns.count)]
        let (row, other) = (seed.next(below: table.rows), seed.next(below: table.rows))
        let (kind, number) = (seed.next(below: 10), seed.next(below: 1_000_000))
        let change = Change(
          table: table.name, column: column.name, isKey: column.isKey, kind: kind, row: row,
          other: other,
          value: Self.value(column, number).replacing("TABLE", with: table.name), type: column.type)
        switch try await change.audit(ledger, kept, columns: table.columns.map(\.name)) {
        case nil: refused += 1
        case let differences?:
          made += 1
          let isNamed = differences.contains { change.isNamed(by: $0, Self.names) }
          if isNamed { found += 1 }
          #expect(isNamed, "\(change): \(differences.map(\.description))")
        }
      }
      #expect(found == 1000)
      #expect(refused < 4000)
    }
  }

  /// A generator of the same numbers at each run.
  private struct Seed {
    var state: UInt64

    mutating func next(below limit: Int) -> Int {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(state >> 33) % limit
    }
  }

  private struct Change: CustomStringConvertible {
    var table: String
    var column: String
    var isKey: Bool
    /// 0: deletes the row; 1: inserts another one; 2: swaps the values of two rows; else changes one.
    var kind: Int
    var row: Int
    var other: Int
    var value: String
    var type: String

    var description: String {
      let what = kind == 0 ? "delete" : kind == 1 ? "insert" : kind == 2 ? "swap" : "change"
      return "\(what) \(table).\(column) of row \(row) (\(other)) to \(value)"
    }

    private func place(_ row: Int) -> String {
      "(SELECT ctid FROM tenure.\(table) ORDER BY ctid OFFSET \(row) LIMIT 1)"
    }

    private var statement: String {
      switch kind {
      case 0: return "DELETE FROM tenure.\(table) AS t WHERE ctid = \(place(row))"
      case 1:
        return """
          INSERT INTO tenure.\(table) OVERRIDING SYSTEM VALUE
          SELECT r.* FROM (SELECT * FROM tenure.\(table) WHERE ctid = \(place(row))) AS t,
            LATERAL jsonb_populate_record(NULL::tenure.\(table),
              to_jsonb(t) || jsonb_build_object('\(column)', \(value))) AS r
          """
      case 2:
        return """
          UPDATE tenure.\(table) AS t SET \(column) = o.\(column)
          FROM (
            SELECT a.ctid AS place, b.\(column) FROM tenure.\(table) AS a, tenure.\(table) AS b
            WHERE (a.ctid = \(place(row)) AND b.ctid = \(place(other)))
              OR (b.ctid = \(place(row)) AND a.ctid = \(place(other)))) AS o
          WHERE t.ctid = o.place AND t.\(column) IS DISTINCT FROM o.\(column)
          """
      default:
        return "UPDATE tenure.\(table) AS t SET \(column) = \(value) WHERE ctid = \(place(row))"
      }
    }

    /// Makes the change and returns the differences; nil if the database refuses it, or it changes
    /// nothing.
    func audit(_ ledger: Ledger, _ kept: [Checkpoint], columns: [String]) async throws
      -> [LedgerAudit.Difference]?
    {
      // Foreign keys and triggers bind no superuser; a row that is inserted needs another key.
      guard kind != 1 || isKey, kind != 2 || !isKey else { return nil }
      do {
        return try await ledger.database.withTransaction { transaction in
          _ = try await transaction.execute("SET LOCAL session_replication_role = replica")
          let changed = try await transaction.execute("\(unescaped: statement)")
          guard changed > 0 else { throw Refused() }
          // A charge that is known under several original transactions may be looked up at any.
          if table == "charge_lookup", column == "original_transaction_id" {
            let wrong = try await transaction.query(
              """
              SELECT FROM tenure.charge_lookup AS l
              WHERE NOT EXISTS (
                SELECT FROM tenure.store_transaction AS t
                WHERE (t.environment, t.original_transaction_id)
                    = (l.environment, l.original_transaction_id)
                  AND CASE WHEN l.is_line_item THEN t.web_order_line_item_id
                    ELSE t.transaction_id END = l.name)
              """)
            guard !wrong.isEmpty else { throw Refused() }
          }
          var auditor = ledger.auditor
          auditor.within = transaction
          var audit = LedgerAudit()
          let lines = try await transaction.query(
            "SELECT environment, original_transaction_id FROM tenure.original_transaction"
          ).decode(Environment.self, OriginalTransactionID.self).map {
            OriginalTransactionKey($0, $1)
          }
          // The audits of what was touched first; the others find what they can't.
          if Self.ofLines.contains(table) {
            let catalogue = try await ledger.products.catalogue()
            for found in try await auditor.audits(of: lines, catalogue: catalogue) {
              audit.add(found.audit)
            }
          } else {
            let keys = try await transaction.query("SELECT account_key FROM tenure.account_chain")
              .decode(AccountKey.self)
            audit.add(try await auditor.audits(of: Array(keys)))
          }
          if audit.isClean {
            for row in try await auditor.orphanRows().orphans {
              audit.report(.projection, row.line, "\(row.description) should not be there")
            }
            try await auditor.findUnrootedRows(&audit)
            try await auditor.auditAccounts(&audit)
          }
          if table == "ledger_checkpoint" {
            try await auditor.checkCheckpoints(against: kept, &audit)
          }
          await transaction.rollBack()
          return audit.differences
        }
      } catch is Refused {
        return nil
      } catch let error as PostgresError where error.code == .server {
        return nil
      }
    }

    private struct Refused: Error {}

    private static let ofLines: Set<String> = [
      "ledger_entry", "original_transaction", "store_transaction", "renewal_status",
      "ownership_action", "charge_lookup",
      "account_original_transaction", "holding",
    ]

    /// Whether a difference names the table's row and the column, or the entry.
    func isNamed(by difference: LedgerAudit.Difference, _ names: [String: [String]]) -> Bool {
      let isOfChain =
        ["ledger_entry", "account_entry", "account_chain", "ledger_checkpoint"]
        .contains(table) || column.hasPrefix("head_")
      guard
        difference.line != nil || difference.account != nil
          || ["ledger_checkpoint", "account", "account_grant"].contains(table)
      else { return false }
      if isOfChain {
        return difference.detail.contains("entr") || difference.detail.contains("checkpoint")
          || difference.detail.contains("account_entry")
      }
      // Another key is another row.
      guard kind > 1, !isKey else { return true }
      // A text that a column can't have makes its row unreadable.
      return (names[column] ?? [column]).contains(where: difference.detail.contains)
        || difference.detail.contains("can't be read")
    }
  }
}

extension Ledger {
  /// Some accounts and original transactions, with a row in every table of the proof.
  fileprivate func recordALittleOfEverything() async throws {
    for (name, type) in [("monthly", ProductType.autoRenewable), ("coins", .consumable)] {
      _ = try await products.describe(
        Product(
          id: ProductID(rawValue: name), validFrom: start, type: type,
          entitlements: type == .consumable ? [] : ["premium"]))
    }
    for (number, account) in ["anna", "ben", "guest"].enumerated() {
      let line = OriginalTransactionKey(
        .production, OriginalTransactionID(rawValue: "\(1000 + number)"))
      let (first, second) = (TransactionID("\(number)1"), TransactionID("\(number)2"))
      let order = try await orders.openOrder(
        accountID: account, productID: "monthly", at: day(0))
      try await submit(
        [
          charge(
            first, on: 0.1, line: line, lineItem: WebOrderLineItemID(rawValue: "w\(number)"),
            token: order.appAccountToken), status(true, on: 0.1, line: line),
        ], claiming: [key(first, line: line)], by: account, on: 0.2, order: order.order.id,
        terms: .shop)
      _ = try await polls.record(
        [charge(second, on: 30.1, line: line), status(false, on: 31, line: line)],
        polledAs: "poll", at: day(31), terms: .shop)
      _ = try await acknowledgeDelivery(of: key(first, line: line), by: account, on: 1)
      _ = try await grants.grant(
        "pro", to: account, until: number == 0 ? nil : day(90), by: support, terms: .shop,
        at: day(2))
    }
    // An alias on another original transaction, which is linked, and a refund.
    try await submit(
      [charge("91", on: 0.1, line: OriginalTransactionKey(.production, "9000"), lineItem: "w0")],
      claiming: [], by: "anna", on: 32, terms: .shop)
    try await submit(
      [
        charge(
          "11", on: 0.1, line: OriginalTransactionKey(.production, "1001"), asOf: 33, revokedOn: 33)
      ], claiming: [], by: "ben", on: 33, terms: .shop)
    _ = try await accounts.findOrCreateAccount("member", at: day(34))
    _ = try await accounts.merge("guest", into: "member", by: support, terms: .shop, at: day(34))
    _ = try await orders.openOrder(accountID: "member", productID: "coins", at: day(35))
  }
}
