import Foundation
import JSONText
import Postgres
import Subscriptions

extension LedgerAuditor {
  private static let orphanPage = 1000

  /// Counts the holdings, and finds look-up rows that no entry gives.
  ///
  /// Runs after the audit of original transactions, whose own tables are trusted here.
  func orphanRows() async throws -> (holdings: Int, orphans: [LookupRow]) {
    var holdings = 0
    var orphans: [LookupRow] = []
    for table in LookupRow.Table.allCases {
      var last: LookupRow?
      while true {
        let after = last
        let (page, suspects) = try await withSnapshot { transaction in
          let page = try await LookupRow.decode(
            transaction.query(
              LookupRow.page(of: table, after: after, limit: Self.orphanPage),
              deadline: Self.auditDeadline), table: table)
          let given = try await givenRows(of: Set(page.map(\.line)), in: transaction)
          return (page, page.filter { !given.contains($0) })
        }
        guard !page.isEmpty else { break }
        last = page.last
        if table == .holding { holdings += page.count }
        for (line, rows) in Dictionary(grouping: suspects, by: \.line) {
          do {
            orphans += try await withLocks { transaction in
              try await self.orphans(among: rows, of: line, in: transaction)
            }
          } catch  where Self.isUnreadable(error) {
            // The audit of the original transaction reports it.
          }
        }
      }
    }
    return (holdings, orphans)
  }

  /// Finds rows of original transactions, accounts and products that there are not.
  func findUnrootedRows(_ audit: inout LedgerAudit) async throws {
    let tables = [
      "ledger_entry", "store_transaction", "renewal_status", "ownership_action",
    ]
    let found = try await runner.batch(
      tables.map { table in
        """
        SELECT DISTINCT t.environment, t.original_transaction_id FROM tenure.\(unescaped: table) AS t
        LEFT JOIN tenure.original_transaction AS o ON o.environment = t.environment
          AND o.original_transaction_id = t.original_transaction_id
        WHERE o.environment IS NULL
        """
      } + [
        """
        SELECT DISTINCT e.account_key FROM tenure.account_entry AS e
        LEFT JOIN tenure.account_chain AS c ON c.account_key = e.account_key
        WHERE c.account_key IS NULL
        """,
        """
        SELECT e.product_id FROM tenure.product_entitlement AS e
        LEFT JOIN tenure.product AS p ON p.product_id = e.product_id AND p.valid_from = e.valid_from
        WHERE p.product_id IS NULL
        """,
      ], deadline: Self.auditDeadline)
    for (table, rows) in zip(tables, found) {
      for line in try rows.decode(OriginalTransactionKey.self) {
        audit.report(
          .head, line, "\(table) has a row of an original transaction that was never recorded")
      }
    }
    for key in try found[tables.count].decode(AccountKey.self) {
      audit.report(
        .head, nil, account: key, "account_entry has a row of an account without account_chain")
    }
    for id in try found[tables.count + 1].decode(ProductID.self) {
      audit.report(
        .account, nil, account: AccountChain.common,
        "product_entitlement has a row of \(id) that is of no version")
    }
  }

  /// The rows explained by their original transactions, read without locks.
  private func givenRows(
    of lines: Set<OriginalTransactionKey>, in transaction: Transaction
  ) async throws -> Set<LookupRow> {
    let ids = Set(lines.map(\.originalTransactionID)).sorted()
    let results = try await transaction.batch(
      [
        """
        SELECT environment, original_transaction_id, transaction_id, product_id,
          web_order_line_item_id, owner_account_key
        FROM tenure.store_transaction
        WHERE environment IN ('production', 'sandbox') AND original_transaction_id = ANY(\(ids))
        """,
        """
        SELECT environment, original_transaction_id, account_key FROM tenure.ownership_action
        WHERE environment IN ('production', 'sandbox') AND original_transaction_id = ANY(\(ids))
          AND account_key IS NOT NULL
        """,
      ], deadline: Self.auditDeadline)
    var rows: Set<LookupRow> = []
    var owners: [(owner: AccountKey, charge: TransactionKey)] = []
    for (charge, item, owner) in try results[0].decode(
      TransactionKey.self, WebOrderLineItemID?.self, AccountKey?.self)
    {
      let line = charge.line
      rows.insert(LookupRow(.transactionLookup, charge.transactionID.rawValue, line))
      if let item { rows.insert(LookupRow(.webOrderLineItem, item.rawValue, line)) }
      guard let owner else { continue }
      rows.insert(LookupRow(account: owner, line: line))
      owners.append((owner, charge))
    }
    for (line, account) in try results[1].decode(OriginalTransactionKey.self, AccountKey.self) {
      rows.insert(LookupRow(account: account, line: line))
    }
    let names = try await ownership.names(of: Set(owners.map(\.owner)), in: transaction)
    for (owner, charge) in owners {
      if let name = names[owner] { rows.insert(LookupRow(holder: name, charge: charge)) }
    }
    return rows
  }

  private func orphans(
    among suspects: [LookupRow], of line: OriginalTransactionKey, in transaction: Transaction
  ) async throws -> [LookupRow] {
    let exists = try await transaction.query(
      "SELECT 1 FROM tenure.original_transaction WHERE \(line.condition)")
    // Locking would create a missing original transaction.
    let original =
      exists.isEmpty
      ? nil : try await audited([line], catalogue: nil, locking: true, in: transaction).first
    let orphans = suspects.filter { original?.accounts(for: $0) != true }
    guard !orphans.isEmpty else { return [] }
    let found = try await transaction.batch(orphans.map(\.select))
    return zip(orphans, found).filter { !$1.isEmpty }.map(\.0)
  }
}

/// A row of a table that is not read by original transaction, so that their audit does not find
/// invented ones.
struct LookupRow: Hashable, Sendable {
  enum Table: String, CaseIterable, Sendable {
    case holding
    case transactionLookup
    case webOrderLineItem
    case accountLookup

    /// The table, the condition that selects this kind of row, and the column of its key.
    fileprivate var rows: (name: String, condition: String, key: String, keyType: String) {
      switch self {
      case .holding: ("holding", "true", "account_id", "text")
      case .transactionLookup: ("charge_lookup", "NOT t.is_line_item", "name", "text")
      case .webOrderLineItem: ("charge_lookup", "t.is_line_item", "name", "text")
      case .accountLookup: ("account_original_transaction", "true", "account_key", "uuid")
      }
    }

    /// The columns of a unique order.
    fileprivate var columns: String {
      "t.\(rows.key), t.environment, t.original_transaction_id"
        + (self == .holding ? ", t.transaction_id, t.product_id" : "")
    }
  }

  var table: Table
  var key: ExactText
  var line: OriginalTransactionKey
  /// Where it is part of the key.
  var charge: TransactionKey?

  init(_ table: Table, _ key: String, _ line: OriginalTransactionKey) {
    self.table = table
    self.key = ExactText(key)
    self.line = line
  }

  init(account: AccountKey, line: OriginalTransactionKey) {
    self.init(.accountLookup, account.rawValue.text, line)
  }

  init(holder: String, charge: TransactionKey) {
    self.init(.holding, holder, charge.line)
    self.charge = charge
  }

  var name: [String] { [table.rawValue, key.rawValue] }

  static func precedes(_ lhs: LookupRow, _ rhs: LookupRow) -> Bool {
    (lhs.table.rawValue, lhs.line, lhs.key) < (rhs.table.rawValue, rhs.line, rhs.key)
  }

  /// Without the account: reports contain no names.
  var description: String {
    switch table {
    case .holding: "a holding of transaction \(charge?.transactionID.rawValue ?? "")"
    case .transactionLookup: "the look-up of transaction \(key)"
    case .webOrderLineItem: "the look-up of line item \(key)"
    case .accountLookup: "the look-up of an account"
    }
  }
}

extension LookupRow {
  /// Reads the rows after one, in a unique order; ``decode(_:table:)`` decodes them.
  static func page(of table: Table, after last: LookupRow?, limit: Int) -> SQL {
    select(
      table, where: last.map { "(\(unescaped: table.columns)) > (\($0.values))" as SQL } ?? "true",
      limit: limit)
  }

  var select: SQL { Self.select(table, where: isThis, limit: 1) }

  var delete: SQL {
    """
    DELETE FROM tenure.\(unescaped: table.rows.name) AS t
    WHERE \(unescaped: table.rows.condition) AND \(isThis)
    """
  }

  static func select(_ table: Table, of rows: some Collection<LookupRow>) -> SQL {
    let lines = Set(rows.map(\.line.originalTransactionID)).sorted()
    let keys = Set(rows.map(\.key)).sorted().map(\.rawValue)
    return select(
      table,
      where: """
        t.\(unescaped: table.rows.key) = ANY(\(keys)::\(unescaped: table.rows.keyType)[])
          AND t.original_transaction_id = ANY(\(lines))
        """,
      limit: nil)
  }

  private static func select(_ table: Table, where condition: SQL, limit: Int?) -> SQL {
    let charge = table == .holding ? "t.transaction_id, t.product_id" : "''::text, ''::text"
    return """
      SELECT t.\(unescaped: table.rows.key)::text, t.environment, t.original_transaction_id,
        \(unescaped: charge)
      FROM tenure.\(unescaped: table.rows.name) AS t
      WHERE \(unescaped: table.rows.condition) AND \(condition)
      ORDER BY \(unescaped: table.columns)
      LIMIT \(limit)
      """
  }

  static func decode(_ rows: Rows, table: Table) throws -> [LookupRow] {
    try rows.decode(String.self, TransactionKey.self).map { key, charge in
      table == .holding
        ? LookupRow(holder: key, charge: charge) : LookupRow(table, key, charge.line)
    }
  }

  private var isThis: SQL { "(\(unescaped: table.columns)) = (\(values))" }

  private var values: SQL {
    let (name, type) = (key.rawValue, table.rows.keyType)
    var values: SQL =
      "\(name)::\(unescaped: type), \(line.environment), \(line.originalTransactionID)"
    if let charge { values.append(", \(charge.transactionID), \(charge.productID)") }
    return values
  }
}
