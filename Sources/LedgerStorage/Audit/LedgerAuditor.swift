import Foundation
import Postgres
package import Subscriptions

extension Ledger {
  /// How many lines are looked at in one read: each is small, and the audit's memory stays bounded.
  private static let auditPage = 500
  /// An audit has time, also for a page that the server has to look for on its disks.
  static let auditDeadline: Duration = .seconds(1800)

  /// Proves the ledger, chain by chain, decision by decision and row by row.
  ///
  /// Recomputes every chain, replays every line's rule, folds every projection again and compares
  /// it, and looks at orders, provisional grants and checkpoints.
  ///
  /// Writers go on meanwhile: what differs at first is looked at again under the line's lock.
  ///
  /// - Parameters:
  ///   - checkpointAge: A clean audit leaves a checkpoint of what is older than this, by the
  ///     database's clock: younger entries may belong to a transaction that is still to commit.
  ///   - progress: Is told the number of lines done.
  /// - Returns: What was found.
  /// - Throws: What the database says.
  package func audit(
    checkpointAge: Duration = .minutes(10), progress: @Sendable (Int) -> Void = { _ in }
  ) async throws -> LedgerAudit {
    var audit = LedgerAudit()
    let catalogue = try await settledCatalogue()
    audit.isJournalPending = catalogue == nil
    var marks = try await checkpoints(age: checkpointAge)
    audit.checkpoints = marks.count - 1
    var visited: Set<LineID> = []
    var last: LineID?
    while true {
      let page = try await linePage(after: last)
      guard !page.isEmpty else { break }
      last = page.last
      for id in page where !visited.contains(id) {
        var found = try await auditedFamily(of: id, catalogue: catalogue, locking: false)
        if found?.audit.isClean == false {
          // Products may have been described since the audit began.
          let catalogue = try await settledCatalogue()
          audit.isJournalPending = audit.isJournalPending || catalogue == nil
          found = try await auditedFamily(of: id, catalogue: catalogue, locking: true)
        }
        guard let found else { continue }
        // Only a family of several lines is met again.
        if found.members.count > 1 { visited.formUnion(found.members) }
        audit.add(found.audit)
      }
      audit.lines += page.count
      progress(audit.lines)
    }
    let (holdings, strays) = try await strayRows()
    audit.holdings = holdings
    for row in strays {
      audit.report(.projection, row.line, "\(row.description) should not be there")
    }
    try await checkJournal(&audit)
    let (orders, broken) = try await brokenOrders()
    audit.orders = orders
    for order in broken {
      audit.report(.order, order.charge?.line, "no charge says to have fulfilled order \(order.id)")
    }
    for line in try await strayProvisionalGrants() {
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

  /// Writes the projections of every line again from its entries, and removes what no entry gives.
  ///
  /// A line whose entries are not as they were written is left as it is: they prove nothing.
  ///
  /// - Parameter progress: Is told the number of lines done.
  /// - Returns: How many lines there are, and how many were not as the entries have them.
  /// - Throws: What the database says.
  package func rebuild(
    progress: @Sendable (Int) -> Void = { _ in }
  ) async throws -> (lines: Int, rewritten: Int) {
    let catalogue = try await catalogue()
    let (lines, mended) = try await rebuildLines(by: catalogue, progress: progress)
    var rewritten = mended
    let strays = try await strayRows().strays
    for row in strays {
      rewritten.insert(row.line)
      _ = try await database.execute(row.delete)
    }
    // What stood in the way of a row that should be there is gone now.
    if !strays.isEmpty {
      rewritten.formUnion(try await rebuildLines(by: catalogue) { _ in }.rewritten)
    }
    rewritten.formUnion(try await mendJournal())
    return (lines, rewritten.count)
  }

  private func rebuildLines(
    by catalogue: Catalogue, progress: @Sendable (Int) -> Void
  ) async throws -> (lines: Int, rewritten: Set<LineID>) {
    var lines = 0
    var rewritten: Set<LineID> = []
    var last: LineID?
    while true {
      let page = try await linePage(after: last)
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

  private func rebuild(_ id: LineID, by catalogue: Catalogue, in transaction: Transaction)
    async throws -> Bool
  {
    var wasRewritten = false
    while let found = try await audited(id, catalogue: catalogue, locking: true, in: transaction),
      found.isMendable
    {
      wasRewritten = true
      let repairs = found.linkRepairs
      guard repairs.isEmpty else {
        // What the line is linked with has to be read, and locked, before anything follows.
        _ = try await transaction.batch(repairs)
        continue
      }
      let results = try await transaction.batch(
        found.members.map(MovementRow.select) + ["SELECT clock_timestamp()"])
      let writes = try FamilyRebuild(
        found.stored, folded: found.folded, entries: found.chain,
        movements: Set(try results.dropLast().flatMap(MovementRow.decode)), catalogue: catalogue
      ).statements(
        names: found.names, at: try results[found.members.count].decodeOnly(Timestamp.self))
      _ = try await transaction.batch(writes)
      break
    }
    return wasRewritten
  }

  private func linePage(after last: LineID?) async throws -> [LineID] {
    try await database.query(
      """
      SELECT environment, original_transaction_id FROM tenure.original_transaction
      WHERE (environment, original_transaction_id)
        > (\(last?.environment.rawValue ?? ""), \(last?.originalTransactionID.rawValue ?? ""))
      ORDER BY environment, original_transaction_id
      LIMIT \(Self.auditPage)
      """, deadline: Self.auditDeadline
    ).decode(Environment.self, OriginalTransactionID.self).map { LineID($0, $1) }
  }

  // MARK: One family

  private func auditedFamily(of id: LineID, catalogue: Catalogue?, locking: Bool) async throws
    -> AuditedFamily?
  {
    try await database.withTransaction(
      isolation: locking ? .readCommitted : .repeatableRead, readOnly: !locking
    ) { transaction in
      try await audited(id, catalogue: catalogue, locking: locking, in: transaction)
    }
  }

  /// Reads a family, folds its entries, and compares.
  ///
  /// - Parameters:
  ///   - id: One of its lines.
  ///   - catalogue: By what the journal is judged; nil: not at all.
  ///   - locking: Whether nobody else may record on the lines until the transaction ends.
  ///   - transaction: The database transaction.
  /// - Returns: Nil if there is no such line.
  /// - Throws: What the database says.
  func audited(
    _ id: LineID, catalogue: Catalogue?, locking: Bool, in transaction: Transaction
  ) async throws -> AuditedFamily? {
    var reader = FamilyReader(isLocking: locking)
    try await reader.read([id], in: transaction)
    guard let stored = reader.families.first(where: { $0.members[id] != nil }) else { return nil }
    var chain: [StoredEntry] = []
    for member in stored.members.keys.sorted() {
      chain += try await entries(of: member, in: transaction)
    }
    var found = AuditedFamily(id, stored: stored, chain: chain)
    guard found.linkRepairs.isEmpty else {
      found.audit.report(.projection, id, "the links differ")
      return found
    }
    // Read before the accounts: a merge moves orders first.
    let orders = try await auditedOrders(found.orders.values.sorted(), in: transaction)
    let context = try await context(
      of: stored, claimant: nil, evidence: found.evidence, in: transaction)
    let others = found.accounts.subtracting(context.names.keys)
    found.apply(
      context,
      names: context.names.merging(try await names(of: others, in: transaction)) { $1 })
    let replayed = OwnershipRule(found.folded.history)
    found.audit.charges = replayed.charges.count
    found.audit.checkDecisions(of: found.folded, replayed: replayed, line: id)
    let tables = try await tables(of: found, in: transaction)
    found.audit.checkProjections(of: found, in: tables, catalogue: catalogue)
    found.audit.checkOrders(of: found, orders)
    return found
  }

  private func tables(of family: AuditedFamily, in transaction: Transaction) async throws
    -> AuditedTables
  {
    let members = family.members
    let lookups = Dictionary(grouping: family.lookups, by: \.table)
    let lookedUp = LookupRow.Table.allCases.filter { lookups[$0] != nil }
    let results = try await transaction.batch(
      members.map(LineSummaryRow.select)
        + lookedUp.map { LookupRow.select($0, of: lookups[$0] ?? []) }
        + [
          HoldingReader.select(family.names.values.map(AccountID.init(_:)).sorted().map(\.rawValue))
        ]
        + members.map(MovementRow.select))
    var tables = AuditedTables()
    for (index, member) in members.enumerated() {
      tables.summaries[member] = try LineSummaryRow(results[index])
    }
    for (index, table) in lookedUp.enumerated() {
      tables.lookups.formUnion(
        try LookupRow.decode(results[members.count + index], table: table)
          .filter { family.stored.members[$0.line] != nil })
    }
    let keys = Dictionary(family.names.map { (AccountID($1), $0) }) { first, _ in first }
    let journals = results.suffix(members.count)
    tables.movements = Set(try journals.flatMap(MovementRow.decode))
    for row in try results[results.count - members.count - 1].decodeHoldings() {
      guard let key = keys[AccountID(row.accountID)],
        family.stored.members[row.holding.charge.line] != nil
      else { continue }
      tables.holdings.insert(HoldingRow(account: key, holding: row.holding))
    }
    return tables
  }
}

/// What an audit found.
package struct LedgerAudit: Sendable {
  package var lines = 0
  package var entries = 0
  package var charges = 0
  package var holdings = 0
  package var orders = 0
  package var checkpoints = 0
  /// Whether the journal was left out, because a survey is still to bring it up to date.
  package var isJournalPending = false
  package private(set) var differences: [Difference] = []
  private var known: Set<Difference> = []

  /// Something that is not as the ledger's entries, or its rules, have it.
  package struct Difference: Hashable, Sendable, CustomStringConvertible {
    /// What kind of proof failed.
    package enum Kind: String, CaseIterable, Sendable {
      /// A hash that does not follow from the entry and its predecessor, or a number that is
      /// missing.
      case chain
      /// A chain that does not end where the line's row says, or a checkpoint that is no longer
      /// met.
      case head
      /// An entry that this version can't read.
      case unreadable
      /// A recorded owner that the rule, replayed, does not give.
      case decision
      /// A row of a projection that the entries, folded again, do not give, or a sum that its rows
      /// do not come to.
      case projection
      /// An order fulfilled by two charges, a charge fulfilling two orders, and the like.
      case order
      /// A provisional grant of a submission that is decided.
      case grant
    }

    package var kind: Kind
    package var line: LineID?
    package var detail: String

    package var description: String {
      "\(kind.rawValue)" + (line.map { " \($0)" } ?? "") + ": \(detail)"
    }
  }

  package var isClean: Bool { differences.isEmpty }

  mutating func report(_ kind: Difference.Kind, _ line: LineID? = nil, _ detail: String) {
    append(Difference(kind: kind, line: line, detail: detail))
  }

  /// Notes a difference, once.
  mutating func append(_ difference: Difference) {
    if known.insert(difference).inserted { differences.append(difference) }
  }
}

extension LedgerAudit {
  /// Takes in what was found about one family.
  mutating func add(_ other: LedgerAudit) {
    charges += other.charges
    for difference in other.differences { append(difference) }
  }

  /// Recomputes a line's chain up to the head that its row names.
  mutating func checkChain(_ entries: [StoredEntry], of line: StoredLine) {
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

  /// Compares the recorded decisions with the rule, replayed.
  mutating func checkDecisions(of line: Line, replayed: OwnershipRule, line id: LineID) {
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

  /// Compares what the tables have with what the entries, folded again, give.
  ///
  /// - Parameters:
  ///   - family: The family with its entries.
  ///   - tables: What else is stored of it.
  ///   - catalogue: By what the journal is judged; nil: not at all.
  mutating func checkProjections(
    of family: AuditedFamily, in tables: AuditedTables, catalogue: Catalogue?
  ) {
    let (expected, actual) = (family.transactions, family.storedTransactions)
    for key in Set(expected.keys).union(actual.keys).sorted() where expected[key] != actual[key] {
      report(.projection, key.line, "the row of transaction \(key.transactionID) differs")
    }
    let summary = LineSummaryRow(LineSummary(line: family.folded, rule: family.rule))
    for id in family.members {
      guard let member = family.stored.members[id] else { continue }
      if Set(member.statuses) != Set(family.statuses(of: id)) {
        report(.projection, id, "the renewal statuses differ")
      }
      if Set(member.acts) != Set(family.acts(of: id)) {
        report(.projection, id, "the claims or placements differ")
      }
      if tables.summaries[id] != summary { report(.projection, id, "the line's state differs") }
    }
    let holdings = family.holdings
    for row in holdings.subtracting(tables.holdings).sorted() {
      report(.projection, row.holding.charge.line, "\(row.description) is missing or differs")
    }
    for row in tables.holdings.sorted() where !holdings.contains(where: row.hasSameKey) {
      report(.projection, row.holding.charge.line, "\(row.description) should not be there")
    }
    if let catalogue { checkJournal(of: family, tables.movements, in: catalogue) }
    let names = Set(tables.lookups.map(\.name))
    for row in family.lookups.subtracting(tables.lookups).sorted(by: LookupRow.precedes)
    // A transaction or line item leads to the family by whichever of its lines.
    where row.table == .accountLine || !names.contains(row.name) {
      report(.projection, row.line, "\(row.description) is missing")
    }
  }

  /// Compares what the journal says now with what follows from the entries and the catalogue.
  private mutating func checkJournal(
    of family: AuditedFamily, _ movements: Set<MovementRow>, in catalogue: Catalogue
  ) {
    let expected = family.movements(in: catalogue)
    for row in expected.subtracting(movements).sorted() {
      report(.projection, row.family, "\(row.description) is missing or differs")
    }
    for row in movements.subtracting(expected).sorted()
    where !expected.contains(where: row.hasSameKey) {
      report(.projection, row.family, "\(row.description) should not be there")
    }
  }

  /// Compares the orders that charges of the family fulfilled with the orders themselves.
  mutating func checkOrders(of family: AuditedFamily, _ orders: [UUID: AuditedOrder]) {
    for (charge, orderID) in family.orders.sorted(by: { $0.key < $1.key }) {
      guard let order = orders[orderID], order.charge == charge else {
        report(
          .order, charge.line,
          "transaction \(charge.transactionID) fulfils order \(orderID), which does not say so")
        continue
      }
      if !family.justifies(order, fulfilledBy: charge) {
        report(
          .order, charge.line,
          "order \(orderID) is of an account that does not own transaction "
            + "\(charge.transactionID)")
      }
    }
  }
}

/// What is stored of a family beside what recording reads.
struct AuditedTables: Sendable {
  var summaries: [LineID: LineSummaryRow] = [:]
  var holdings: Set<HoldingRow> = []
  var lookups: Set<LookupRow> = []
  /// What the journal says now.
  var movements: Set<MovementRow> = []
}
