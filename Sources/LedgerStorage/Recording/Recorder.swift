package import Foundation
import Postgres
package import Subscriptions

/// Evidence, claims and overrides that are recorded in one database transaction.
struct EvidenceBatch: Sendable {
  /// With the links that it shows, once its original transactions are locked.
  var evidence: [Evidence] = []
  /// An account's claim on transactions that it submitted, in the order of their purchase dates.
  var claim: (account: AccountKey, transactions: [TransactionKey], receivedAt: Timestamp)?
  var ownerOverrides: [OwnerOverride] = []
  var importedOverrides: [OriginalTransactionOverride] = []
  var source: EntrySource
}

/// Everything that a recording is decided from.
struct Snapshot: Sendable {
  fileprivate let arrival: EvidenceBatch
  fileprivate let originals: [(stored: StoredOriginalTransaction, context: Recorder.Context)]
}

/// Records evidence and overrides.
///
/// Every recording takes the same steps in one database transaction, usually of two round trips:
/// lock and load, decide, load the affected orders and accounts, plan, commit. Notifications are
/// sent after the commit.
struct Recorder: LedgerStore {
  package let core: LedgerCore

  /// Locks and reads the original transactions that evidence is about, in one round trip with other
  /// queries, and adds the links that it shows.
  ///
  /// They are locked in their order, so that two recordings never wait for each other; one that
  /// turns out to be linked is locked after the others, and should that cross another recording,
  /// PostgreSQL ends one of the two, which is then tried again.
  func lock<Before, After>(
    linesOf evidence: [Evidence], before: Query<Before>, after: Query<After>,
    in transaction: Transaction
  ) async throws -> (
    originals: [StoredOriginalTransaction], evidence: [Evidence], before: Before, after: After
  ) {
    var reader = OriginalTransactionReader(isLocking: true)
    let (links, (_, first), last) = try await reader.read(
      about: evidence, before: Query(Query(Self.idleTime(for: evidence)), before), after: after,
      in: transaction)
    return (reader.originals, evidence + links, first, last)
  }

  /// Allows more idle time for the decision on many transactions, which would fail at each attempt
  /// with the usual time-out.
  private static func idleTime(for evidence: [Evidence]) -> [SQL] {
    guard evidence.count >= 1000 else { return [] }
    let milliseconds = 10_000 + 20 * evidence.count
    return [
      SQL(unescaped: "SET LOCAL idle_in_transaction_session_timeout = \(milliseconds)")
    ]
  }

  /// Reads the accounts' data that the rule needs, for locked original transactions.
  ///
  /// - Parameter accounts: Accounts that are known already, as they are after the recording.
  func load(
    _ arrival: EvidenceBatch, on locked: [StoredOriginalTransaction],
    knowing accounts: [AccountKey: KnownAccount] = [:], in transaction: Transaction
  ) async throws -> Snapshot {
    var originals: [(stored: StoredOriginalTransaction, context: Context)] = []
    for original in locked {
      let context = try await context(
        of: original, claimant: arrival.claim?.account, evidence: arrival.evidence(on: original),
        placing: Set(arrival.overrides(on: original).compactMap(\.account)), knowing: accounts,
        in: transaction)
      originals.append((original, context))
    }
    return Snapshot(arrival: arrival, originals: originals)
  }

  /// Locks and loads everything that the decision on an evidence batch depends on.
  func load(_ arrival: EvidenceBatch, in transaction: Transaction) async throws -> Snapshot {
    var arrival = arrival
    let (originals, evidence, _, _) = try await lock(
      linesOf: arrival.evidence, before: Query([]), after: Query([]), in: transaction)
    arrival.evidence = evidence
    return try await load(arrival, on: originals, in: transaction)
  }

  /// Locks and reads the orders and accounts that a recording changes.
  ///
  /// - Parameters:
  ///   - submitted: The charges and orders of a submission, if it claims any.
  ///   - known: Accounts that are locked and read already, as they are after the recording.
  func loadAffected(
    by recording: Recording, submitted: SubmittedOrders? = nil, terms: AccessTerms,
    at now: Timestamp, knowing known: [PublishedEntitlements] = [], in transaction: Transaction
  ) async throws -> AffectedState {
    var orders = OrderMatching(
      recording, submitted: submitted, terms: terms, lifetime: orderLifetime, at: now)
    orders.match(among: try await ordersInReach(of: orders, in: transaction))
    let newEvents = RecordingEvents(recording, orders: orders.events, at: now)
    let wanted = newEvents.accounts.union(known.filter(\.hasChangedGrants).map(\.key))
    var accounts = known.filter { wanted.contains($0.key) }
    let others = wanted.subtracting(known.map(\.key))
    if !others.isEmpty {
      let (published, gone) = try await lockPublished(
        others, knowing: newEvents.names, in: transaction)
      // An account was erased since the names were read. It had nothing on the original
      // transaction yet (Apple has just named its token), so the erasure did not wait for its lock.
      guard gone.isEmpty else {
        throw PostgresError.overtaken("an account was erased while something was recorded for it")
      }
      accounts += published.map {
        var account = $0
        account.apply(recording)
        return account
      }
    }
    changes.note(accounts.map(\.id), in: transaction)
    return AffectedState(
      orders: orders, newEvents: newEvents, accounts: accounts.sorted { $0.key < $1.key })
  }

  /// Plans the statements of a recording, without asking the database.
  ///
  /// - Parameters:
  ///   - polled: An original transaction of which the caller schedules the next poll.
  ///   - sealing: Whether the owners' chains get the new ends of the original transactions' chains;
  ///     else the caller leaves ``Outbox/heads`` in an account's chain.
  func plan(
    _ recording: Recording, _ affected: AffectedState, terms: AccessTerms, at now: Timestamp,
    polled: OriginalTransactionKey? = nil, sealing: Bool = true
  ) throws -> Outbox {
    let written = try recording.distinctOriginals.map { original in
      try ProjectionWriter(
        stored: original.before, line: original.line, rule: original.rule,
        items: original.items.map { ($0, recording.source) }, holdings: original.holdings,
        names: original.names, catalogue: terms.catalogue, source: recording.source,
        orders: affected.orders.assigned
      ).statements()
    }
    var plan = Outbox(affected.newEvents, affected.accounts, terms: terms, at: now)
    let writeBackJobs = writeBacks.ownershipWriteBacks(of: recording, at: now)
    plan.heads = written.reduce(into: [:]) { heads, next in heads.merge(next.heads) { $1 } }
    plan.writes =
      written.flatMap(\.statements) + affected.orders.statements + plan.writes
      + polls.appointments(of: recording, except: polled, at: now) + writeBackJobs
    plan.seals = affected.orders.seals
    if sealing {
      plan.seals += AccountChain.seal(
        zip(recording.distinctOriginals, written).map {
          (OriginalTransactionState(line: $0.line, rule: $0.rule).latestOwner, $1.heads)
        })
    }
    if !writeBackJobs.isEmpty { plan.channels.insert(.jobs) }
    return plan
  }

  /// Loads the affected orders and accounts, and plans the statements.
  func plan(
    _ recording: Recording, terms: AccessTerms, at now: Timestamp,
    knowing known: [PublishedEntitlements] = [], polled: OriginalTransactionKey? = nil,
    in transaction: Transaction
  ) async throws -> Outbox {
    let affected = try await loadAffected(
      by: recording, terms: terms, at: now, knowing: known, in: transaction)
    return try plan(recording, affected, terms: terms, at: now, polled: polled)
  }
}

/// The orders and accounts that a recording changes, locked.
struct AffectedState: Sendable {
  let orders: OrderMatching
  let newEvents: RecordingEvents
  /// By key, as they are after the recording.
  let accounts: [PublishedEntitlements]
}

// MARK: Deciding

extension Snapshot {
  /// Records an evidence batch in memory: the ownership rule runs once.
  ///
  /// - Parameter now: The recording date, unless an item of an original transaction is as late.
  func decide(at now: Timestamp) -> Recording {
    var recording = Recording(source: arrival.source)
    for (stored, context) in originals {
      var line = stored.line
      line.updateContext(context.apply)
      // Later than all earlier items: the dates order events of linked original transactions.
      let recordedAt = max(now, stored.lastRecordedAt.map { $0 + .milliseconds(1) } ?? now)
      let (items, rule) = line.record(
        arrival.evidence(on: stored), actions: arrival.actions(on: stored), at: recordedAt)
      let recorded = RecordedOriginalTransaction(
        stored, line: line, rule: rule ?? stored.rule, items: items, names: context.names)
      for id in line.heads.keys { recording.originals[id] = recorded }
    }
    return recording
  }
}

extension EvidenceBatch {
  fileprivate func evidence(on original: StoredOriginalTransaction) -> [Evidence] {
    evidence.filter { original.members[$0.line] != nil }
  }

  /// The claims and overrides on an original transaction, in order.
  ///
  /// A claim on a transaction without any evidence is none.
  fileprivate func actions(on original: StoredOriginalTransaction) -> [OwnershipAction] {
    guard let claim else { return overrides(on: original) }
    let arriving = Set(evidence(on: original).compactMap(\.transaction?.key))
    return claim.transactions.filter {
      arriving.contains($0) || original.line.history[$0] != nil
    }.map {
      .claim(Claim(account: claim.account, transaction: $0, receivedAt: claim.receivedAt))
    } + overrides(on: original)
  }

  fileprivate func overrides(on original: StoredOriginalTransaction) -> [OwnershipAction] {
    (ownerOverrides.map(OwnershipAction.ownerOverride)
      + importedOverrides.map(OwnershipAction.importedOverride))
      .filter { original.members[$0.line] != nil }
  }
}

// MARK: Results

/// The original transactions in an evidence batch, by the IDs of all that Apple links.
package struct Recording: Sendable {
  package internal(set) var originals: [OriginalTransactionKey: RecordedOriginalTransaction] = [:]
  let source: EntrySource

  /// The recorded original transaction of a transaction; nil if the batch is not about it.
  package func original(of transaction: TransactionKey) -> RecordedOriginalTransaction? {
    originals[transaction.line]
  }

  /// Each recorded original transaction once, by its smallest ID.
  var distinctOriginals: [RecordedOriginalTransaction] {
    originals.filter { $0.key == $0.value.line.heads.keys.min() }.sorted { $0.key < $1.key }
      .map(\.value)
  }

  /// Whether anything is recorded that was not known.
  package var isChanged: Bool { originals.contains { !$0.value.items.isEmpty } }
}

/// An original transaction, with those that Apple links, after a recording or as it was read.
package struct RecordedOriginalTransaction: Sendable {
  package let line: OriginalTransaction
  package let rule: OwnershipRule
  /// The decisions that the recording made; empty if it was only read.
  package let changes: [OwnershipChange]
  /// The charges that the recording found revoked, or restored.
  package let revocationChanges: [Charge]
  /// The state before the recording; the current one if it was only read.
  let before: StoredOriginalTransaction
  let holdings: HoldingChange
  /// The items that it appends, in order.
  let items: [LedgerItem]
  /// The account ids behind the keys that occur.
  package let names: [AccountKey: String]
  /// The orders and deliveries of the charges before the recording, by naming transaction.
  package let orders: [Charge.ID: UUID]
  package let deliveries: [Charge.ID: Timestamp]

  init(
    _ stored: StoredOriginalTransaction, line: OriginalTransaction, rule: OwnershipRule,
    items: [LedgerItem] = [], names: [AccountKey: String]
  ) {
    before = stored
    self.line = line
    self.rule = rule
    self.items = items
    self.names = names
    changes = items.compactMap { item in
      if case .ownership(let change) = item.content { change } else { nil }
    }
    let known = Dictionary(uniqueKeysWithValues: stored.rule.charges.map { ($0.id, $0.revocation) })
    revocationChanges = rule.charges.filter { (known[$0.id] ?? nil) != $0.revocation }
    holdings = HoldingChange(from: stored, to: line, rule, by: items)
    let fulfilments = rule.charges.map { ($0.id, stored.fulfilment(of: $0)) }
    orders = Dictionary(uniqueKeysWithValues: fulfilments).compactMapValues(\.orderID)
    deliveries = Dictionary(uniqueKeysWithValues: fulfilments).compactMapValues(\.deliveredAt)
  }

  /// The charge that a transaction reports, with its decision.
  package func charge(of transaction: TransactionKey)
    -> (charge: Charge, recorded: OriginalTransaction.RecordedDecision)?
  {
    guard let position = rule.position(of: transaction),
      let recorded = line.decisions[rule.charges[position].id]
    else { return nil }
    return (rule.charges[position], recorded)
  }

  package func hasFirstClaim(by account: AccountKey, on charge: Charge) -> Bool {
    let claims = items.contains { item in
      guard case .action(.claim(let claim)) = item.content else { return false }
      return claim.account == account && charge.transactions.contains(claim.transaction)
    }
    return claims
      && !charge.transactions.contains {
        before.line.history.hasClaim(by: account, on: $0)
      }
  }

  /// Why the owner of a charge owns it, in a sentence.
  package func explanation(of decision: Decision) -> String {
    Explanation(decision) { names[$0] ?? "an erased account" }.sentence
  }
}
