import Foundation
import Testing

@testable import Subscriptions

/// What is told of entitlements, and when it has to be looked at again.
struct EntitlementNewsTests {
  /// What was told, what there is on day 10, and what is told of it.
  struct Case: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let told: [ExactText: Timestamp?]
    let has: [Entitlement]
    let news: [String]

    init(
      _ name: String, told: [ExactText: Timestamp?], has: [Entitlement], news: [String]
    ) {
      testDescription = name
      self.told = told
      self.has = has
      self.news = news
    }
  }

  static func premium(
    _ state: Entitlement.State, until end: Double?, named name: String = "premium"
  ) -> Entitlement {
    let end = end.map { day($0) }
    return Entitlement(
      name: name, state: state, productID: .monthly, expiresAt: end, accessEndsAt: end,
      willRenew: false, periodType: .normal, environment: .production,
      originalTransactionID: "1000", transactionID: "1", source: .appStore)
  }

  static let never: Timestamp? = nil

  // swift-format-ignore
  static let cases: [Case] = [
    Case("nothing, and nothing told", told: [:], has: [], news: []),
    Case("new",                told: [:],                  has: [premium(.active, until: 40)],           news: ["granted day 10: active until day 40"]),
    Case("new for ever",       told: [:],                  has: [premium(.active, until: nil)],          news: ["granted day 10: active for ever"]),
    Case("new, with grace",    told: [:],                  has: [premium(.inGracePeriod, until: 16)],    news: ["granted day 10: in_grace_period until day 16"]),
    Case("as told",            told: ["premium": day(40)], has: [premium(.active, until: 40)],           news: []),
    Case("as told for ever",   told: ["premium": never],   has: [premium(.active, until: nil)],          news: []),
    Case("longer",             told: ["premium": day(40)], has: [premium(.active, until: 70)],           news: ["extended day 10: active until day 70"]),
    Case("for ever",           told: ["premium": day(40)], has: [premium(.active, until: nil)],          news: ["extended day 10: active for ever"]),
    Case("shorter",            told: ["premium": day(40)], has: [premium(.active, until: 20)],           news: ["shortened day 10: active until day 20"]),
    Case("not for ever",       told: ["premium": never],   has: [premium(.active, until: 20)],           news: ["shortened day 10: active until day 20"]),
    Case("over",               told: ["premium": day(9)],  has: [premium(.expired, until: 9)],           news: ["expired day 9: expired until day 9"]),
    Case("over right now",     told: ["premium": day(10)], has: [premium(.expired, until: 10)],          news: ["expired day 10: expired until day 10"]),
    Case("over, retried",      told: ["premium": day(9)],  has: [premium(.inBillingRetry, until: 9)],    news: ["expired day 9: in_billing_retry until day 9"]),
    Case("over before it was told to be", told: ["premium": day(40)], has: [premium(.expired, until: 8)], news: ["expired day 10: expired until day 8"]),
    Case("revoked",            told: ["premium": day(40)], has: [premium(.revoked, until: 40)],          news: ["revoked day 10: revoked until day 40"]),
    Case("revoked when over",  told: ["premium": day(9)],  has: [premium(.revoked, until: 40)],          news: ["expired day 9: revoked until day 40"]),
    Case("somebody else's",    told: ["premium": day(40)], has: [],                                      news: ["revoked day 10: revoked until day 10"]),
    Case("gone when over",     told: ["premium": day(9)],  has: [],                                      news: ["expired day 9: expired until day 9"]),
    Case("again after a gap",  told: ["premium": day(9)],  has: [premium(.active, until: 40)],           news: ["expired day 9: expired until day 9", "granted day 10: active until day 40"]),
    Case("never had it",       told: [:],                  has: [premium(.expired, until: 9)],           news: []),
    Case("never could use it", told: [:],                  has: [premium(.revoked, until: 40)],          news: []),
    Case("several, by name",   told: ["premium": day(40), "old": day(3)], has: [premium(.active, until: 41), premium(.active, until: 50, named: "basic")],
      news: ["granted day 10: active until day 50", "expired day 3: expired until day 3", "extended day 10: active until day 41"]),
  ]

  @Test(arguments: cases)
  func `what differs is told`(_ example: Case) {
    let (events, told) = EntitlementEvents.events(
      for: a, told: example.told, now: example.has, at: day(10))
    #expect(events.map(\.inWords) == example.news)
    #expect(events.allSatisfy { $0.account == a && $0.data.entitlement != nil })
    #expect(told.isSame(as: active(example.has)))
    let again = EntitlementEvents.events(for: a, told: told, now: example.has, at: day(10))
    #expect(again.events.isEmpty)
    #expect(again.told.isSame(as: told))
  }

  // MARK: Listeners

  @Test func `the events from the beginning give what accounts may use`() {
    var kinds: [LedgerEvent.Kind: Int] = [:]
    forAll("The replayed events are the entitlements", iterations: 80) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      var told: [AccountKey: [ExactText: Timestamp?]] = [:]
      var heard: [AccountKey: [ExactText: Timestamp?]] = [:]
      var now = day(-1)
      var remaining = batches(rearranged(history.items, using: &generator), using: &generator)[...]
      while true {
        // Either time passes, or something arrives.
        now = now + generator.pick(ms, .hours(1), .days(1), .days(20))
        if generator.once(in: 2) {
          guard let batch = remaining.popFirst() else { break }
          ledger.record(batch)
        }
        for account in [a, b, c, t] {
          let entitlements = ledger.entitlements(of: account, at: now)
          let news = EntitlementEvents.events(
            for: account, told: told[account] ?? [:], now: entitlements, at: now)
          told[account] = news.told
          for event in news.events {
            kinds[event.kind, default: 0] += 1
            if event.occurredAt > now { return "told ahead of its time: \(event.inWords)" }
            guard let entitlement = event.data.entitlement else { return "tells nothing" }
            let known = heard[account]?[ExactText(entitlement.name)]
            switch event.kind {
            case .entitlementGranted:
              if known != nil { return "granted twice" }
              heard[account, default: [:]][ExactText(entitlement.name)] = .some(
                entitlement.accessEndsAt)
            case .entitlementExtended, .entitlementShortened:
              if known == nil { return "changed without having been granted" }
              heard[account, default: [:]][ExactText(entitlement.name)] = .some(
                entitlement.accessEndsAt)
            default:
              if known == nil { return "ended without having been granted" }
              heard[account]?[ExactText(entitlement.name)] = nil
            }
          }
          if !(heard[account] ?? [:]).isSame(as: active(entitlements)) {
            return "\(String(describing: heard[account])) is \(active(entitlements))"
          }
        }
      }
      return nil
    }
    #expect(kinds.count == 5, "the property is about something: \(kinds)")
  }

  // MARK: The next change

  @Test func `between now and the next change nothing changes`() {
    var (changes, ends) = (0, 0)
    forAll("Nothing changes before the next change", iterations: 150) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      ledger.record(rearranged(history.items, using: &generator))
      let account = generator.pick(a, b, c, t)
      let holdings = ledger.holdings(of: account)
      let grants = (0..<generator.number(0...2)).map { _ in
        let start = day(Double(generator.number(0...150)))
        return Grant(
          id: UUID(), entitlement: generator.pick("premium", "basic"), startsAt: start,
          endsAt: generator.pick(nil, start + .days(generator.number(1...90))))
      }
      func entitlements(at moment: Timestamp) -> [Entitlement] {
        Entitlement.entitlements(
          holdings: holdings, grants: grants, catalogue: catalogue, at: moment)
      }
      var now = day(-1)
      while true {
        let next = EntitlementEvents.nextChange(
          holdings: holdings, grants: grants, catalogue: catalogue, after: now)
        let last = next.map { $0 - ms } ?? now + .days(4000)
        if last < now { return "the next change is not later" }
        let span = (last - now).inMilliseconds
        let between = (0..<5).map { _ in
          now + .milliseconds(Int64.random(in: 0...span, using: &generator))
        }
        let known = entitlements(at: now)
        for moment in between + [last] where entitlements(at: moment) != known {
          return "a change before \(moment), and not at \(String(describing: next))"
        }
        guard let next else {
          ends += 1
          return nil
        }
        changes += entitlements(at: next) == known ? 0 : 1
        now = next
      }
    }
    #expect(changes > 0 && ends > 0, "the property is about something")
  }

  @Test func `what grants nothing has no next change`() {
    func holding(_ product: ProductID, until end: Double?) -> Holding {
      Holding(
        charge: key("1", product), productID: product, startsAt: day(0),
        endsAt: end.map { day($0) })
    }
    func next(_ holdings: Holding...) -> Timestamp? {
      EntitlementEvents.nextChange(
        holdings: holdings, grants: [], catalogue: catalogue, after: day(10))
    }
    #expect(next(holding(.monthly, until: 30)) == day(30))
    #expect(next(holding(.monthly, until: 10)) == nil)
    #expect(next(holding("unknown", until: 30)) == nil)
    #expect(next(holding(.gems, until: nil)) == nil)
    #expect(next(holding(.lifetime, until: nil)) == nil)
    #expect(next(holding(.season, until: nil)) == day(31))
  }
}

private func active(_ entitlements: [Entitlement]) -> [ExactText: Timestamp?] {
  Dictionary(
    uniqueKeysWithValues: entitlements.filter(\.isActive).map {
      (ExactText($0.name), $0.accessEndsAt)
    })
}

extension [ExactText: Timestamp?] {
  /// Dictionaries of optionals are not compared by `==`.
  fileprivate func isSame(as other: Self) -> Bool {
    count == other.count
      && allSatisfy { name, end in other[name].map { $0 == end } ?? false }
  }
}

extension LedgerEvent {
  /// The event of an entitlement: what, when, and what is there now.
  fileprivate var inWords: String {
    let entitlement = data.entitlement
    let name = kind.rawValue.dropFirst("entitlement.".count)
    let end = entitlement?.accessEndsAt.map { "until \($0.inDays)" } ?? "for ever"
    return "\(name) \(occurredAt.inDays): \(entitlement?.state.rawValue ?? "") \(end)"
  }
}
