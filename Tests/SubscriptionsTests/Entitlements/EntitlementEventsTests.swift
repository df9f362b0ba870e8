import Foundation
import Testing

@testable import Subscriptions

/// The events about entitlements, and the date of the next change.
struct EntitlementEventsTests {
  /// The published entitlements, those of day 10, and the resulting events.
  struct Case: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let published: [ExactText: Timestamp?]
    let has: [Entitlement]
    let events: [String]

    init(
      _ name: String, published: [ExactText: Timestamp?], has: [Entitlement], events: [String]
    ) {
      testDescription = name
      self.published = published
      self.has = has
      self.events = events
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
    Case("nothing, none published", published: [:], has: [], events: []),
    Case("new",                published: [:],                  has: [premium(.active, until: 40)],           events: ["granted day 10: active until day 40"]),
    Case("new forever",        published: [:],                  has: [premium(.active, until: nil)],          events: ["granted day 10: active forever"]),
    Case("new, with grace",    published: [:],                  has: [premium(.inGracePeriod, until: 16)],    events: ["granted day 10: in_grace_period until day 16"]),
    Case("as published",       published: ["premium": day(40)], has: [premium(.active, until: 40)],           events: []),
    Case("as published, no end",  published: ["premium": never],   has: [premium(.active, until: nil)],          events: []),
    Case("longer",             published: ["premium": day(40)], has: [premium(.active, until: 70)],           events: ["extended day 10: active until day 70"]),
    Case("forever",            published: ["premium": day(40)], has: [premium(.active, until: nil)],          events: ["extended day 10: active forever"]),
    Case("shorter",            published: ["premium": day(40)], has: [premium(.active, until: 20)],           events: ["shortened day 10: active until day 20"]),
    Case("not forever",        published: ["premium": never],   has: [premium(.active, until: 20)],           events: ["shortened day 10: active until day 20"]),
    Case("over",               published: ["premium": day(9)],  has: [premium(.expired, until: 9)],           events: ["expired day 9: expired until day 9"]),
    Case("over right now",     published: ["premium": day(10)], has: [premium(.expired, until: 10)],          events: ["expired day 10: expired until day 10"]),
    Case("over, retried",      published: ["premium": day(9)],  has: [premium(.inBillingRetry, until: 9)],    events: ["expired day 9: in_billing_retry until day 9"]),
    Case("ended before the published end", published: ["premium": day(40)], has: [premium(.expired, until: 8)], events: ["expired day 10: expired until day 8"]),
    Case("revoked",            published: ["premium": day(40)], has: [premium(.revoked, until: 40)],          events: ["revoked day 10: revoked until day 40"]),
    Case("revoked when over",  published: ["premium": day(9)],  has: [premium(.revoked, until: 40)],          events: ["expired day 9: revoked until day 40"]),
    Case("another account's",    published: ["premium": day(40)], has: [],                                      events: ["revoked day 10: revoked until day 10"]),
    Case("gone when over",     published: ["premium": day(9)],  has: [],                                      events: ["expired day 9: expired until day 9"]),
    Case("again after a gap",  published: ["premium": day(9)],  has: [premium(.active, until: 40)],           events: ["expired day 9: expired until day 9", "granted day 10: active until day 40"]),
    Case("never had it",       published: [:],                  has: [premium(.expired, until: 9)],           events: []),
    Case("never could use it", published: [:],                  has: [premium(.revoked, until: 40)],          events: []),
    Case("several, by name",   published: ["premium": day(40), "old": day(3)], has: [premium(.active, until: 41), premium(.active, until: 50, named: "basic")],
      events: ["granted day 10: active until day 50", "expired day 3: expired until day 3", "extended day 10: active until day 41"]),
  ]

  @Test(arguments: cases)
  func `differences are reported`(_ example: Case) {
    let (events, published) = EntitlementEvents.events(
      for: a, published: example.published, now: example.has, at: day(10))
    #expect(events.map(\.inWords) == example.events)
    #expect(events.allSatisfy { $0.account == a && $0.data.entitlement != nil })
    #expect(published.isSame(as: active(example.has)))
    let again = EntitlementEvents.events(
      for: a, published: published, now: example.has, at: day(10))
    #expect(again.events.isEmpty)
    #expect(again.published.isSame(as: published))
  }

  // MARK: Listeners

  @Test func `the events from the beginning give what accounts may use`() {
    var kinds: [LedgerEvent.Kind: Int] = [:]
    forAll("The replayed events are the entitlements", iterations: 80) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      var published: [AccountKey: [ExactText: Timestamp?]] = [:]
      var received: [AccountKey: [ExactText: Timestamp?]] = [:]
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
          let events = EntitlementEvents.events(
            for: account, published: published[account] ?? [:], now: entitlements, at: now)
          published[account] = events.published
          for event in events.events {
            kinds[event.kind, default: 0] += 1
            if event.occurredAt > now { return "published ahead of its time: \(event.inWords)" }
            guard let entitlement = event.data.entitlement else { return "has no contents" }
            let known = received[account]?[ExactText(entitlement.name)]
            switch event.kind {
            case .entitlementGranted:
              if known != nil { return "granted twice" }
              received[account, default: [:]][ExactText(entitlement.name)] = .some(
                entitlement.accessEndsAt)
            case .entitlementExtended, .entitlementShortened:
              if known == nil { return "changed without having been granted" }
              received[account, default: [:]][ExactText(entitlement.name)] = .some(
                entitlement.accessEndsAt)
            default:
              if known == nil { return "ended without having been granted" }
              received[account]?[ExactText(entitlement.name)] = nil
            }
          }
          if !(received[account] ?? [:]).isSame(as: active(entitlements)) {
            return "\(String(describing: received[account])) is \(active(entitlements))"
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
        let next = AccessTerms(catalogue: catalogue)
          .nextChange(of: "anna", holding: holdings, granted: grants, after: now)
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
        let constancy = AccessTerms(catalogue: catalogue)
          .constancy(holding: holdings, granted: grants, around: now)
        let (first, end) = (
          max(constancy.lowerBound, now - .days(4000)),
          min(constancy.upperBound, now + .days(4000))
        )
        let same = (0..<5).map { _ in
          first
            + .milliseconds(
              Int64.random(in: 0..<(end - first).inMilliseconds, using: &generator))
        }
        for moment in [first, end - ms] + same where entitlements(at: moment) != known {
          return "a change between \(now) and \(moment), although nothing changes by time"
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

  @Test func `a product that grants nothing hides another by time`() {
    let plain: ProductID = "plain"
    let catalogue = Catalogue([
      Product(id: .monthly, validFrom: day(0), type: .autoRenewable, entitlements: ["premium"]),
      Product(id: plain, validFrom: day(0), type: .autoRenewable, entitlements: []),
    ])
    let holdings = [(ProductID.monthly, 0.0), (plain, 20)].map { product, begin in
      Holding(
        charge: key("1", product), productID: product, startsAt: day(begin), endsAt: day(40))
    }
    func names(at moment: Timestamp) -> [String] {
      Entitlement.entitlements(holdings: holdings, catalogue: catalogue, at: moment).map(\.name)
    }
    let constancy = AccessTerms(catalogue: catalogue)
      .constancy(holding: holdings, granted: [], around: day(10))
    #expect(constancy.upperBound <= day(20))
    #expect(names(at: constancy.upperBound - ms) == ["premium"])
    #expect(names(at: day(21)) == [])
  }

  @Test func `what grants nothing has no next change`() {
    func holding(_ product: ProductID, until end: Double?) -> Holding {
      Holding(
        charge: key("1", product), productID: product, startsAt: day(0),
        endsAt: end.map { day($0) })
    }
    func next(_ holdings: Holding...) -> Timestamp? {
      AccessTerms(catalogue: catalogue)
        .nextChange(of: "anna", holding: holdings, granted: [], after: day(10))
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
  /// An entitlement's event: its kind, its time, and the entitlement after it.
  fileprivate var inWords: String {
    let entitlement = data.entitlement
    let name = kind.rawValue.dropFirst("entitlement.".count)
    let end = entitlement?.accessEndsAt.map { "until \($0.inDays)" } ?? "forever"
    return "\(name) \(occurredAt.inDays): \(entitlement?.state.rawValue ?? "") \(end)"
  }
}
