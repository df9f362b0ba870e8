import AppStoreSimulator
import Foundation
import LedgerStorage
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

/// Tells the terminal how a year goes, and how it came out.
final class YearDiary {
  /// How many differences are told; their number always is.
  private static let toldDifferences = 20

  private let printer: StoryPrinter
  private let begin = ContinuousClock.now
  private let isTerminal = isatty(STDOUT_FILENO) == 1
  private var hasBegun = false
  private var month = ""

  init(printer: StoryPrinter) {
    self.printer = printer
  }

  /// Tells how far the year is: in one line of a terminal, or else a line for each month.
  func note(_ year: Year) {
    if !hasBegun { open(year.plan) }
    let day = year.now.day
    guard isTerminal || day.prefix(7) != month else { return }
    month = String(day.prefix(7))
    let text = "  \(day)  \(year.submissions) submissions, \(year.oracle.events) of Apple's deeds"
    printer.write((isTerminal ? "\r" : "") + text + (isTerminal ? "" : "\n"))
  }

  private func open(_ plan: YearPlan) {
    hasBegun = true
    printer.heading("∞", "\(plan.customers) customers live through \(plan.length.months) months")
    printer.line(
      """
      Cards fail, accounts switch, plans change, money is given back. Apple's notifications come
      late, twice and in the wrong order, and those of one week are lost; twice Apple is down, for
      hours and for more than a day.
      """)
  }

  /// Tells how it came out.
  func close(_ comparison: YearComparison) {
    printer.line()
    let seconds = (ContinuousClock.now - begin).components.seconds
    printer.remark(
      "\(comparison.submissions) submissions and \(comparison.notifications) notifications ("
        + "\(comparison.lost) lost, and found in Apple's history) about "
        + "\(comparison.charges) charges, \(comparison.refunds) of them refunded, in "
        + "\(seconds) seconds.")
    printer.check(
      comparison.differences.isEmpty,
      "What Tenure says of \(comparison.accounts) accounts of \(comparison.customers) customers - "
        + "what each may use until when, what it owns, \(comparison.orders) orders, what "
        + "\(comparison.events) events come to - has \(comparison.differences.count) differences "
        + "from what is true.")
    printer.check(
      comparison.audit.isClean,
      "The ledger, recomputed: \(comparison.audit.entries) entries, "
        + "\(comparison.audit.differences.count) differences.")
    for difference in comparison.differences.prefix(Self.toldDifferences) {
      printer.remark("✗ \(difference)")
    }
    for difference in comparison.audit.differences.prefix(Self.toldDifferences) {
      printer.remark("✗ \(difference)")
    }
  }
}

/// What somebody knows of accounts' access who only follows the feed, from nothing on.
struct YearFollower {
  /// Until when each account may use what; nil: for ever.
  private(set) var access: [String: [String: Timestamp?]] = [:]
  private(set) var events = 0
  /// What cannot be right: something told twice, or that never began.
  private(set) var findings: [String] = []
  private var ids: Set<String> = []

  /// Follows the feed to its end.
  ///
  /// - Throws: What Tenure says.
  mutating func follow(_ tenure: TenureClient) async throws {
    var cursor: String?
    while true {
      let page = try await tenure.events(after: cursor)
      guard !page.events.isEmpty else { return }
      for event in page.events { try take(event) }
      cursor = page.next
    }
  }

  private mutating func take(_ event: TenureClient.Event) throws {
    events += 1
    if !ids.insert(event.id).inserted { findings.append("event \(event.id) is in the feed twice") }
    guard event.type.hasPrefix("entitlement.") else { return }
    guard let account = event.account, let entitlement = event.data.entitlement else {
      findings.append("\(event.type) \(event.id) names no account or no entitlement")
      return
    }
    let name = entitlement.name
    let isKnown = access[account]?[name] != nil
    let begins = event.type == "entitlement.granted"
    if isKnown == begins {
      findings.append(
        "the feed tells \(account) \(event.type) of \(name), which \(isKnown ? "is" : "is not") "
          + "known to be active")
    }
    switch event.type {
    case "entitlement.granted", "entitlement.extended", "entitlement.shortened":
      access[account, default: [:]][name] = .some(try entitlement.accessEnd)
    default:
      access[account, default: [:]].removeValue(forKey: name)
    }
  }
}
