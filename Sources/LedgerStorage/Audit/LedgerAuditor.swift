import Crypto
import Foundation
import JSONText
import Postgres
package import Subscriptions

/// Proves the ledger and rebuilds its projections.
///
/// Entries of different original transactions don't depend on each other, so both go through them in
/// their order, several parts at a time. Memory is that of a page.
package struct LedgerAuditor: LedgerStore {
  package let core: LedgerCore
  /// A transaction whose uncommitted changes are audited; nil: what is committed.
  var within: Transaction?

  /// Younger entries may belong to an open transaction.
  package static let checkpointAge: Duration = .minutes(10)

  /// Generous, for pages that the server has to read from disk.
  static let auditDeadline: Duration = .seconds(1800)

  /// Verifies the ledger entry by entry and row by row, with orders, grants and checkpoints.
  ///
  /// Writers continue: differences are checked again under a lock.
  ///
  /// - Parameters:
  ///   - start: The last one of an interrupted audit; nil: all are verified.
  ///   - checkpointAge: A clean audit leaves a checkpoint of older entries, by the database's
  ///     clock: younger ones may belong to an open transaction.
  package func audit(
    after start: OriginalTransactionKey? = nil, against kept: [Checkpoint] = [],
    checkpointAge: Duration = Self.checkpointAge,
    progress: @Sendable (AuditProgress) -> Void = { _ in }
  ) async throws -> LedgerAudit {
    var audit = LedgerAudit()
    let catalogue = try await maintenance.settledCatalogue()
    audit.isJournalPending = catalogue == nil
    var visited: Set<OriginalTransactionKey> = []
    try await forEachPage(after: start, reporting: progress) { page in
      let parts = try await inParts(page) { part in
        try await audits(of: part, catalogue: catalogue)
      }
      for found in parts.joined() where visited.isDisjoint(with: found.members) {
        // Only linked original transactions are read twice.
        if found.members.count > 1 { visited.formUnion(found.members) }
        audit.add(found.audit)
      }
      audit.lines += page.count
    }
    try await findUnrootedRows(&audit)
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
    try await auditAccounts(&audit)
    audit.entries = try await database.query(
      "SELECT count(*) FROM tenure.ledger_entry", deadline: Self.auditDeadline
    ).decodeOnly(Int.self)
    try await checkCheckpoints(against: kept, &audit)
    if audit.isClean, start == nil {
      audit.checkpoint = try await insertCheckpoint(age: checkpointAge)
    }
    return audit
  }

  typealias PartialAudit = (members: [OriginalTransactionKey], audit: LedgerAudit)

  /// Audits a part of the original transactions, and those that differ again under a lock.
  func audits(
    of part: [OriginalTransactionKey], catalogue: Catalogue?
  ) async throws -> [PartialAudit] {
    var audits: [PartialAudit] = []
    let originals: [AuditedOriginalTransaction]
    do {
      originals = try await auditedOriginals(part, catalogue: catalogue, locking: false)
    } catch  where Self.isUnreadable(error) {
      guard let id = part.first, part.count == 1 else {
        for id in part { audits += try await self.audits(of: [id], catalogue: catalogue) }
        return audits
      }
      var audit = LedgerAudit()
      audit.report(.projection, id, "a row can't be read: \(error)")
      return [([id], audit)]
    }
    for found in originals {
      guard !found.audit.isClean else {
        audits.append((found.members, found.audit))
        continue
      }
      // The catalogue may have changed since the audit began.
      let catalogue = try await maintenance.settledCatalogue()
      for var found in try await auditedOriginals(
        found.members, catalogue: catalogue, locking: true)
      {
        found.audit.isJournalPending = catalogue == nil
        audits.append((found.members, found.audit))
      }
    }
    return audits
  }

  /// Writes all projections again from intact entries, and removes rows without entries.
  package func rebuild(
    after start: OriginalTransactionKey? = nil,
    progress: @Sendable (AuditProgress) -> Void = { _ in }
  ) async throws -> (lines: Int, rewritten: Int) {
    let catalogue = try await products.catalogue()
    let (lines, repaired) = try await rebuildOriginalTransactions(
      after: start, by: catalogue, progress: progress)
    var rewritten = repaired
    let orphans = try await orphanRows().orphans
    for row in orphans {
      rewritten.insert(row.line)
      _ = try await database.execute(row.delete)
    }
    // The removed rows no longer block others.
    if !orphans.isEmpty {
      rewritten.formUnion(
        try await rebuildOriginalTransactions(after: nil, by: catalogue) { _ in }.rewritten)
    }
    rewritten.formUnion(try await maintenance.repairMovements())
    return (lines, rewritten.count)
  }

  private func rebuildOriginalTransactions(
    after start: OriginalTransactionKey?, by catalogue: Catalogue,
    progress: @Sendable (AuditProgress) -> Void
  ) async throws -> (lines: Int, rewritten: Set<OriginalTransactionKey>) {
    var lines = 0
    var rewritten: Set<OriginalTransactionKey> = []
    try await forEachPage(after: start, reporting: progress) { page in
      // Most are as they should be, so they are read without locks first.
      let behind = try await inParts(page) { part in
        try await auditedOriginals(part, catalogue: catalogue, locking: false)
          .filter(\.isRepairable).map(\.id)
      }
      for id in behind.joined() {
        let wasRewritten = try await database.withTransaction { transaction in
          try await rebuild(id, by: catalogue, in: transaction)
        }
        if wasRewritten { rewritten.insert(id) }
      }
      lines += page.count
    }
    return (lines, rewritten)
  }

  private func rebuild(
    _ id: OriginalTransactionKey, by catalogue: Catalogue, in transaction: Transaction
  ) async throws -> Bool {
    var wasRewritten = false
    while let found = try await audited([id], catalogue: catalogue, locking: true, in: transaction)
      .first, found.isRepairable
    {
      wasRewritten = true
      let repairs = found.linkRepairs
      guard repairs.isEmpty else {
        // Linked original transactions must be read and locked first.
        _ = try await transaction.batch(repairs)
        continue
      }
      let now = try await transaction.query("SELECT clock_timestamp()").decodeOnly(Timestamp.self)
      _ = try await transaction.batch(found.rebuild(in: catalogue, at: now))
      break
    }
    return wasRewritten
  }

  // MARK: Some original transactions

  /// Whether a row has a value that its column can't have.
  static func isUnreadable(_ error: any Error) -> Bool {
    error is DecodingFault || (error as? PostgresError)?.code == .decoding
  }

  var runner: any StatementRunner { within ?? database }

  func withSnapshot<Value: Sendable>(
    _ body: @Sendable (Transaction) async throws -> Value
  ) async throws -> Value {
    if let within { return try await body(within) }
    return try await database.withTransaction(isolation: .repeatableRead, readOnly: true, body)
  }

  func withLocks<Value: Sendable>(
    _ body: @Sendable (Transaction) async throws -> Value
  ) async throws -> Value {
    if let within { return try await body(within) }
    return try await database.withTransaction(body)
  }

  private func auditedOriginals(
    _ ids: [OriginalTransactionKey], catalogue: Catalogue?, locking: Bool
  ) async throws -> [AuditedOriginalTransaction] {
    @Sendable func body(_ transaction: Transaction) async throws -> [AuditedOriginalTransaction] {
      try await audited(ids, catalogue: catalogue, locking: locking, in: transaction)
    }
    return locking ? try await withLocks(body) : try await withSnapshot(body)
  }

  /// Reads original transactions, applies their entries and compares; linked ones are one.
  ///
  /// - Parameter catalogue: That of the movements; nil leaves them out.
  func audited(
    _ ids: [OriginalTransactionKey], catalogue: Catalogue?, locking: Bool,
    in transaction: Transaction
  ) async throws -> [AuditedOriginalTransaction] {
    let originals = try await transaction.originals(ids, locking: locking)
    let chains = Dictionary(
      grouping: try await ownership.entries(
        of: originals.flatMap(\.members.keys), in: transaction), by: \.line)
    var (audited, broken): ([AuditedOriginalTransaction], [AuditedOriginalTransaction]) = ([], [])
    for stored in originals {
      guard let id = ids.first(where: { stored.members[$0] != nil }) else { continue }
      let chain = stored.members.keys.sorted().flatMap { chains[$0] ?? [] }
      var found = AuditedOriginalTransaction(id, stored: stored, chain: chain)
      if found.linkRepairs.isEmpty {
        audited.append(found)
      } else {
        found.audit.report(.projection, id, "the links differ")
        broken.append(found)
      }
    }
    // Read before the accounts: a merge moves orders first.
    let orders = try await auditedOrders(audited.flatMap(\.orders.values).sorted(), in: transaction)
    let accounts = Set(audited.flatMap { $0.accounts.union($0.stored.accounts) })
    let known = try await transaction.read(KnownAccount.query(accounts))
    for index in audited.indices {
      let found = audited[index]
      let context = try await recorder.context(
        of: found.stored, claimant: nil, evidence: found.evidence, knowing: known, in: transaction)
      let others = found.accounts.subtracting(context.names.keys)
      audited[index].apply(
        context,
        names: context.names.merging(
          known.filter { others.contains($0.key) }.mapValues(\.id)
        ) { $1 })
    }
    let tables = try await tables(of: audited, catalogue: catalogue, in: transaction)
    for (index, tables) in zip(audited.indices, tables) {
      let found = audited[index]
      let replayed = OwnershipRule(found.replayed.history)
      audited[index].audit.charges = replayed.charges.count
      audited[index].audit.checkDecisions(of: found.replayed, replayed: replayed, line: found.id)
      audited[index].audit.checkProjections(of: found, in: tables, catalogue: catalogue)
      audited[index].movements = tables.movements
      for change in tables.movements { audited[index].audit.report(change) }
      audited[index].audit.checkOrders(of: found, orders)
    }
    return audited + broken
  }

  /// The stored rows of each original transaction, all of them read in one round trip.
  private func tables(
    of originals: [AuditedOriginalTransaction], catalogue: Catalogue?, in transaction: Transaction
  ) async throws -> [AuditedTables] {
    guard !originals.isEmpty else { return [] }
    let members = originals.flatMap(\.members)
    let lookups = Dictionary(grouping: originals.flatMap(\.lookups), by: \.table)
    let names = Set(originals.flatMap(\.names.values).map(AccountID.init(_:)))
    let states = originals.map { OriginalTransactionState(line: $0.replayed, rule: $0.rule) }
    let (differing, claims, found, holdings, movements) = try await transaction.read(
      OriginalTransactionState.differing(
        zip(originals, states).flatMap { original, state in original.members.map { ($0, state) } }),
      Query(
        """
        SELECT environment, original_transaction_id, number, submission_id::text
        FROM tenure.ownership_action
        WHERE environment IN ('production', 'sandbox') AND is_claim
          AND original_transaction_id = ANY(\(members.map(\.originalTransactionID)))
        """
      ) { Set(try $0.decode(into: AuditedClaim.init)) },
      Query.all(
        LookupRow.Table.allCases.compactMap { table in
          lookups[table].map { rows in
            Query(LookupRow.select(table, of: rows)) { try LookupRow.decode($0, table: table) }
          }
        }),
      Query(HoldingBatcher.select(names.sorted().map(\.rawValue), of: members)) {
        Dictionary(grouping: try $0.decodeHoldings(), by: \.holding.charge.line)
      },
      catalogue.map {
        MovementTable.changes(to: originals.map { ($0.replayed, $0.rule) }, in: $0)
      } ?? Query([]).map { [:] })
    let lookupsOfLines = Dictionary(grouping: found.joined(), by: \.line)
    return originals.map { original in
      let keys = Dictionary(original.names.map { (AccountID($1), $0) }) { first, _ in first }
      var tables = AuditedTables(movements: original.members.compactMap { movements[$0] })
      tables.claims = claims
      for member in original.members {
        if let columns = differing[member] { tables.otherStates.append((member, columns)) }
        tables.lookups.formUnion(lookupsOfLines[member] ?? [])
        for row in holdings[member] ?? [] {
          guard let key = keys[AccountID(row.accountID)] else { continue }
          tables.holdings.insert(HoldingRow(account: key, holding: row.holding))
        }
      }
      return tables
    }
  }
}

package struct LedgerAudit: Sendable {
  package var lines = 0
  package var entries = 0
  package var charges = 0
  package var holdings = 0
  package var orders = 0
  package var accounts = 0
  package var accountEntries = 0
  package var checkpoints = 0
  package var checkpoint: Checkpoint?
  /// Whether movements were left out, because reconciliation has not brought them up to date yet.
  package var isJournalPending = false
  package private(set) var differences: [Difference] = []
  private var known: Set<Difference> = []

  package init() {}

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
      /// A row that does not follow from the entries, or a sum that does not from its rows.
      case projection
      /// An order fulfilled by two charges, a charge fulfilling two orders, and the like.
      case order
      /// A provisional grant of a decided submission.
      case grant
      /// A row that differs from the latest entry that vouches for it.
      case account
    }

    package var kind: Kind
    package var line: OriginalTransactionKey?
    package var account: AccountKey?
    package var detail: String

    package var description: String {
      "\(kind.rawValue)" + (line.map { " \($0)" } ?? "")
        + (account.map { (kind == .account ? " " : " account ") + $0.rawValue.text } ?? "")
        + ": \(detail)"
    }
  }

  package var isClean: Bool { differences.isEmpty }

  mutating func report(
    _ kind: Difference.Kind, _ line: OriginalTransactionKey? = nil,
    account: AccountKey? = nil, _ detail: String
  ) {
    append(Difference(kind: kind, line: line, account: account, detail: detail))
  }

  mutating func append(_ difference: Difference) {
    if known.insert(difference).inserted { differences.append(difference) }
  }
}

extension LedgerAudit {
  mutating func add(_ other: LedgerAudit) {
    charges += other.charges
    accounts += other.accounts
    accountEntries += other.accountEntries
    isJournalPending = isJournalPending || other.isJournalPending
    for difference in other.differences { append(difference) }
  }

  /// An entry of a chain; `number` is that of its last item, and `count` nil if it can't be read.
  typealias ChainLink = (
    number: Int, count: Int?, dates: [Timestamp?], fields: [String], hash: [UInt8]
  )

  /// Checks the entries of an original transaction or an account, and the head of their chain.
  mutating func checkChain(
    _ entries: [ChainLink],
    endingAt head: (number: Int, dates: [Timestamp?], hash: [UInt8]?),
    _ line: OriginalTransactionKey? = nil, account: AccountKey? = nil
  ) {
    var (number, previous): (Int, [UInt8]?) = (0, nil)
    for entry in entries {
      if let count = entry.count, entry.number != number + count {
        report(.chain, line, account: account, "the entry after \(number) is missing")
        return
      }
      number = entry.number
      if entry.hash != SHA256.chained(entry.fields, after: previous) {
        report(
          .chain, line, account: account,
          "entry \(entry.number) does not have the hash that follows")
      }
      previous = entry.hash
    }
    if head.number != number || head.hash != previous
      || head.dates != entries.last?.dates ?? head.dates.map({ _ in nil })
    {
      report(
        .head, line, account: account,
        "the chain ends at entry \(number), its head names entry \(head.number)")
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
  mutating func checkProjections(
    of original: AuditedOriginalTransaction, in tables: AuditedTables, catalogue: Catalogue?
  ) {
    let (expected, actual) = (original.transactions, original.stored.rows)
    for key in Set(expected.keys).union(actual.keys).sorted() where expected[key] != actual[key] {
      report(
        .projection, key.line,
        "the row of transaction \(key.transactionID) "
          + Self.difference(expected[key], actual[key]) { TransactionRow.differing($0, $1) })
    }
    for id in original.members {
      guard let member = original.stored.members[id] else { continue }
      compare(
        member.statuses, original.statuses(of: id), of: id, "the renewal status of entry", \.number)
      compare(
        member.actions, original.actions(of: id), of: id, "the claim or placement of entry",
        \.recorded.number)
      for claim in original.claims(of: id) where !tables.claims.contains(claim) {
        report(
          .projection, id,
          "the claim or placement of entry \(claim.number) differs in submission_id")
      }
    }
    for (id, columns) in tables.otherStates {
      report(.projection, id, "\(columns.joined(separator: ", ")) of the line's state differs")
    }
    let holdings = original.holdings.filter { row in
      catalogue.map { !row.isLeftOut(by: $0) } ?? true
    }
    for row in holdings.subtracting(tables.holdings).sorted()
    where catalogue != nil || !row.dependsOnCatalogue {
      let found = tables.holdings.first { row.hasSameKey(as: $0) }
      report(
        .projection, row.holding.charge.line,
        "\(row.description) "
          + Self.difference(row, found) { differingFields($0.holding, $1.holding) })
    }
    for row in tables.holdings.sorted() where !holdings.contains(where: row.hasSameKey) {
      report(.projection, row.holding.charge.line, "\(row.description) should not be there")
    }
    let names = Set(tables.lookups.map(\.name))
    for row in original.lookups.subtracting(tables.lookups).sorted(by: LookupRow.precedes)
    // A transaction or line item may lead to any of the linked original transactions.
    where row.table == .accountLookup || !names.contains(row.name) {
      report(.projection, row.line, "\(row.description) is missing")
    }
  }

  /// How a stored row differs from the one that the entries give.
  private static func difference<Row>(
    _ expected: Row?, _ actual: Row?, _ columns: (Row, Row) -> [String]
  ) -> String {
    guard let expected else { return "should not be there" }
    guard let actual else { return "is missing" }
    return "differs in \(columns(expected, actual).joined(separator: ", "))"
  }

  private mutating func compare<Row: Hashable>(
    _ actual: [Row], _ expected: [Row], of id: OriginalTransactionKey, _ name: String,
    _ number: (Row) -> Int
  ) {
    guard Set(actual) != Set(expected) else { return }
    let found = Dictionary(grouping: actual, by: number)
    let wanted = Dictionary(grouping: expected, by: number)
    for number in Set(found.keys).union(wanted.keys).sorted() where found[number] != wanted[number]
    {
      report(
        .projection, id,
        "\(name) \(number) "
          + Self.difference(wanted[number]?.first, found[number]?.first) { differingFields($0, $1) }
      )
    }
  }

  mutating func report(_ change: MovementChange) {
    let missing = change.added.map(\.key)
    func report(_ key: Movement.Key, _ fault: String) {
      self.report(
        .projection, change.line, "a movement (\(key.kind.rawValue)) at \(key.at) \(fault)")
    }
    for key in missing { report(key, "is missing or differs") }
    for key in change.sortedKeys where !missing.contains(key) { report(key, "should not be there") }
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

/// A claim with the submission that made it.
struct AuditedClaim: Hashable, Sendable {
  let line: OriginalTransactionKey
  let number: Int
  let submission: String?
}

/// The columns in which two rows differ, by the names of their properties.
private func differingFields(_ lhs: Any, _ rhs: Any) -> [String] {
  zip(Mirror(reflecting: lhs).children, Mirror(reflecting: rhs).children).flatMap {
    left, right -> [String] in
    guard "\(left.value)" != "\(right.value)" else { return [] }
    let isValue = left.value is any RawRepresentable || left.value is Timestamp
    let inner = isValue ? [] : differingFields(left.value, right.value)
    guard inner.isEmpty, let label = left.label, label != "some" else { return inner }
    return [label.replacing(/[A-Z]+/) { "_" + $0.output.lowercased() }]
  }
}

/// The stored rows that recording does not read.
struct AuditedTables: Sendable {
  /// Members whose stored state differs, with the columns.
  var otherStates: [(OriginalTransactionKey, [String])] = []
  var claims: Set<AuditedClaim> = []
  var holdings: Set<HoldingRow> = []
  var lookups: Set<LookupRow> = []
  var movements: [MovementChange] = []
}
