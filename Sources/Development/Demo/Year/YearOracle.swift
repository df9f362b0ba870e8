import AppStoreSimulator
import Foundation
import LedgerStorage
import Subscriptions

/// The truth, from the App Store's charges and from who was logged in at each purchase.
///
/// It shares no code with Tenure. Owners need no rule here because no charge is ambiguous.
struct YearOracle {
  struct OwnedCharge {
    let charge: SimulatedCharge
    /// Nil: no buyer was recorded.
    let owner: String?
  }

  struct Account: Equatable {
    /// The account's charges, with the date of their refund.
    var charges: [TransactionID: Timestamp?] = [:]
    /// The end of access by entitlement; nil: forever.
    var access: [String: Timestamp?] = [:]
  }

  private let simulation: AppStoreSimulation
  private var buyers: [TransactionID: String] = [:]
  /// Orders by ID, with the charge that must have fulfilled them.
  private(set) var orders: [String: TransactionID] = [:]
  private(set) var openedOrders: [String] = []
  /// The end of the grace period of subscriptions in billing retry.
  private var graces: [OriginalTransactionID: Timestamp] = [:]
  /// Subscriptions in billing retry.
  private var troubled: Set<OriginalTransactionID> = []
  /// The number of App Store events so far.
  private(set) var events = 0

  init(simulation: AppStoreSimulation) {
    self.simulation = simulation
  }

  // MARK: Recording

  /// Records who was logged in at a purchase, and the order it was for.
  mutating func note(_ account: String, bought transaction: TransactionID, for order: String?) {
    buyers[transaction] = account
    if let order { orders[order] = transaction }
  }

  /// Records an opened order, which may never be paid.
  mutating func note(openedOrder id: String) {
    openedOrders.append(id)
  }

  /// Takes in the App Store's new events.
  mutating func receive() {
    let newEvents = simulation.events(after: events)
    events += newEvents.count
    for event in newEvents {
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

  // MARK: Answers

  /// Whether a subscription is in billing retry.
  func isTroubled(_ line: OriginalTransactionID) -> Bool { troubled.contains(line) }

  /// The charges of an Apple ID with their owners.
  ///
  /// The buyer owns a purchase; the owner of a charge owns the renewal that follows it.
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

  /// The latest App Store events on an account's original transactions, for diagnosis.
  func lastEvents(for account: Account) -> String {
    let lines = Set(
      account.charges.keys.compactMap { try? simulation.truth(of: $0).originalTransactionID })
    let events = simulation.events().filter { lines.contains($0.originalTransactionID) }
    return events.suffix(Self.reportedEvents).map {
      "\($0.at.day) \($0.kind.name) \($0.productID) \($0.originalTransactionID)"
    }.joined(separator: ", ")
  }

  private static let reportedEvents = 6

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

  /// An account's charges of one original transaction.
  private struct Share: Hashable {
    let account: String?
    let line: OriginalTransactionID
  }

  /// The entitlements from charges of one original transaction at a moment, with their ends.
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

  /// Nil, which is forever, is later than any date.
  private func isEarlier(_ lhs: Timestamp?, _ rhs: Timestamp?) -> Bool {
    guard let lhs else { return false }
    return rhs.map { lhs < $0 } ?? true
  }

  private func longer(_ lhs: Timestamp?, _ rhs: Timestamp?) -> Timestamp? {
    isEarlier(lhs, rhs) ? rhs : lhs
  }
}

/// Prints the progress and the results of a year.
final class YearDiary {
  private static let reportedDifferences = 20

  private let printer: StoryPrinter
  private let begin = ContinuousClock.now
  private var hasBegun = false
  private var month = ""

  init(printer: StoryPrinter) {
    self.printer = printer
  }

  /// Prints the progress: in place on a terminal, otherwise one line a month.
  func note(_ year: Year) {
    if !hasBegun { open(year.plan) }
    let day = year.now.day
    guard StoryPrinter.isTerminal || day.prefix(7) != month else { return }
    month = String(day.prefix(7))
    let text = "  \(day)  \(year.submissions) submissions, \(year.oracle.events) App Store events"
    printer.write(
      (StoryPrinter.isTerminal ? "\r" : "") + text + (StoryPrinter.isTerminal ? "" : "\n"))
  }

  private func open(_ plan: YearPlan) {
    hasBegun = true
    printer.heading("\(plan.customers) customers live through \(plan.length.months) months")
    printer.line(
      """
      Cards fail, accounts switch, plans change, purchases are refunded. Apple's notifications
      arrive late, twice and out of order, and those of one week are lost. Apple has two outages,
      one of 9 and one of 40 hours.
      """)
  }

  func close(_ comparison: YearComparison) {
    printer.line()
    let seconds = (ContinuousClock.now - begin).components.seconds
    printer.remark(
      "\(comparison.submissions) submissions and \(comparison.notifications) notifications ("
        + "\(comparison.lost) lost and found in Apple's history) for \(comparison.charges) "
        + "charges, \(comparison.refunds) of them refunded, in \(seconds) seconds.")
    printer.check(
      comparison.differences.isEmpty,
      "Tenure's answers about \(comparison.accounts) accounts of \(comparison.customers) customers "
        + "(entitlements, charges, \(comparison.orders) orders, \(comparison.events) events) "
        + "compared with the truth: \(comparison.differences.count) differences.")
    printer.check(
      comparison.audit.isClean,
      "Ledger audit: \(comparison.audit.entries) entries, "
        + "\(comparison.audit.differences.count) differences.")
    for difference in comparison.differences.prefix(Self.reportedDifferences) {
      printer.remark("✗ \(difference)")
    }
    for difference in comparison.audit.differences.prefix(Self.reportedDifferences) {
      printer.remark("✗ \(difference)")
    }
  }
}

/// A reader of the event feed that derives entitlements from events alone.
struct YearFollower {
  /// The end of access by account and entitlement; nil: forever.
  private(set) var access: [String: [String: Timestamp?]] = [:]
  private(set) var events = 0
  /// Duplicate events, and changes of entitlements that were never granted.
  private(set) var findings: [String] = []
  private var ids: Set<String> = []

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
      findings.append("\(event.type) \(event.id) has no account or no entitlement")
      return
    }
    let name = entitlement.name
    let isKnown = access[account]?[name] != nil
    let begins = event.type == "entitlement.granted"
    if isKnown == begins {
      findings.append(
        "\(event.type) of \(name) for \(account), which is \(isKnown ? "already" : "not") active "
          + "in the feed")
    }
    switch event.type {
    case "entitlement.granted", "entitlement.extended", "entitlement.shortened":
      access[account, default: [:]][name] = .some(try entitlement.accessEnd)
    default:
      access[account, default: [:]].removeValue(forKey: name)
    }
  }
}
