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

  /// Reads the lines that evidence is about, and looks for transactions that are known on others.
  ///
  /// - Parameters:
  ///   - evidence: What is to be recorded.
  ///   - transaction: The database transaction.
  /// - Returns: Links that the evidence shows without saying so: a transaction or line item that is
  ///   known under another original transaction id is the same charge.
  /// - Throws: What the database says.
  mutating func read(about evidence: [Evidence], in transaction: Transaction) async throws
    -> [Evidence]
  {
    var wanted = Set(evidence.map(\.line))
    for case .link(let line, let previous) in evidence {
      wanted.insert(previous)
      news.append((line, previous))
    }
    let lookups = Lookups(evidence)
    let results = try await read(wanted, with: lookups.statements, in: transaction)
    let links = try lookups.links(from: results)
    news += links.map { ($0.line, $0.previous) }
    try await readLinked(in: transaction)
    return links.map { .link(line: $0.line, previous: $0.previous) }
  }

  /// Reads lines and all that are linked with them; those that don't exist are left out.
  mutating func read(_ wanted: Set<LineID>, in transaction: Transaction) async throws {
    _ = try await read(wanted, with: [], in: transaction)
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
      _ = try await read(missing, with: [], in: transaction)
      // A link to a line that was never created leads nowhere, when only reading.
      guard lines.count > known else { return }
    }
  }

  /// Reads lines in their order, in one round trip with other statements.
  private mutating func read(
    _ wanted: Set<LineID>, with others: [SQL], in transaction: Transaction
  ) async throws -> ArraySlice<Rows> {
    let wanted = wanted.sorted()
    let create = isLocking ? wanted.map(StoredLine.create) : []
    let select = wanted.flatMap { StoredLine.select($0, locking: isLocking) }
    let results = try await transaction.batch(create + select + others)
    for (index, id) in wanted.enumerated() {
      let start = create.count + index * StoredLine.statementCount
      lines[id] = try StoredLine(id, from: results[start..<start + StoredLine.statementCount])
    }
    return results[(create.count + select.count)...]
  }
}

/// Where else the transactions and line items of evidence occur.
private struct Lookups {
  struct Link {
    var line: LineID
    var previous: LineID
  }

  private var records: [TransactionRecord]

  init(_ evidence: [Evidence]) {
    records = evidence.compactMap {
      if case .transaction(let record) = $0 { record } else { nil }
    }
  }

  var statements: [SQL] {
    let transactions = Set(records.map(\.key.transactionID)).sorted()
    let lineItems = Set(records.compactMap(\.webOrderLineItemID)).sorted()
    return [
      """
      SELECT transaction_id, environment, original_transaction_id FROM tenure.transaction_line
      WHERE transaction_id = ANY(\(transactions))
      """,
      """
      SELECT web_order_line_item_id, environment, original_transaction_id
      FROM tenure.web_order_line_item WHERE web_order_line_item_id = ANY(\(lineItems))
      """,
    ]
  }

  /// Reads the results, and pairs every line with the others on which the same charge is known.
  func links(from results: ArraySlice<Rows>) throws -> [Link] {
    let results = Array(results)
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
    for record in records {
      for name in names(of: record) { lines[name, default: []].insert(record.key.line) }
    }
    let pairs = Set(
      records.flatMap { record in
        names(of: record).flatMap { lines[$0] ?? [] }.filter { $0 != record.key.line }
          .map { [$0, record.key.line].sorted() }
      })
    return pairs.map { Link(line: $0[1], previous: $0[0]) }.sorted { $0.line < $1.line }
  }

  /// What a charge can be known by on another line.
  private enum Name: Hashable {
    case transaction(Environment, TransactionID)
    case lineItem(Environment, WebOrderLineItemID)
  }

  private func names(of record: TransactionRecord) -> [Name] {
    let environment = record.key.line.environment
    return [.transaction(environment, record.key.transactionID)]
      + (record.webOrderLineItemID.map { [.lineItem(environment, $0)] } ?? [])
  }
}
