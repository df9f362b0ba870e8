import Postgres
import Subscriptions

/// The statements that write a family's projections again from its entries.
///
/// What is no projection stays: the heads of the chains, and the orders and deliveries of charges.
struct FamilyRebuild {
  private let stored: StoredFamily
  private let folded: Line
  private let entries: [StoredEntry]
  private let movements: Set<MovementRow>
  private let catalogue: Catalogue

  /// - Parameters:
  ///   - stored: The family as its tables have it.
  ///   - folded: What its entries, folded again, give.
  ///   - entries: The entries of all its lines.
  ///   - movements: What the journal says of them now.
  ///   - catalogue: By what the journal is written.
  init(
    _ stored: StoredFamily, folded: Line, entries: [StoredEntry], movements: Set<MovementRow>,
    catalogue: Catalogue
  ) {
    self.stored = stored
    self.folded = folded
    self.entries = entries
    self.movements = movements
    self.catalogue = catalogue
  }

  /// The journal keeps what it said before, and when: only what is wrong now is closed.
  ///
  /// - Parameters:
  ///   - names: The account ids behind the keys of all accounts that occur.
  ///   - now: From when on the journal says what is right.
  /// - Throws: ``LedgerError/unreadableEntry(line:number:)``.
  /// - Returns: The statements, in order.
  func statements(names: [AccountKey: String], at now: Timestamp) throws -> [SQL] {
    let nothing = StoredFamily(
      stored.members.values.map { member in
        var empty = member
        empty.confirmation = nil
        empty.transactions = []
        empty.statuses = []
        empty.acts = []
        return empty
      })
    let rule = OwnershipRule(recordedOn: folded)
    let writes = FamilyWrites(
      stored: nothing, line: folded, rule: rule,
      entries: try entries.map { SourcedEntry(entry: try $0.entry(), source: $0.source) },
      names: names, catalogue: nil, over: stored)
    let rows = MovementRow.rows(of: folded, rule: rule, in: catalogue)
    return stored.members.keys.sorted().flatMap { Self.clear($0, names: names) }
      + stored.rows.keys.filter { folded.history[$0] == nil }.sorted().map(ChargeSums.deletion)
      + LineLookups(folded.history.transactions).inserts
      + writes.projections(heads: stored.members.mapValues(\.head))
      + MovementRow.write(from: movements, to: rows, at: now)
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

}
