import Postgres
import Subscriptions

/// The statements that write a family's projections again from its entries.
///
/// What is no projection stays: the heads of the chains, and the orders and deliveries of charges.
struct FamilyRebuild {
  private let stored: StoredFamily
  private let folded: Line
  private let entries: [StoredEntry]

  /// - Parameters:
  ///   - stored: The family as its tables have it.
  ///   - folded: What its entries, folded again, give.
  ///   - entries: The entries of all its lines.
  init(_ stored: StoredFamily, folded: Line, entries: [StoredEntry]) {
    self.stored = stored
    self.folded = folded
    self.entries = entries
  }

  /// - Parameter names: The account ids behind the keys of all accounts that occur.
  /// - Throws: ``LedgerError/unreadableEntry(line:number:)``.
  /// - Returns: The statements, in order.
  func statements(names: [AccountKey: String]) throws -> [SQL] {
    let nothing = StoredFamily(
      stored.members.values.map { member in
        var empty = member
        empty.confirmation = nil
        empty.transactions = []
        empty.statuses = []
        empty.acts = []
        return empty
      })
    let writes = FamilyWrites(
      stored: nothing, line: folded, rule: OwnershipRule(recordedOn: folded),
      entries: try entries.map { SourcedEntry(entry: try $0.entry(), source: $0.source) },
      names: names)
    return stored.members.keys.sorted().flatMap { Self.clear($0, names: names) }
      + stored.rows.keys.filter { folded.history[$0] == nil }.sorted().map(Self.delete)
      + LineLookups(folded.history.transactions).inserts
      + writes.projections(heads: stored.members.mapValues(\.head))
  }

  /// Empties what ``FamilyWrites`` writes only by addition.
  ///
  /// Transactions are left: their rows carry
  /// orders and deliveries, and are written over.
  private static func clear(_ line: LineID, names: [AccountKey: String]) -> [SQL] {
    let (environment, id) = (line.environment, line.originalTransactionID)
    let tables = ["renewal_status", "claim", "placement", "line_link", "account_binding"]
    return tables.map { table in
      """
      DELETE FROM tenure.\(unescaped: table)
      WHERE environment = \(environment) AND original_transaction_id = \(id)
      """
    }
      + names.values.sorted().map { name in
        HoldingRow.deleteAll(name: name, line: line)
      }
  }

  private static func delete(_ key: TransactionKey) -> SQL {
    """
    DELETE FROM tenure.store_transaction
    WHERE environment = \(key.line.environment)
      AND original_transaction_id = \(key.line.originalTransactionID)
      AND transaction_id = \(key.transactionID) AND product_id = \(key.productID)
    """
  }
}
