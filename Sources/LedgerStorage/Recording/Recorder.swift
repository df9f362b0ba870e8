package import Foundation
import Postgres
package import Subscriptions

/// Something verified, to be recorded in one database transaction.
package struct Arrival: Sendable {
  package var evidence: [Evidence]
  /// The transactions that are claimed, and by whom; nil: nobody claims anything.
  package var claim: AccountClaim?
  /// What an administrator says of charges that are recorded.
  package var placements: [Placement]
  /// What an import says of whole lines.
  package var linePlacements: [LinePlacement]
  package var source: EntrySource

  package init(
    evidence: [Evidence], claim: AccountClaim? = nil, placements: [Placement] = [],
    linePlacements: [LinePlacement] = [], source: EntrySource
  ) {
    self.evidence = evidence
    self.claim = claim
    self.placements = placements
    self.linePlacements = linePlacements
    self.source = source
  }

  /// An account's claim on what it submitted.
  package struct AccountClaim: Sendable {
    package var account: AccountKey
    /// The selected transactions, in the order of their purchase dates.
    package var transactions: [TransactionKey]
    package var receivedAt: Timestamp

    package init(account: AccountKey, transactions: [TransactionKey], receivedAt: Timestamp) {
      self.account = account
      self.transactions = transactions
      self.receivedAt = receivedAt
    }
  }
}

/// A family of lines after something was recorded, or as it was read.
package struct RecordedFamily: Sendable {
  package let line: Line
  package let rule: OwnershipRule
  /// The decisions that this recording made; none where the family was only read.
  package let changes: [OwnershipChange]
  /// The charges that this recording found revoked, or restored.
  package let revocationChanges: [Charge]
  /// What was known before it: the same as now where the family was only read.
  let before: StoredFamily
  /// What became of the accounts' holdings.
  let holdings: HoldingChange
  /// What it appended, in order.
  let entries: [LedgerEntry]
  /// The account ids behind the keys that occur.
  package let names: [AccountKey: String]
  /// The orders and deliveries of the charges, by naming transaction.
  package internal(set) var orders: [Charge.ID: UUID]
  package let deliveries: [Charge.ID: Timestamp]

  /// The charge that a transaction reports, with its decision.
  package func charge(of transaction: TransactionKey)
    -> (charge: Charge, recorded: Line.RecordedDecision)?
  {
    guard let position = rule.position(of: transaction),
      let recorded = line.decisions[rule.charges[position].id]
    else { return nil }
    return (rule.charges[position], recorded)
  }

  /// Whether this recording has the account's first claim of a charge.
  package func hasFirstClaim(by account: AccountKey, on charge: Charge) -> Bool {
    let claims = entries.contains { entry in
      guard case .act(.claim(let claim)) = entry.content else { return false }
      return claim.account == account && charge.transactions.contains(claim.transaction)
    }
    return claims
      && !charge.transactions.contains {
        before.line.history.hasClaim(by: account, on: $0)
      }
  }

  /// Says why a charge is whose it is.
  package func explanation(of decision: Decision) -> String {
    Explanation(decision) { names[$0] ?? "an erased account" }.sentence
  }
}

/// Lines that nobody else records on until the transaction ends.
struct LockedLines: Sendable {
  var families: [StoredFamily]
  /// What is to be recorded on them, with the links that it shows.
  var evidence: [Evidence]
}

/// The families that an arrival touched, by every line in them.
package struct Recording: Sendable {
  package var families: [LineID: RecordedFamily]
  /// What to ring once it is committed.
  var channels: Set<Bell.Channel> = []

  /// The family in which a transaction stands; nil if the arrival did not touch it.
  package func family(of transaction: TransactionKey) -> RecordedFamily? {
    families[transaction.line]
  }
}

extension Ledger {
  /// Locks and reads the lines that evidence is about, inside a transaction.
  ///
  /// The lines are locked in their order, so that two recordings never wait for each other; a line
  /// that turns out to be linked is locked after the others, and should that cross another
  /// recording, PostgreSQL ends one of the two, which is then tried again.
  ///
  /// - Parameters:
  ///   - evidence: What is to be recorded.
  ///   - before: Statements to send in front, in the same round trip.
  ///   - after: And behind.
  ///   - transaction: The database transaction.
  /// - Returns: The lines, and the results of the statements.
  /// - Throws: What the database says.
  func lock(
    linesOf evidence: [Evidence], before: [SQL] = [], after: [SQL] = [],
    in transaction: Transaction
  ) async throws -> (lines: LockedLines, before: [Rows], after: [Rows]) {
    var reader = FamilyReader(isLocking: true)
    let reading = try await reader.read(
      about: evidence, before: before, after: after, in: transaction)
    return (
      LockedLines(families: reader.families, evidence: evidence + reading.links), reading.before,
      reading.after
    )
  }

  /// Records an arrival and whatever follows on lines that were locked, inside a transaction.
  ///
  /// - Parameters:
  ///   - arrival: What to record.
  ///   - locked: The lines that its evidence is about.
  ///   - accounts: Accounts that were read already, so that they need not be asked for.
  ///   - catalogue: By what the journal is written; nil: nothing is going to be.
  ///   - now: The recording date, unless an entry of a line is as late already.
  ///   - transaction: The database transaction.
  /// - Returns: The families as they are now, and the statements that write them: the caller sends
  ///   them together with its own.
  /// - Throws: What the database says.
  func record(
    _ arrival: Arrival, on locked: LockedLines, knowing accounts: [AccountKey: KnownAccount] = [:],
    catalogue: Catalogue?, at now: Timestamp, in transaction: Transaction
  ) async throws -> (recording: Recording, writes: [SQL]) {
    var recording = Recording(families: [:])
    var writes: [SQL] = []
    for family in locked.families {
      var line = family.line
      let ids = Set(family.members.keys)
      let evidence = locked.evidence.filter { ids.contains($0.line) }
      let claims = arrival.claim?.acts(on: ids, in: family.line, evidence: evidence) ?? []
      let placements =
        arrival.placements.map(Act.placement).filter { ids.contains($0.line) }
        + arrival.linePlacements.map(Act.linePlacement).filter { ids.contains($0.line) }
      let context = try await context(
        of: family, claimant: arrival.claim?.account, evidence: evidence,
        placing: Set(placements.compactMap(\.placedAccount)), knowing: accounts, in: transaction)
      line.updateContext(context.apply)

      // Later than everything before, for the dates order what happened on linked lines.
      let recordedAt = max(now, family.lastRecordedAt.map { $0 + .milliseconds(1) } ?? now)
      let (entries, newRule) = line.record(evidence, acts: claims + placements, at: recordedAt)
      let rule = newRule ?? family.rule
      let changes = entries.compactMap { entry -> OwnershipChange? in
        if case .ownership(let change) = entry.content { change } else { nil }
      }
      let familyWrites = FamilyWrites(
        stored: family, line: line, rule: rule,
        entries: entries.map { SourcedEntry(entry: $0, source: arrival.source) },
        names: context.names, catalogue: catalogue)
      writes += try familyWrites.statements()
      let recorded = RecordedFamily(
        family, line: line, rule: rule, changes: changes, holdings: familyWrites.holdings,
        entries: entries, names: context.names)
      for id in ids { recording.families[id] = recorded }
    }
    return (recording, writes)
  }
}

extension RecordedFamily {
  /// A family that was only read.
  init(_ stored: StoredFamily, line: Line, rule: OwnershipRule, names: [AccountKey: String]) {
    self.init(
      stored, line: line, rule: rule, changes: [], holdings: HoldingChange(), entries: [],
      names: names)
  }

  fileprivate init(
    _ stored: StoredFamily, line: Line, rule: OwnershipRule, changes: [OwnershipChange],
    holdings: HoldingChange, entries: [LedgerEntry], names: [AccountKey: String]
  ) {
    before = stored
    self.holdings = holdings
    self.entries = entries
    self.line = line
    self.rule = rule
    self.changes = changes
    let before = Dictionary(
      uniqueKeysWithValues: stored.rule.charges.map { ($0.id, $0.revocation) })
    revocationChanges = rule.charges.filter { charge in
      (before[charge.id] ?? nil) != charge.revocation
    }
    self.names = names
    var (orders, deliveries): ([Charge.ID: UUID], [Charge.ID: Timestamp]) = ([:], [:])
    for charge in rule.charges {
      let fulfilment = stored.fulfilment(of: charge)
      orders[charge.id] = fulfilment.orderID
      deliveries[charge.id] = fulfilment.deliveredAt
    }
    self.orders = orders
    self.deliveries = deliveries
  }
}

extension Act {
  /// Whom an administrator or an import gives something.
  fileprivate var placedAccount: AccountKey? {
    switch self {
    case .claim: nil
    case .placement(let placement): placement.account
    case .linePlacement(let placement): placement.account
    }
  }
}

extension Arrival.AccountClaim {
  /// The claims on the transactions of some lines, in order.
  ///
  /// A claim on a transaction that nobody has heard of is none.
  fileprivate func acts(on lines: Set<LineID>, in line: Line, evidence: [Evidence]) -> [Act] {
    let arriving = Set(
      evidence.compactMap { item -> TransactionKey? in
        if case .transaction(let record) = item { record.key } else { nil }
      })
    return
      transactions
      .filter { lines.contains($0.line) && (arriving.contains($0) || line.history[$0] != nil) }
      .map { .claim(Claim(account: account, transaction: $0, receivedAt: receivedAt)) }
  }
}
