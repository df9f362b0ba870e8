import Foundation
import Subscriptions

/// The facts of one moment: one answer from Apple, or simultaneous actions.
enum Item: Hashable, Sendable {
  case evidence(Evidence)
  case actions([OwnershipAction])
}

/// A line with everything that its ledger appended, for the stories of tests.
struct Ledger {
  private(set) var line: OriginalTransaction
  private(set) var items: [LedgerItem] = []
  private(set) var now: Timestamp

  /// - Parameters:
  ///   - members: The original transactions that are replayed as one.
  ///   - orders: The orders that accounts opened.
  ///   - erasures: When accounts were erased.
  ///   - merges: The accounts that were merged into others.
  init(
    members: [OriginalTransactionKey] = [mainKey], orders: Set<OpenedOrder> = [],
    erasures: [AccountKey: Timestamp] = [:], merges: [AccountKey: AccountMerge] = [:]
  ) {
    line = OriginalTransaction(members: members)
    now = day(0, minus(ms))
    line.updateContext { $0.know(orders: orders, erasures: erasures, merges: merges) }
  }

  @discardableResult
  mutating func record(_ facts: [Item], at moment: Timestamp? = nil) -> [LedgerItem] {
    now = max(now + ms, moment ?? now)
    var (evidence, actions): ([Evidence], [OwnershipAction]) = ([], [])
    for fact in facts {
      switch fact {
      case .evidence(let item): evidence.append(item)
      case .actions(let several): actions += several
      }
    }
    let new = line.record(evidence, actions: actions, at: now).items
    items += new
    return new
  }

  @discardableResult
  mutating func receive(_ records: TransactionRecord..., at moment: Timestamp? = nil)
    -> [LedgerItem]
  {
    record(records.map { .evidence(.transaction($0)) }, at: moment)
  }

  @discardableResult
  mutating func receive(_ statuses: [RenewalStatus], at moment: Timestamp? = nil) -> [LedgerItem] {
    record(statuses.map { .evidence(.renewalStatus($0, line: mainKey)) }, at: moment)
  }

  /// A claim that arrived an hour after the purchase, unless it is said when.
  @discardableResult
  mutating func claim(
    _ transaction: TransactionKey, by account: AccountKey, receivedAt: Timestamp? = nil
  ) -> [LedgerItem] {
    let anHourLater = (line.history[transaction]?.chargedAt ?? now) + .hours(1)
    return record([claimItem(transaction, by: account, receivedAt: receivedAt ?? anHourLater)])
  }

  mutating func open(_ order: OpenedOrder) {
    line.updateContext { $0.orders.insert(order) }
  }

  /// Merges an account into another, as an administrator does: all of it that the account owns is
  /// placed with the other one.
  @discardableResult
  mutating func merge(_ account: AccountKey, into other: AccountKey) -> [LedgerItem] {
    let owned = line.decisions.filter { $0.value.decision.owner == account }.keys.sorted()
    let dates = rule.charges.map { $0.date + ms }
    // Nothing has arrived yet that will only arrive: a claim's date can be ahead of the clock here.
    let claims = line.history.actions.compactMap { action in
      if case .claim(let claim) = action.action { claim.receivedAt + ms } else { nil }
    }
    let moment = ([now + ms] + dates + claims).max() ?? now
    line.updateContext { $0.merges[account] = AccountMerge(into: other, at: moment) }
    return record([
      .actions(
        owned.map {
          .ownerOverride(OwnerOverride(account: other, transaction: $0, effectiveFrom: now))
        })
    ])
  }

  @discardableResult
  mutating func place(
    _ transaction: TransactionKey, with account: AccountKey?, from moment: Timestamp
  ) -> [LedgerItem] {
    record([overrideItem(transaction, with: account, from: moment)])
  }

  @discardableResult
  mutating func `import`(
    _ line: OriginalTransactionKey = mainKey, for account: AccountKey, boughtUntil: Timestamp
  ) -> [LedgerItem] {
    record([importItem(line, for: account, boughtUntil: boughtUntil)])
  }

  // MARK: Results

  var rule: OwnershipRule { OwnershipRule(line.history) }

  /// The charge that a transaction reports.
  func charge(_ id: TransactionID) -> Charge? {
    rule.charges.first { charge in charge.transactions.contains { $0.transactionID == id } }
  }

  /// The recorded decision on the charge that a transaction reports.
  func decision(_ id: TransactionID) -> Decision? {
    charge(id).flatMap { line.decisions[$0.id]?.decision }
  }

  func owner(_ id: TransactionID) -> AccountKey? { decision(id)?.owner }

  /// The last item that decided on a charge.
  func lastAction(_ id: TransactionID) -> OwnershipChange.Action? {
    let charge = charge(id)?.id
    return items.compactMap { item in
      if case .ownership(let change) = item.content, change.charge == charge {
        change.action
      } else {
        nil
      }
    }.last
  }

  var bindings: [Binding] {
    let rule = rule
    return Binding.bindings(
      of: rule.charges,
      decisions: rule.charges.compactMap { line.decisions[$0.id]?.decision })
  }

  func holdings(of account: AccountKey) -> [Holding] {
    line.allHoldings(rule).filter { $0.account == account }.map(\.holding)
  }

  func entitlements(of account: AccountKey, at moment: Timestamp) -> [Entitlement] {
    Entitlement.entitlements(
      holdings: holdings(of: account), catalogue: catalogue, at: moment)
  }

  /// The account's premium entitlement, if it ever had it.
  func premium(_ account: AccountKey, at moment: Timestamp) -> Entitlement? {
    entitlements(of: account, at: moment).first { $0.name == "premium" }
  }

  /// The original transaction, replayed from the items in the order of an audit.
  var replayed: OriginalTransaction {
    var replayed = OriginalTransaction(members: line.heads.keys)
    replayed.updateContext {
      $0.tokenHolders = line.history.tokenHolders
      $0.orders = line.history.orders
      $0.erasures = line.history.erasures
      $0.merges = line.history.merges
    }
    let ordered = items.sorted {
      ($0.recordedAt, $0.line, $0.number) < ($1.recordedAt, $1.line, $1.number)
    }
    for item in ordered { replayed.replay(item) }
    return replayed
  }
}

extension EvidenceHistory {
  mutating func know(
    orders: Set<OpenedOrder>, erasures: [AccountKey: Timestamp],
    merges: [AccountKey: AccountMerge]
  ) {
    for account in [a, b, c, t] { tokenHolders[issuedToken(account)] = account }
    self.orders = orders
    self.erasures = erasures
    self.merges = merges
  }
}

func claimItem(
  _ transactions: TransactionKey..., by account: AccountKey, receivedAt: Timestamp
) -> Item {
  .actions(
    transactions.map {
      .claim(Claim(account: account, transaction: $0, receivedAt: receivedAt))
    })
}

func overrideItem(
  _ transaction: TransactionKey, with account: AccountKey?, from moment: Timestamp
) -> Item {
  .actions([
    .ownerOverride(OwnerOverride(account: account, transaction: transaction, effectiveFrom: moment))
  ])
}

func importItem(_ line: OriginalTransactionKey, for account: AccountKey, boughtUntil: Timestamp)
  -> Item
{
  .actions([
    .importedOverride(
      OriginalTransactionOverride(account: account, line: line, boughtUntil: boughtUntil))
  ])
}
