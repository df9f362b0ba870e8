import Postgres
import Subscriptions

extension Ledger {
  /// How many rows are looked at in one read.
  private static let strayPage = 1000

  /// Looks for rows that no entry gives, in the tables that are read by something else than the
  /// line.
  ///
  /// Goes after the lines themselves: what a line's own tables say of it is believed here.
  ///
  /// - Returns: How many rows `holding` has, and the rows that should not be there.
  /// - Throws: What the database says.
  func strayRows() async throws -> (holdings: Int, strays: [LookupRow]) {
    var holdings = 0
    var strays: [LookupRow] = []
    for table in LookupRow.Table.allCases {
      var last: LookupRow?
      while true {
        let after = last
        let (page, suspects) = try await database.withTransaction(
          isolation: .repeatableRead, readOnly: true
        ) { transaction in
          let page = try await LookupRow.decode(
            transaction.query(
              LookupRow.page(of: table, after: after, limit: Self.strayPage),
              deadline: Self.auditDeadline), table: table)
          let given = try await givenRows(of: Set(page.map(\.line)), in: transaction)
          return (page, page.filter { !given.contains($0) })
        }
        guard !page.isEmpty else { break }
        last = page.last
        if table == .holding { holdings += page.count }
        for (line, rows) in Dictionary(grouping: suspects, by: \.line) {
          strays += try await database.withTransaction { transaction in
            try await self.strays(among: rows, of: line, in: transaction)
          }
        }
      }
    }
    return (holdings, strays)
  }

  /// The rows that the tables of some lines account for at first sight.
  private func givenRows(of lines: Set<LineID>, in transaction: Transaction) async throws
    -> Set<LookupRow>
  {
    let ids = Set(lines.map(\.originalTransactionID)).sorted()
    let results = try await transaction.batch(
      [
        """
        SELECT environment, original_transaction_id, transaction_id, product_id,
          web_order_line_item_id, owner_account_key
        FROM tenure.store_transaction
        WHERE environment IN ('production', 'sandbox') AND original_transaction_id = ANY(\(ids))
        """
      ]
        + ["claim", "placement"].map { table in
          """
          SELECT environment, original_transaction_id, account_key
          FROM tenure.\(unescaped: table)
          WHERE environment IN ('production', 'sandbox') AND original_transaction_id = ANY(\(ids))
            AND account_key IS NOT NULL
          """
        }, deadline: Self.auditDeadline)
    var rows: Set<LookupRow> = []
    var owners: [(owner: AccountKey, charge: TransactionKey)] = []
    for (environment, original, transaction, product, item, owner) in try results[0].decode(
      Environment.self, OriginalTransactionID.self, TransactionID.self, ProductID.self,
      WebOrderLineItemID?.self, AccountKey?.self)
    {
      let line = LineID(environment, original)
      rows.insert(LookupRow(.transactionLine, transaction.rawValue, line))
      if let item { rows.insert(LookupRow(.webOrderLineItem, item.rawValue, line)) }
      guard let owner else { continue }
      rows.insert(LookupRow(account: owner, line: line))
      owners.append(
        (owner, TransactionKey(line: line, transactionID: transaction, productID: product)))
    }
    for acts in results.dropFirst() {
      for (environment, original, account) in try acts.decode(
        Environment.self, OriginalTransactionID.self, AccountKey.self)
      {
        rows.insert(LookupRow(account: account, line: LineID(environment, original)))
      }
    }
    let names = try await names(of: Set(owners.map(\.owner)), in: transaction)
    for (owner, charge) in owners {
      if let name = names[owner] { rows.insert(LookupRow(holder: name, charge: charge)) }
    }
    return rows
  }

  /// Looks at suspicious rows again, under their line's lock.
  private func strays(
    among suspects: [LookupRow], of line: LineID, in transaction: Transaction
  ) async throws -> [LookupRow] {
    let exists = try await transaction.query(
      """
      SELECT 1 FROM tenure.original_transaction
      WHERE environment = \(line.environment)
        AND original_transaction_id = \(line.originalTransactionID)
      """)
    // Locking would create the line.
    let family =
      exists.isEmpty
      ? nil : try await audited(line, catalogue: nil, locking: true, in: transaction)
    let strays = suspects.filter { family?.accounts(for: $0) != true }
    guard !strays.isEmpty else { return [] }
    let found = try await transaction.batch(strays.map(\.select))
    return zip(strays, found).filter { !$1.isEmpty }.map(\.0)
  }
}
