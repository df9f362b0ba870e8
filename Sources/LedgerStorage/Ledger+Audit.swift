import Foundation
import Postgres
package import Subscriptions

extension Ledger {
  /// How many lines are looked at in one read: each is small, and the audit's memory stays bounded.
  private static let auditPage = 500
  /// Entries younger than this may belong to a transaction that is still to commit.
  private static let checkpointAge: Duration = .minutes(10)

  /// Proves the ledger, chain by chain, decision by decision and row by row.
  ///
  /// Recomputes every chain, replays every line's rule, folds every projection again and compares
  /// it, and looks at orders and checkpoints.
  ///
  /// Writers go on meanwhile: what differs at first is looked at again under the line's lock.
  ///
  /// - Parameters:
  ///   - now: The moment of the audit; a clean one leaves a checkpoint up to a while before.
  ///   - progress: Is told the number of lines done.
  /// - Returns: What was found.
  /// - Throws: What the database says.
  package func audit(
    at now: Timestamp, progress: @Sendable (Int) -> Void = { _ in }
  ) async throws -> LedgerAudit {
    var audit = LedgerAudit()
    var marks = try await checkpoints()
    audit.checkpoints = marks.count
    marks.append(Checkpoint(recordedBefore: now - Self.checkpointAge))
    var visited: Set<LineID> = []
    var last: LineID?
    while true {
      let page = try await linePage(after: last, limit: Self.auditPage)
      guard !page.isEmpty else { break }
      last = page.last
      for id in page where !visited.contains(id) {
        var found = try await auditedFamily(of: id, locking: false)
        if !found.audit.isClean { found = try await auditedFamily(of: id, locking: true) }
        // Only a family of several lines is met again.
        if found.members.count > 1 { visited.formUnion(found.members) }
        audit.add(found.audit)
        for entry in found.entries { marks.count(entry) }
      }
      progress(audit.lines)
    }
    try await auditOrders(into: &audit)
    for mark in marks.dropLast() {
      guard let recorded = mark.recorded, recorded != mark.counted else { continue }
      audit.report(
        .head, nil,
        "of the \(recorded.entries) entries recorded before \(mark.recordedBefore) some were "
          + "removed or changed: \(mark.counted.entries) are there")
    }
    if audit.isClean, let mark = marks.last { try await insert(mark, after: marks.dropLast().last) }
    return audit
  }

  /// Writes the projections of every line again from its entries.
  ///
  /// - Parameter progress: Is told the number of lines done.
  /// - Returns: How many lines there are, and how many were not as the entries have them.
  /// - Throws: What the database says.
  package func rebuild(
    progress: @Sendable (Int) -> Void = { _ in }
  ) async throws -> (lines: Int, rewritten: Int) {
    var (lines, rewritten) = (0, 0)
    var last: LineID?
    while true {
      let page = try await linePage(after: last, limit: Self.auditPage)
      guard !page.isEmpty else { return (lines, rewritten) }
      last = page.last
      for id in page {
        let wasRewritten = try await database.withTransaction { transaction in
          let found = try await audited(id, locking: true, in: transaction)
          guard found.needsRebuild, let family = found.family else { return false }
          let writes = try await FamilyRebuild(family, folded: found.folded, entries: found.entries)
            .statements(names: names(of: found.accounts, in: transaction))
          _ = try await transaction.batch(writes)
          return true
        }
        lines += 1
        rewritten += wasRewritten ? 1 : 0
      }
      progress(lines)
    }
  }

  // MARK: One family

  /// What is found out about one family.
  private struct AuditedFamily: Sendable {
    var audit = LedgerAudit()
    var members: Set<LineID> = []
    var family: StoredFamily?
    var entries: [StoredEntry] = []
    /// The line that the entries, folded again, give.
    var folded = Line(members: [])

    var accounts: Set<AccountKey> {
      var accounts = family?.accounts ?? []
      accounts.formUnion(folded.decisions.values.compactMap(\.decision.owner))
      return accounts
    }

    var needsRebuild: Bool { audit.differences.contains { $0.kind == .projection } }
  }

  private func auditedFamily(of id: LineID, locking: Bool) async throws -> AuditedFamily {
    try await database.withTransaction(
      isolation: locking ? .readCommitted : .repeatableRead, readOnly: !locking
    ) { transaction in
      try await audited(id, locking: locking, in: transaction)
    }
  }

  private func audited(_ id: LineID, locking: Bool, in transaction: Transaction) async throws
    -> AuditedFamily
  {
    var reader = FamilyReader(isLocking: locking)
    try await reader.read([id], in: transaction)
    var found = AuditedFamily()
    guard let family = reader.families.first else { return found }
    found.family = family
    found.members = Set(family.members.keys)
    found.audit.lines = family.members.count
    found.folded = Line(members: family.members.keys)

    var entries: [LedgerEntry] = []
    for member in family.members.values.sorted(by: { $0.id < $1.id }) {
      let stored = try await self.entries(of: member.id, in: transaction)
      found.entries += stored
      found.audit.checkChain(stored, of: member)
      for entry in stored {
        do {
          entries.append(try entry.entry())
        } catch {
          found.audit.report(.unreadable, member.id, "\(error)")
        }
      }
    }
    found.audit.entries = entries.count
    // Across the lines of a family the order is that of recording.
    entries.sort { ($0.recordedAt, $0.line, $0.number) < ($1.recordedAt, $1.line, $1.number) }
    for entry in entries { found.folded.fold(entry) }
    let context = try await context(
      of: family, claimant: nil, evidence: [], in: transaction)
    found.folded.updateContext {
      context.apply(to: &$0)
      $0.tokenHolders = family.line.history.tokenHolders
    }
    let replayed = OwnershipRule(found.folded.history)
    found.audit.charges = replayed.charges.count
    found.audit.checkDecisions(of: found.folded, replayed: replayed, line: id)
    let bindings = try await storedBindings(of: found.members, in: transaction)
    let holdings = try await storedHoldings(
      of: found.members, accounts: context.names, in: transaction)
    found.audit.holdings = holdings.count
    found.audit.checkProjections(
      stored: family, bindings: bindings, holdings: holdings, folded: found.folded,
      rule: OwnershipRule(recordedOn: found.folded), line: id)
    return found
  }

  private func storedBindings(of lines: Set<LineID>, in transaction: Transaction) async throws
    -> [LineID: [BindingRow]]
  {
    var bindings: [LineID: [BindingRow]] = [:]
    for line in lines {
      let rows = try await transaction.query(BindingRow.select(line))
      bindings[line] = try BindingRow.decode(rows, line: line)
    }
    return bindings
  }

  private func storedHoldings(
    of lines: Set<LineID>, accounts: [AccountKey: String], in transaction: Transaction
  ) async throws -> Set<HoldingRow> {
    let keys = Dictionary(accounts.map { ($1, $0) }) { first, _ in first }
    var holdings: Set<HoldingRow> = []
    for (name, key) in keys {
      let rows = try await transaction.query(HoldingReader.select([name]))
      for row in try rows.decodeHoldings() where lines.contains(row.holding.charge.line) {
        holdings.insert(HoldingRow(account: key, holding: row.holding))
      }
    }
    return holdings
  }

  private func linePage(after last: LineID?, limit: Int) async throws -> [LineID] {
    try await database.query(
      """
      SELECT environment, original_transaction_id FROM tenure.original_transaction
      WHERE (environment, original_transaction_id)
        > (\(last?.environment.rawValue ?? ""), \(last?.originalTransactionID.rawValue ?? ""))
      ORDER BY environment, original_transaction_id
      LIMIT \(limit)
      """
    ).decode(Environment.self, OriginalTransactionID.self).map { LineID($0, $1) }
  }

  // MARK: Orders

  private func auditOrders(into audit: inout LedgerAudit) async throws {
    let results = try await database.batch([
      "SELECT count(*) FROM tenure.purchase_order",
      """
      SELECT o.order_id FROM tenure.purchase_order AS o
      LEFT JOIN tenure.store_transaction AS t
        ON t.environment = o.environment
        AND t.original_transaction_id = o.original_transaction_id
        AND t.order_id = o.order_id
      WHERE o.status IN ('fulfilled', 'refunded')
      GROUP BY o.order_id HAVING count(t.order_id) <> 1
      LIMIT 1000
      """,
      """
      SELECT t.order_id FROM tenure.store_transaction AS t
      LEFT JOIN tenure.purchase_order AS o ON o.order_id = t.order_id
        AND o.status IN ('fulfilled', 'refunded')
      WHERE t.order_id IS NOT NULL
      GROUP BY t.order_id HAVING count(o.order_id) <> 1
      LIMIT 1000
      """,
    ])
    audit.orders = try results[0].decodeOnly(Int.self)
    for id in try results[1].decode(UUID.self) {
      audit.report(.order, nil, "order \(id) is not fulfilled by exactly one charge")
    }
    for id in try results[2].decode(UUID.self) {
      audit.report(.order, nil, "a charge fulfils order \(id), which does not say so")
    }
  }
}
