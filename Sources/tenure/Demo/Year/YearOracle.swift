import AppStoreSimulator
import Subscriptions

/// What is true, told by who knows it: the App Store, which charged, and the story, which knows who
/// held the phone.
///
/// It shares no code with what it judges. Owners need no rule here: people live so that nobody
/// could doubt whose a charge is.
struct YearOracle {
  /// A charge and whose it is.
  struct OwnedCharge {
    let charge: SimulatedCharge
    /// Nil: nobody's app has ever heard of it.
    let owner: String?
  }

  /// What is true of one account.
  struct Account: Equatable {
    /// Each charge that is the account's, with the date of its refund.
    var charges: [TransactionID: Timestamp?] = [:]
    /// Until when it may use what; nil: for ever.
    var access: [String: Timestamp?] = [:]
  }

  private let simulation: AppStoreSimulation
  private var buyers: [TransactionID: String] = [:]
  /// The orders that a charge has to have fulfilled, by their ids.
  private(set) var orders: [String: TransactionID] = [:]
  /// All that were opened, paid or not.
  private(set) var openedOrders: [String] = []
  /// Until when access goes on, of subscriptions that Apple can't collect for.
  private var graces: [OriginalTransactionID: Timestamp] = [:]
  /// Subscriptions that Apple can't collect for.
  private var troubled: Set<OriginalTransactionID> = []
  /// How many things Apple has done.
  private(set) var events = 0

  init(simulation: AppStoreSimulation) {
    self.simulation = simulation
  }

  // MARK: Learning

  /// Keeps who was logged in where something was bought, and perhaps for which order.
  mutating func note(_ account: String, bought transaction: TransactionID, for order: String?) {
    buyers[transaction] = account
    if let order { orders[order] = transaction }
  }

  /// Keeps that an order was opened; nobody may ever pay for it.
  mutating func note(openedOrder id: String) {
    openedOrders.append(id)
  }

  /// Hears what Apple has done since the last time.
  mutating func hear() {
    let news = simulation.events(after: events)
    events += news.count
    for event in news {
      let line = event.originalTransactionID
      switch event.kind {
      case .renewalFailed(let graceUntil):
        troubled.insert(line)
        graces[line] = graceUntil
      case .subscribed, .resubscribed, .renewed, .recovered, .upgraded, .expired, .refunded:
        troubled.remove(line)
        graces[line] = nil
      default: break
      }
    }
  }

  // MARK: Telling

  /// Whether Apple is still trying to collect.
  func isTroubled(_ line: OriginalTransactionID) -> Bool { troubled.contains(line) }

  /// What an Apple ID was charged for, line by line, with owners.
  ///
  /// Who buys owns; who owns what Apple renews owns the renewal.
  func charges(of appleID: AppleID) -> [OwnedCharge] {
    var holders: [OriginalTransactionID: String] = [:]
    return simulation.truth(of: appleID).map { charge in
      let owner =
        charge.kind == .purchase
        ? buyers[charge.transactionID] : holders[charge.originalTransactionID]
      holders[charge.originalTransactionID] = owner
      return OwnedCharge(charge: charge, owner: owner)
    }
  }

  /// The last things that Apple did on lines of which an account owns charges: where to look.
  func lastDeeds(for account: Account) -> String {
    let lines = Set(
      account.charges.keys.compactMap { try? simulation.truth(of: $0).originalTransactionID })
    let deeds = simulation.events().filter { lines.contains($0.originalTransactionID) }
    return deeds.suffix(Self.toldDeeds).map {
      "\($0.at.day) \($0.kind.name) \($0.productID) \($0.originalTransactionID)"
    }.joined(separator: ", ")
  }

  private static let toldDeeds = 6

  /// The truth about every account that owns anything.
  func accounts(of appleIDs: [AppleID], at now: Timestamp) -> [String: Account] {
    var accounts: [String: Account] = [:]
    for appleID in appleIDs {
      let charges = charges(of: appleID)
      let latest = Dictionary(
        charges.map { ($0.charge.originalTransactionID, $0.charge.transactionID) },
        uniquingKeysWith: { $1 })
      let shares = Dictionary(grouping: charges) { owned in
        Share(account: owned.owner, line: owned.charge.originalTransactionID)
      }
      for (share, owned) in shares {
        guard let account = share.account else { continue }
        for charge in owned.map(\.charge) {
          accounts[account, default: Account()].charges[charge.transactionID] = .some(
            charge.revokedAt)
        }
        let parts = owned.map(\.charge).filter { $0.revokedAt == nil && $0.upgradedAt == nil }
        for (name, end) in access(to: parts, latest: latest[share.line], at: now) {
          let known = accounts[account]?.access[name]
          accounts[account]?.access[name] = .some(known.map { longer($0, end) } ?? end)
        }
      }
    }
    return accounts
  }

  /// What one account has of one line.
  private struct Share: Hashable {
    let account: String?
    let line: OriginalTransactionID
  }

  /// What charges of one line that count give at a moment, and until when.
  private func access(
    to charges: [SimulatedCharge], latest: TransactionID?, at now: Timestamp
  ) -> [String: Timestamp?] {
    let begun = charges.filter { $0.purchaseDate <= now }
    guard let current = begun.max(by: { isEarlier(end(of: $0), end(of: $1)) }) else { return [:] }
    let names = DemoCatalogue.entitlements[current.productID] ?? []
    guard current.productType != .consumable else { return [:] }
    guard let end = end(of: current) else {
      return Dictionary(uniqueKeysWithValues: names.map { ($0, nil) })
    }
    if end <= now {
      let grace = graces[current.originalTransactionID]
      guard current.transactionID == latest, let grace, now < grace else { return [:] }
      return Dictionary(uniqueKeysWithValues: names.map { ($0, grace) })
    }
    // Renewals are charged up to a day before the period ends.
    let following = charges.filter { $0.purchaseDate > now }
    return Dictionary(
      uniqueKeysWithValues: names.map { name in
        let next = following.first {
          $0.purchaseDate <= end && DemoCatalogue.entitlements[$0.productID]?.contains(name) == true
        }
        return (name, next.map { self.end(of: $0) } ?? end)
      })
  }

  private func end(of charge: SimulatedCharge) -> Timestamp? {
    charge.productType == .nonRenewing
      ? DemoCatalogue.seasonLength.end(from: charge.purchaseDate) : charge.expiresDate
  }

  /// No end is the latest of all.
  private func isEarlier(_ lhs: Timestamp?, _ rhs: Timestamp?) -> Bool {
    guard let lhs else { return false }
    return rhs.map { lhs < $0 } ?? true
  }

  private func longer(_ lhs: Timestamp?, _ rhs: Timestamp?) -> Timestamp? {
    isEarlier(lhs, rhs) ? rhs : lhs
  }
}
