import Postgres
import Subscriptions

/// Reads lines with everything that Apple links to them.
struct FamilyReader {
  /// Whether the lines stay locked until the transaction ends; missing ones are then created.
  let isLocking: Bool
  private var lines: [LineID: StoredLine] = [:]
  /// Links that are said or discovered, and not recorded yet.
  private var news: [(LineID, LineID)] = []

  init(isLocking: Bool) {
    self.isLocking = isLocking
  }

  /// What came of reading lines, and of the statements that went with it.
  struct Reading {
    /// Links that the evidence shows without saying so: a transaction or line item that is known
    /// under another original transaction id is the same charge.
    var links: [Evidence]
    var before: [Rows]
    var after: [Rows]
  }

  /// Reads the lines that evidence is about, and looks for transactions that are known on others.
  ///
  /// - Parameters:
  ///   - evidence: What is to be recorded.
  ///   - before: Statements to send in front, in the same round trip.
  ///   - after: And behind.
  ///   - transaction: The database transaction.
  /// - Returns: The links that were found, and the statements' results.
  /// - Throws: What the database says.
  mutating func read(
    about evidence: [Evidence], before: [SQL] = [], after: [SQL] = [], in transaction: Transaction
  ) async throws -> Reading {
    var wanted = Set(evidence.map(\.line))
    for case .link(let line, let previous) in evidence {
      wanted.insert(previous)
      news.append((line, previous))
    }
    let lookups = LineLookups(evidence)
    let names = lookups.statements
    let (first, rest) = try await read(
      wanted, before: before, after: names + after, in: transaction)
    let links = try lookups.links(from: rest.prefix(names.count))
    news += links.map { ($0.line, $0.previous) }
    try await readLinked(in: transaction)
    return Reading(
      links: links.map { .link(line: $0.line, previous: $0.previous) }, before: Array(first),
      after: Array(rest.dropFirst(names.count)))
  }

  /// Reads lines and all that are linked with them; those that don't exist are left out.
  mutating func read(_ wanted: Set<LineID>, in transaction: Transaction) async throws {
    _ = try await read(wanted, before: [], after: [], in: transaction)
    try await readLinked(in: transaction)
  }

  /// The lines, each with those that it is linked with.
  var families: [StoredFamily] {
    var families: [StoredFamily] = []
    var remaining = Set(lines.keys)
    for id in lines.keys.sorted() where remaining.contains(id) {
      var (family, open): (Set<LineID>, [LineID]) = ([id], [id])
      while let next = open.popLast() {
        for other in linked(to: next) where lines[other] != nil && family.insert(other).inserted {
          open.append(other)
        }
      }
      remaining.subtract(family)
      families.append(StoredFamily(family.sorted().compactMap { lines[$0] }))
    }
    return families
  }

  private func linked(to line: LineID) -> [LineID] {
    (lines[line]?.linked ?? [])
      + news.compactMap { $0.0 == line ? $0.1 : $0.1 == line ? $0.0 : nil }
  }

  private mutating func readLinked(in transaction: Transaction) async throws {
    while true {
      let missing = Set(lines.keys.flatMap(linked)).subtracting(lines.keys)
      guard !missing.isEmpty else { return }
      let known = lines.count
      _ = try await read(missing, before: [], after: [], in: transaction)
      // A link to a line that was never created leads nowhere, when only reading.
      guard lines.count > known else { return }
    }
  }

  /// Reads lines in their order, in one round trip with other statements.
  private mutating func read(
    _ wanted: Set<LineID>, before: [SQL], after: [SQL], in transaction: Transaction
  ) async throws -> (before: ArraySlice<Rows>, after: ArraySlice<Rows>) {
    let wanted = wanted.sorted()
    let create = isLocking ? wanted.map(StoredLine.create) : []
    let select = wanted.flatMap { StoredLine.select($0, locking: isLocking) }
    let results = try await transaction.batch(before + create + select + after)
    for (index, id) in wanted.enumerated() {
      let start = before.count + create.count + index * StoredLine.statementCount
      lines[id] = try StoredLine(id, from: results[start..<start + StoredLine.statementCount])
    }
    return (results.prefix(before.count), results.suffix(after.count))
  }
}

/// On which line transactions and line items were recorded first.
///
/// Names are inserted before they are looked up, with the lines that are about to record them: who
/// inserts a name that somebody else is just recording waits for his commit, and then finds his
/// line. So two lines can't record the same charge without hearing of each other.
struct LineLookups {
  struct Link {
    var line: LineID
    var previous: LineID
  }

  /// What a charge can be known by on another line.
  private enum Name: Hashable {
    case transaction(Environment, TransactionID)
    case lineItem(Environment, WebOrderLineItemID)
  }

  private struct Occurrence {
    var names: [Name]
    var line: LineID

    init(_ key: TransactionKey, _ lineItem: WebOrderLineItemID?) {
      line = key.line
      names =
        [.transaction(line.environment, key.transactionID)]
        + (lineItem.map { [.lineItem(key.line.environment, $0)] } ?? [])
    }
  }

  private let occurrences: [Occurrence]
  private let transactions: [(id: TransactionID, line: LineID)]
  private let lineItems: [(id: WebOrderLineItemID, line: LineID)]

  /// Looks for what evidence tells of.
  init(_ evidence: [Evidence]) {
    let records = evidence.compactMap {
      if case .transaction(let record) = $0 { record } else { nil }
    }
    self.init(records.map { ($0.key, $0.webOrderLineItemID) })
  }

  /// Looks for transactions as they are recorded, in their order.
  init(_ transactions: [StoreTransaction]) {
    self.init(transactions.map { ($0.key, $0.webOrderLineItemID) })
  }

  private init(_ items: [(key: TransactionKey, lineItem: WebOrderLineItemID?)]) {
    occurrences = items.map(Occurrence.init)
    // Everybody inserts in the same order, so that nobody waits in a circle; of one name the first
    // stays the first.
    transactions = items.map { ($0.key.transactionID, $0.key.line) }.sorted { $0.0 < $1.0 }
    lineItems = items.compactMap { item in item.lineItem.map { ($0, item.key.line) } }
      .sorted { $0.0 < $1.0 }
  }

  // MARK: Statements

  /// Makes the names known, unless they are.
  var inserts: [SQL] {
    Self.insert(transactions, "transaction_line", "transaction_id")
      + Self.insert(lineItems, "web_order_line_item", "web_order_line_item_id")
  }

  /// Makes the names known and looks them up; ``links(from:)`` reads the results.
  var statements: [SQL] {
    inserts + [
      """
      SELECT transaction_id, environment, original_transaction_id FROM tenure.transaction_line
      WHERE transaction_id = ANY(\(transactions.map(\.id)))
      """,
      """
      SELECT web_order_line_item_id, environment, original_transaction_id
      FROM tenure.web_order_line_item WHERE web_order_line_item_id = ANY(\(lineItems.map(\.id)))
      """,
    ]
  }

  private static func insert<ID: PostgresEncodable>(
    _ items: [(id: ID, line: LineID)], _ table: String, _ column: String
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

  // MARK: Results

  /// Reads the results, and pairs every line with the others on which the same charge is known.
  func links(from results: ArraySlice<Rows>) throws -> [Link] {
    let results = Array(results.suffix(2))
    var lines: [Name: Set<LineID>] = [:]
    for (id, environment, original) in try results[0].decode(
      TransactionID.self, Environment.self, OriginalTransactionID.self)
    {
      lines[.transaction(environment, id), default: []].insert(LineID(environment, original))
    }
    for (id, environment, original) in try results[1].decode(
      WebOrderLineItemID.self, Environment.self, OriginalTransactionID.self)
    {
      lines[.lineItem(environment, id), default: []].insert(LineID(environment, original))
    }
    // Within one arrival, too, one transaction may stand under two original ids.
    for occurrence in occurrences {
      for name in occurrence.names { lines[name, default: []].insert(occurrence.line) }
    }
    let pairs = Set(
      occurrences.flatMap { occurrence in
        occurrence.names.flatMap { lines[$0] ?? [] }.filter { $0 != occurrence.line }
          .map { [$0, occurrence.line].sorted() }
      })
    return pairs.map { Link(line: $0[1], previous: $0[0]) }.sorted { $0.line < $1.line }
  }
}
