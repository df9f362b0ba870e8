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
