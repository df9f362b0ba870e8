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
    let lookup = TransactionLookup(
      evidence.compactMap(\.transaction).map { ($0.key, $0.webOrderLineItemID) })
    let (first, (links, last)) = try await read(
      wanted, before: before, after: Query(lookup.query, after),
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
      // With locks one by one, so that on a Citus each statement asks one shard.
      Query.all(
        (isLocking ? wanted.map { [$0] } : [wanted]).map {
          OriginalTransactionRows.query($0, areLocked: isLocking)
        }),
      after)
    for line in found.joined() { lines[line.id] = line }
    return (first, last)
  }
}

extension Transaction {
  /// Reads original transactions with all that are linked; unknown ones are left out.
  func originals(_ wanted: some Sequence<OriginalTransactionKey>, locking: Bool) async throws
    -> [StoredOriginalTransaction]
  {
    var reader = OriginalTransactionReader(isLocking: locking)
    try await reader.read(Set(wanted), in: self)
    return reader.originals
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

  /// An identifier by which another original transaction may know a charge.
  private struct Name: Hashable {
    var text: ExactText
    var isLineItem: Bool
    var environment: Environment
  }

  private typealias Occurrence = (name: Name, line: OriginalTransactionKey)

  // Everyone inserts in the same order, to avoid deadlocks; the first of equal names stays first.
  private let occurrences: [Occurrence]

  init(_ transactions: [(key: TransactionKey, lineItem: WebOrderLineItemID?)]) {
    occurrences = transactions.flatMap { key, lineItem in
      [(key.transactionID.rawValue, false), (lineItem?.rawValue, true)].compactMap {
        text, isLineItem -> Occurrence? in
        text.map {
          let name = Name(
            text: ExactText($0), isLineItem: isLineItem, environment: key.line.environment)
          return (name, key.line)
        }
      }
    }.sorted {
      ($0.name.text, $0.name.isLineItem ? 1 : 0) < ($1.name.text, $1.name.isLineItem ? 1 : 0)
    }
  }

  // MARK: Statements

  var inserts: [SQL] {
    occurrences.map { name, line in
      """
      (\(name.text.rawValue), \(name.isLineItem), \(name.environment),
        \(line.originalTransactionID))
      """
    }.rowLists.map { rows in
      """
      INSERT INTO tenure.charge_lookup (name, is_line_item, environment, original_transaction_id)
      VALUES \(rows)
      ON CONFLICT (name, is_line_item, environment) DO NOTHING
      """
    }
  }

  /// Makes the names known, looks them up, and pairs every original transaction with the others on
  /// which the same charge is known.
  var query: Query<[Link]> {
    // On a Citus, a look-up of none would ask all shards.
    guard !occurrences.isEmpty else { return Query([]).map { [] } }
    return Query(
      Query(inserts),
      Query(
        """
        SELECT name, is_line_item, environment, original_transaction_id FROM tenure.charge_lookup
        WHERE name \(anyOf: occurrences.map(\.name.text.rawValue))
        """
      ) {
        try $0.decode(String.self, Bool.self, Environment.self, OriginalTransactionID.self).map {
          let name = Name(text: ExactText($0), isLineItem: $1, environment: $2)
          return (name: name, line: OriginalTransactionKey($2, $3))
        }
      }
    ).map { _, known in links(known: known) }
  }

  private func links(known: [Occurrence]) -> [Link] {
    // Evidence may itself contain one transaction under two original transaction ids.
    let lines = Dictionary(grouping: known + occurrences, by: \.name)
    let pairs = Set(
      occurrences.flatMap { name, line in
        (lines[name] ?? []).map(\.line).filter { $0 != line }.map { [$0, line].sorted() }
      })
    return pairs.map { Link(line: $0[1], previous: $0[0]) }.sorted { $0.line < $1.line }
  }
}
