import Postgres
import Subscriptions

/// Reads lines with everything that Apple links to them.
struct FamilyReader {
  /// Whether the lines stay locked until the transaction ends; missing ones are then created.
  let isLocking: Bool
  private var lines: [LineID: StoredLine] = [:]
  /// Links that were discovered but are not recorded.
  private var discovered: [(LineID, LineID)] = []

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
    for case .link(_, let previous) in evidence { wanted.insert(previous) }
    let lookups = LineLookups(evidence)
    let results = try await read(wanted, with: lookups.statements, in: transaction)
    let links = try lookups.links(from: results)
    discovered = links.map { ($0.line, $0.previous) }
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
      + discovered.compactMap { $0.0 == line ? $0.1 : $0.1 == line ? $0.0 : nil }
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
