import Postgres
import Subscriptions

/// Reads original transactions with everything that Apple links to them.
struct OriginalTransactionReader {
  /// Whether they stay locked until the transaction ends; missing ones are then created.
  let isLocking: Bool
  private var lines: [OriginalTransactionKey: OriginalTransactionRows] = [:]
  /// Links that are named or discovered, and not recorded yet.
  private var newLinks: [TransactionLookup.Link] = []

  init(isLocking: Bool) {
    self.isLocking = isLocking
  }

  /// Reads the original transactions that evidence is about, in one round trip with other queries.
  ///
  /// - Returns: The links that the evidence shows without naming them (a transaction or line item
  ///   that is known under another original transaction id is the same charge), and the results of
  ///   the queries.
  mutating func read<Before, After>(
    about evidence: [Evidence], before: Query<Before>, after: Query<After>,
    in transaction: Transaction
  ) async throws -> (links: [Evidence], before: Before, after: After) {
    var wanted = Set(evidence.map(\.line))
    for case .link(let line, let previous) in evidence {
      wanted.insert(previous)
      newLinks.append(TransactionLookup.Link(line: line, previous: previous))
    }
    let (first, (links, last)) = try await read(
      wanted, before: before, after: Query(TransactionLookup(evidence).query, after),
      in: transaction)
    newLinks += links
    try await readLinked(in: transaction)
    return (links.map { .link(line: $0.line, previous: $0.previous) }, first, last)
  }

  /// Reads original transactions with all that are linked; unknown ones are left out.
  mutating func read(_ wanted: Set<OriginalTransactionKey>, in transaction: Transaction)
    async throws
  {
    _ = try await read(wanted, before: Query([]), after: Query([]), in: transaction)
    try await readLinked(in: transaction)
  }

  var originals: [StoredOriginalTransaction] {
    var originals: [StoredOriginalTransaction] = []
    var remaining = Set(lines.keys)
    for id in lines.keys.sorted() where remaining.contains(id) {
      var (original, open): (Set<OriginalTransactionKey>, [OriginalTransactionKey]) = ([id], [id])
      while let next = open.popLast() {
        for other in linked(to: next) where lines[other] != nil && original.insert(other).inserted {
          open.append(other)
        }
      }
      remaining.subtract(original)
      originals.append(StoredOriginalTransaction(original.sorted().compactMap { lines[$0] }))
    }
    return originals
  }

  private func linked(to line: OriginalTransactionKey) -> [OriginalTransactionKey] {
    (lines[line]?.linked ?? [])
      + newLinks.compactMap { link in
        link.line == line ? link.previous : link.previous == line ? link.line : nil
      }
  }

  private mutating func readLinked(in transaction: Transaction) async throws {
    while true {
      let missing = Set(lines.keys.flatMap(linked)).subtracting(lines.keys)
      guard !missing.isEmpty else { return }
      let known = lines.count
      _ = try await read(missing, before: Query([]), after: Query([]), in: transaction)
      // Without locks, links to unknown original transactions are ignored.
      guard lines.count > known else { return }
    }
  }

  /// Reads original transactions in their order, so that two recordings never wait for each other.
  private mutating func read<Before, After>(
    _ wanted: Set<OriginalTransactionKey>, before: Query<Before>, after: Query<After>,
    in transaction: Transaction
  ) async throws -> (before: Before, after: After) {
    let wanted = wanted.sorted()
    let (first, _, found, last) = try await transaction.read(
      before, Query(isLocking ? wanted.map(OriginalTransactionRows.lock) : []),
      Query.all(wanted.map(OriginalTransactionRows.query)), after)
    for (id, line) in zip(wanted, found) { lines[id] = line }
    return (first, last)
  }
}

/// The original transactions on which transactions and line items were recorded first.
///
/// Names are inserted before they are looked up, together with the original transactions that are
/// about to record them: inserting a name that another transaction has just inserted waits for its
/// commit, and then finds it. So two original transactions can't record the same charge without a
/// link.
struct TransactionLookup {
  struct Link {
    var line: OriginalTransactionKey
    var previous: OriginalTransactionKey
  }

  /// The identifiers by which another original transaction may know a charge.
  private enum Name: Hashable {
    case transaction(Environment, TransactionID)
    case lineItem(Environment, WebOrderLineItemID)
  }

  private typealias Occurrence = (key: TransactionKey, lineItem: WebOrderLineItemID?)

  private let occurrences: [Occurrence]
  // Everyone inserts in the same order, to avoid deadlocks; the first of equal names stays first.
  private let transactions: [(id: TransactionID, line: OriginalTransactionKey)]
  private let lineItems: [(id: WebOrderLineItemID, line: OriginalTransactionKey)]

  init(_ evidence: [Evidence]) {
    self.init(
      evidence.compactMap { item in
        if case .transaction(let record) = item {
          (record.key, record.webOrderLineItemID)
        } else {
          nil
        }
      })
  }

  init(_ transactions: [StoreTransaction]) {
    self.init(transactions.map { ($0.key, $0.webOrderLineItemID) })
  }

  private init(_ occurrences: [Occurrence]) {
    self.occurrences = occurrences
    transactions = occurrences.map { ($0.key.transactionID, $0.key.line) }.sorted { $0.0 < $1.0 }
    lineItems = occurrences.compactMap { item in item.lineItem.map { ($0, item.key.line) } }
      .sorted { $0.0 < $1.0 }
  }

  // MARK: Statements

  var inserts: [SQL] {
    Self.insert(transactions, "transaction_lookup", "transaction_id")
      + Self.insert(lineItems, "web_order_line_item", "web_order_line_item_id")
  }

  /// Makes the names known, looks them up, and pairs every original transaction with the others on
  /// which the same charge is known.
  var query: Query<[Link]> {
    Query(
      Query(inserts),
      Self.known(transactions, "transaction_lookup", "transaction_id") { .transaction($0, $1) },
      Self.known(lineItems, "web_order_line_item", "web_order_line_item_id") { .lineItem($0, $1) }
    ).map { _, transactions, lineItems in links(known: transactions + lineItems) }
  }

  /// Looks names up; on a Citus, a look-up of none would ask all shards.
  private static func known<ID: PostgresEncodable & PostgresDecodable>(
    _ items: [(id: ID, line: OriginalTransactionKey)], _ table: String, _ column: String,
    as name: @escaping @Sendable (Environment, ID) -> Name
  ) -> Query<[(name: Name, line: OriginalTransactionKey)]> {
    guard !items.isEmpty else { return Query([]) { _ in [] } }
    return Query(
      """
      SELECT \(unescaped: column), environment, original_transaction_id
      FROM tenure.\(unescaped: table) WHERE \(unescaped: column) = ANY(\(items.map(\.id)))
      """
    ) {
      try $0.decode(ID.self, Environment.self, OriginalTransactionID.self).map {
        (name: name($1, $0), line: OriginalTransactionKey($1, $2))
      }
    }
  }

  private static func insert<ID: PostgresEncodable>(
    _ items: [(id: ID, line: OriginalTransactionKey)], _ table: String, _ column: String
  ) -> [SQL] {
    items.map { "(\($0.id), \($0.line.environment), \($0.line.originalTransactionID))" }.rowLists
      .map { rows in
        """
        INSERT INTO tenure.\(unescaped: table) (\(unescaped: column), environment,
          original_transaction_id)
        VALUES \(rows)
        ON CONFLICT (\(unescaped: column), environment) DO NOTHING
        """
      }
  }

  private static func names(of item: Occurrence) -> [Name] {
    let environment = item.key.line.environment
    return [.transaction(environment, item.key.transactionID)]
      + (item.lineItem.map { [.lineItem(environment, $0)] } ?? [])
  }

  private func links(known: [(name: Name, line: OriginalTransactionKey)]) -> [Link] {
    var lines: [Name: Set<OriginalTransactionKey>] = [:]
    for (name, line) in known { lines[name, default: []].insert(line) }
    // Evidence may itself contain one transaction under two original transaction ids.
    for item in occurrences {
      for name in Self.names(of: item) { lines[name, default: []].insert(item.key.line) }
    }
    let pairs = Set(
      occurrences.flatMap { item in
        Self.names(of: item).flatMap { lines[$0] ?? [] }.filter { $0 != item.key.line }
          .map { [$0, item.key.line].sorted() }
      })
    return pairs.map { Link(line: $0[1], previous: $0[0]) }.sorted { $0.line < $1.line }
  }
}
