import Foundation
import Postgres
package import Subscriptions

/// Proves the ledger and rebuilds its projections.
package struct LedgerAuditor: LedgerStore {
  package let core: LedgerCore

  /// Original transactions read at once, so that memory stays bounded.
  private static let auditPage = 500
  /// Generous, for pages that the server has to read from disk.
  static let auditDeadline: Duration = .seconds(1800)

  /// Verifies the ledger entry by entry and row by row.
  ///
  /// Recomputes every chain, replays the rule, derives every projection again and compares it, and
  /// checks orders, provisional grants and checkpoints. Writers continue: differences are checked
  /// again under a lock.
  ///
  /// - Parameters:
  ///   - checkpointAge: A clean audit leaves a checkpoint of older entries, by the database's
  ///     clock: younger ones may belong to an open transaction.
  ///   - progress: Called with the number of original transactions done.
  package func audit(
    checkpointAge: Duration = .minutes(10), progress: @Sendable (Int) -> Void = { _ in }
  ) async throws -> LedgerAudit {
    var audit = LedgerAudit()
    let catalogue = try await maintenance.settledCatalogue()
    audit.isJournalPending = catalogue == nil
    var marks = try await checkpoints(age: checkpointAge)
    audit.checkpoints = marks.count - 1
    var visited: Set<OriginalTransactionKey> = []
    var last: OriginalTransactionKey?
    while true {
      let page = try await ownership.lines(
        after: last, limit: Self.auditPage, deadline: Self.auditDeadline)
      guard !page.isEmpty else { break }
      last = page.last
      for id in page where !visited.contains(id) {
        var found = try await auditedOriginal(of: id, catalogue: catalogue, locking: false)
        if found?.audit.isClean == false {
          // The catalogue may have changed since the audit began.
          let catalogue = try await maintenance.settledCatalogue()
          audit.isJournalPending = audit.isJournalPending || catalogue == nil
          found = try await auditedOriginal(of: id, catalogue: catalogue, locking: true)
        }
        guard let found else { continue }
        // Only linked original transactions are read twice.
        if found.members.count > 1 { visited.formUnion(found.members) }
        audit.add(found.audit)
      }
      audit.lines += page.count
      progress(audit.lines)
    }
    let (holdings, orphans) = try await orphanRows()
    audit.holdings = holdings
    for row in orphans {
      audit.report(.projection, row.line, "\(row.description) should not be there")
    }
    try await maintenance.checkMovements(&audit)
    let (orders, broken) = try await brokenOrders()
    audit.orders = orders
    for order in broken {
      audit.report(.order, order.charge?.line, "no charge says to have fulfilled order \(order.id)")
    }
    for line in try await submissions.orphanedProvisionalGrants() {
      audit.report(.grant, line, "a provisional grant outlives the decision on its submission")
    }
    audit.entries = try await count(&marks)
    for mark in marks.dropLast() {
      guard let recorded = mark.recorded, recorded != mark.counted else { continue }
      audit.report(
        .head, nil,
        "of the \(recorded.entries) entries stored before \(mark.storedBefore) some were "
          + "removed or changed: \(mark.counted.entries) are there")
    }
    if audit.isClean, let mark = marks.last { try await insert(mark, after: marks.dropLast().last) }
    return audit
  }

  /// Writes all projections again from the entries, and removes rows without entries.
  ///
  /// An original transaction whose entries are not intact is left alone.
  ///
  /// - Parameter progress: Called with the number of original transactions done.
  package func rebuild(
    progress: @Sendable (Int) -> Void = { _ in }
  ) async throws -> (lines: Int, rewritten: Int) {
    let catalogue = try await products.catalogue()
    let (lines, repaired) = try await rebuildOriginalTransactions(by: catalogue, progress: progress)
    var rewritten = repaired
    let orphans = try await orphanRows().orphans
    for row in orphans {
      rewritten.insert(row.line)
      _ = try await database.execute(row.delete)
    }
    // The removed rows no longer block others.
    if !orphans.isEmpty {
      rewritten.formUnion(try await rebuildOriginalTransactions(by: catalogue) { _ in }.rewritten)
    }
    rewritten.formUnion(try await maintenance.repairMovements())
    return (lines, rewritten.count)
  }

  private func rebuildOriginalTransactions(
    by catalogue: Catalogue, progress: @Sendable (Int) -> Void
  ) async throws -> (lines: Int, rewritten: Set<OriginalTransactionKey>) {
    var lines = 0
    var rewritten: Set<OriginalTransactionKey> = []
    var last: OriginalTransactionKey?
    while true {
      let page = try await ownership.lines(
        after: last, limit: Self.auditPage, deadline: Self.auditDeadline)
      guard !page.isEmpty else { return (lines, rewritten) }
      last = page.last
      for id in page {
        let wasRewritten = try await database.withTransaction { transaction in
          try await rebuild(id, by: catalogue, in: transaction)
        }
        if wasRewritten { rewritten.insert(id) }
      }
      lines += page.count
      progress(lines)
    }
  }

  private func rebuild(
    _ id: OriginalTransactionKey, by catalogue: Catalogue, in transaction: Transaction
  ) async throws -> Bool {
    var wasRewritten = false
    while let found = try await audited(id, catalogue: catalogue, locking: true, in: transaction),
      found.isRepairable
    {
      wasRewritten = true
      let repairs = found.linkRepairs
      guard repairs.isEmpty else {
        // Linked original transactions must be read and locked first.
        _ = try await transaction.batch(repairs)
        continue
      }
      let results = try await transaction.batch(
        found.members.map(MovementRow.select) + ["SELECT clock_timestamp()"])
      let writes = try found.rebuild(
        Set(results.dropLast().flatMap(MovementRow.decode)), in: catalogue,
        at: results[found.members.count].decodeOnly(Timestamp.self))
      _ = try await transaction.batch(writes)
      break
    }
    return wasRewritten
  }

  // MARK: One original transaction

  private func auditedOriginal(
    of id: OriginalTransactionKey, catalogue: Catalogue?, locking: Bool
  ) async throws -> AuditedOriginalTransaction? {
    try await database.withTransaction(
      isolation: locking ? .readCommitted : .repeatableRead, readOnly: !locking
    ) { transaction in
      try await audited(id, catalogue: catalogue, locking: locking, in: transaction)
    }
  }

  /// Reads an original transaction, applies its entries, and compares; nil if there is none of this
  /// id.
  ///
  /// - Parameter catalogue: The products by which movements are compared; nil leaves them out.
  func audited(
    _ id: OriginalTransactionKey, catalogue: Catalogue?, locking: Bool, in transaction: Transaction
  ) async throws -> AuditedOriginalTransaction? {
    var reader = OriginalTransactionReader(isLocking: locking)
    try await reader.read([id], in: transaction)
    guard let stored = reader.originals.first(where: { $0.members[id] != nil }) else { return nil }
    var chain: [StoredEntry] = []
    for member in stored.members.keys.sorted() {
      chain += try await ownership.entries(of: member, in: transaction)
    }
    var found = AuditedOriginalTransaction(id, stored: stored, chain: chain)
    guard found.linkRepairs.isEmpty else {
      found.audit.report(.projection, id, "the links differ")
      return found
    }
    // Read before the accounts: a merge moves orders first.
    let orders = try await auditedOrders(found.orders.values.sorted(), in: transaction)
    let context = try await recorder.context(
      of: stored, claimant: nil, evidence: found.evidence, in: transaction)
    let others = found.accounts.subtracting(context.names.keys)
    found.apply(
      context,
      names: context.names.merging(try await ownership.names(of: others, in: transaction)) { $1 })
    let replayed = OwnershipRule(found.replayed.history)
    found.audit.charges = replayed.charges.count
    found.audit.checkDecisions(of: found.replayed, replayed: replayed, line: id)
    let tables = try await tables(of: found, in: transaction)
    found.audit.checkProjections(of: found, in: tables, catalogue: catalogue)
    found.audit.checkOrders(of: found, orders)
    return found
  }

  private func tables(
    of original: AuditedOriginalTransaction, in transaction: Transaction
  ) async throws -> AuditedTables {
    let members = original.members
    let lookups = Dictionary(grouping: original.lookups, by: \.table)
    let lookedUp = LookupRow.Table.allCases.filter { lookups[$0] != nil }
    let results = try await transaction.batch(
      members.map(OriginalTransactionStateRow.select)
        + lookedUp.map { LookupRow.select($0, of: lookups[$0] ?? []) }
        + [
          HoldingBatcher.select(
            original.names.values.map(AccountID.init(_:)).sorted().map(\.rawValue))
        ]
        + members.map(MovementRow.select))
    var tables = AuditedTables()
    for (index, member) in members.enumerated() {
      tables.summaries[member] = try OriginalTransactionStateRow(results[index])
    }
    for (index, table) in lookedUp.enumerated() {
      tables.lookups.formUnion(
        try LookupRow.decode(results[members.count + index], table: table)
          .filter { original.stored.members[$0.line] != nil })
    }
    let keys = Dictionary(original.names.map { (AccountID($1), $0) }) { first, _ in first }
    let journals = results.suffix(members.count)
    tables.movements = Set(try journals.flatMap(MovementRow.decode))
    for row in try results[results.count - members.count - 1].decodeHoldings() {
      guard let key = keys[AccountID(row.accountID)],
        original.stored.members[row.holding.charge.line] != nil
      else { continue }
      tables.holdings.insert(HoldingRow(account: key, holding: row.holding))
    }
    return tables
  }
}

package struct LedgerAudit: Sendable {
  package var lines = 0
  package var entries = 0
  package var charges = 0
  package var holdings = 0
  package var orders = 0
  package var checkpoints = 0
  /// Whether movements were left out, because reconciliation has not brought them up to date yet.
  package var isJournalPending = false
  package private(set) var differences: [Difference] = []
  private var known: Set<Difference> = []

  /// A difference from the entries or the rule.
  package struct Difference: Hashable, Sendable, CustomStringConvertible {
    package enum Kind: String, CaseIterable, Sendable {
      /// A hash that does not follow from the entry and its predecessor, or a missing number.
      case chain
      /// A chain that does not end at its head, or entries missing since a checkpoint.
      case head
      /// An entry that this version can't read.
      case unreadable
      /// A recorded owner that differs from the replayed rule's.
      case decision
      /// A row that differs from the one derived from the entries, or a sum that differs from its
      /// rows.
      case projection
      /// An order fulfilled by two charges, a charge fulfilling two orders, and the like.
      case order
      /// A provisional grant of a decided submission.
      case grant
    }

    package var kind: Kind
    package var line: OriginalTransactionKey?
    package var detail: String

    package var description: String {
      "\(kind.rawValue)" + (line.map { " \($0)" } ?? "") + ": \(detail)"
    }
  }

  package var isClean: Bool { differences.isEmpty }

  mutating func report(
    _ kind: Difference.Kind, _ line: OriginalTransactionKey? = nil, _ detail: String
  ) {
    append(Difference(kind: kind, line: line, detail: detail))
  }

  mutating func append(_ difference: Difference) {
    if known.insert(difference).inserted { differences.append(difference) }
  }
}

extension LedgerAudit {
  mutating func add(_ other: LedgerAudit) {
    charges += other.charges
    for difference in other.differences { append(difference) }
  }

  mutating func checkChain(_ entries: [StoredEntry], of line: OriginalTransactionRows) {
    var previous: [UInt8]?
    for (index, entry) in entries.enumerated() {
      if entry.number != index + 1 {
        report(.chain, line.id, "entry \(index + 1) is missing")
        return
      }
      if entry.hash != entry.chainedHash(after: previous) {
        report(.chain, line.id, "entry \(entry.number) does not have the hash that follows")
      }
      previous = entry.hash
    }
    if line.head.number != entries.count || line.head.hash != previous
      || line.head.recordedAt != entries.last?.recordedAt
    {
      report(
        .head, line.id,
        "the chain has \(entries.count) entries, its head names entry \(line.head.number)")
    }
  }

  mutating func checkDecisions(
    of line: OriginalTransaction, replayed: OwnershipRule, line id: OriginalTransactionKey
  ) {
    for (charge, decision) in zip(replayed.charges, replayed.decisions) {
      let recorded = line.decisions[charge.id]?.decision
      if recorded?.owner != decision.owner || recorded?.rule != decision.rule {
        report(
          .decision, id,
          "transaction \(charge.id.transactionID) is recorded as "
            + "\(recorded?.rule.rawValue ?? "undecided"), the rule gives \(decision.rule.rawValue)")
      }
    }
  }

  /// Compares the tables with the state that the entries give.
  ///
  /// - Parameter catalogue: The products by which movements are compared, and holdings of unknown
  ///   type; nil leaves them out.
  mutating func checkProjections(
    of original: AuditedOriginalTransaction, in tables: AuditedTables, catalogue: Catalogue?
  ) {
    let (expected, actual) = (original.transactions, original.storedTransactions)
    for key in Set(expected.keys).union(actual.keys).sorted() where expected[key] != actual[key] {
      report(.projection, key.line, "the row of transaction \(key.transactionID) differs")
    }
    let summary = OriginalTransactionStateRow(
      OriginalTransactionState(line: original.replayed, rule: original.rule))
    for id in original.members {
      guard let member = original.stored.members[id] else { continue }
      if Set(member.statuses) != Set(original.statuses(of: id)) {
        report(.projection, id, "the renewal statuses differ")
      }
      if Set(member.actions) != Set(original.actions(of: id)) {
        report(.projection, id, "the claims or placements differ")
      }
      if tables.summaries[id] != summary { report(.projection, id, "the line's state differs") }
    }
    let holdings = original.holdings.filter { row in
      catalogue.map { !row.isLeftOut(by: $0) } ?? true
    }
    for row in holdings.subtracting(tables.holdings).sorted()
    where catalogue != nil || !row.dependsOnCatalogue {
      report(.projection, row.holding.charge.line, "\(row.description) is missing or differs")
    }
    for row in tables.holdings.sorted() where !holdings.contains(where: row.hasSameKey) {
      report(.projection, row.holding.charge.line, "\(row.description) should not be there")
    }
    if let catalogue { checkMovements(of: original, tables.movements, in: catalogue) }
    let names = Set(tables.lookups.map(\.name))
    for row in original.lookups.subtracting(tables.lookups).sorted(by: LookupRow.precedes)
    // A transaction or line item may lead to any of the linked original transactions.
    where row.table == .accountLookup || !names.contains(row.name) {
      report(.projection, row.line, "\(row.description) is missing")
    }
  }

  private mutating func checkMovements(
    of original: AuditedOriginalTransaction, _ movements: Set<MovementRow>, in catalogue: Catalogue
  ) {
    let expected = original.movements(in: catalogue)
    for row in expected.subtracting(movements).sorted() {
      report(.projection, row.original, "\(row.description) is missing or differs")
    }
    for row in movements.subtracting(expected).sorted()
    where !expected.contains(where: row.hasSameKey) {
      report(.projection, row.original, "\(row.description) should not be there")
    }
  }

  mutating func checkOrders(of original: AuditedOriginalTransaction, _ orders: [UUID: AuditedOrder])
  {
    for (charge, orderID) in original.orders.sorted(by: { $0.key < $1.key }) {
      guard let order = orders[orderID], order.charge == charge else {
        report(
          .order, charge.line,
          "transaction \(charge.transactionID) fulfils order \(orderID), which does not say so")
        continue
      }
      if !original.justifies(order, fulfilledBy: charge) {
        report(
          .order, charge.line,
          "order \(orderID) is of an account that does not own transaction "
            + "\(charge.transactionID)")
      }
    }
  }
}

/// The stored rows that recording does not read.
struct AuditedTables: Sendable {
  var summaries: [OriginalTransactionKey: OriginalTransactionStateRow] = [:]
  var holdings: Set<HoldingRow> = []
  var lookups: Set<LookupRow> = []
  /// The movements known now.
  var movements: Set<MovementRow> = []
}
