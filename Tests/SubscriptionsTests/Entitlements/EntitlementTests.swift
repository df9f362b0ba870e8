import Foundation
import Subscriptions
import Testing

struct EntitlementTests {
  /// A's holding of one original transaction, given as charges that A owns, the latest of which may renew.
  struct Case: Sendable, CustomTestStringConvertible {
    var name: String
    var holdings: [Holding]
    var at: Timestamp
    var state: Entitlement.State?
    var expires: Timestamp?
    var accessEnds: Timestamp?
    var willRenew: Bool
    var because: Entitlement.EndReason?

    /// Without another reason, what is revoked was refunded.
    init(
      _ name: String, _ holdings: [Holding], at moment: Timestamp, _ state: Entitlement.State?,
      expires: Timestamp? = nil, accessEnds: Timestamp? = nil, willRenew: Bool = false,
      because: Entitlement.EndReason? = nil
    ) {
      self.name = name
      self.holdings = holdings
      at = moment
      self.state = state
      self.expires = expires
      self.accessEnds = accessEnds ?? expires
      self.willRenew = willRenew
      self.because =
        switch state {
        case .active, .inGracePeriod, nil: nil
        case .inBillingRetry: .billing
        case .revoked: because ?? .refunded
        case .expired: because ?? .expired
        }
    }

    var testDescription: String { name }
  }

  static func holding(
    _ id: TransactionID, _ product: ProductID = .monthly, _ start: Double, _ end: Double?,
    revoked: Double? = nil, superseded: Double? = nil, moved: Double? = nil,
    renewal: Holding.Renewal? = nil, type: ProductType? = nil,
    line: OriginalTransactionKey = mainKey,
    original: OriginalTransactionID? = nil,
    period: PeriodType = .normal
  ) -> Holding {
    var holding = Holding(
      charge: key(id, product, line: line), productID: product, startsAt: day(start),
      endsAt: end.map { day($0) })
    holding.linkedTo = original
    holding.productType = type
    holding.periodType = period
    holding.graceEndsAt = renewal?.phase.graceEnd
    holding.revokedAt = revoked.map { day($0) }
    holding.supersededAt = superseded.map { day($0) }
    holding.movedAt = moved.map { day($0) }
    holding.renewal = renewal
    return holding
  }

  static func month(
    _ id: TransactionID = "1", _ start: Double = 0, _ end: Double = 30, graced: Double? = nil,
    revoked: Double? = nil, superseded: Double? = nil, moved: Double? = nil,
    then renewal: Holding.Renewal? = nil
  ) -> Holding {
    var holding = holding(
      id, .monthly, start, end, revoked: revoked, superseded: superseded, moved: moved,
      renewal: renewal)
    if let graced { holding.graceEndsAt = day(graced) }
    return holding
  }

  /// A month whose Family Sharing ends.
  static func unshared(_ day: Double) -> Holding {
    var holding = month(revoked: day)
    holding.isSharingEnded = true
    return holding
  }

  /// A month that begins a minute and `more` after day 30.
  static func minuteLater(_ more: Duration) -> Holding {
    var month = month("2", 30, 60, then: on)
    month.startsAt = day(30, .seconds(60) + more)
    return month
  }

  static func renewal(_ autoRenews: Bool, _ phase: RenewalStatus.Phase = .undisturbed)
    -> Holding.Renewal
  {
    Holding.Renewal(autoRenews: autoRenews, phase: phase)
  }

  static let on = renewal(true)
  static let off = renewal(false)
  static let grace = renewal(true, .gracePeriod(until: day(46)))
  static let retry = renewal(true, .billingRetry)
  static let over = renewal(true, .expired)

  // swift-format-ignore
  static let states: [Case] = [
    Case("not begun",                        [month()], at: day(0, minus(.minutes(5) + ms)),            nil),
    Case("begins in 5 minutes",              [month()], at: day(0, minus(.minutes(5))),                 .active,  expires: day(30)),
    Case("just begun",                       [month()], at: day(0),                                     .active,  expires: day(30)),
    Case("the last millisecond",             [month()], at: day(30, minus(ms)),                         .active,  expires: day(30)),
    Case("the millisecond of the expiry",    [month()], at: day(30),                                    .expired, expires: day(30)),

    Case("in grace",                         [month(then: grace)], at: day(30),                               .inGracePeriod, expires: day(30), accessEnds: day(46), willRenew: true),
    Case("the last millisecond of grace",    [month(then: grace)], at: day(46, minus(ms)),                    .inGracePeriod, expires: day(30), accessEnds: day(46), willRenew: true),
    Case("grace over",                       [month(then: grace)], at: day(46),                               .expired, expires: day(30), accessEnds: day(46), because: .billing),
    Case("grace said before the end",        [month(then: grace)], at: day(29),                               .active,  expires: day(30), accessEnds: day(46), willRenew: true),
    Case("billing retry",                    [month(then: retry)], at: day(30),                               .inBillingRetry, expires: day(30), willRenew: true),
    Case("billing retry said before the end", [month(then: retry)], at: day(30, minus(ms)),                   .active,  expires: day(30), willRenew: true),
    Case("billing retry after grace",        [month(graced: 46, then: retry)], at: day(50),                   .inBillingRetry, expires: day(30), accessEnds: day(46), willRenew: true),
    Case("Apple gave up after grace",        [month(graced: 46, then: over)], at: day(91),                    .expired, expires: day(30), accessEnds: day(46), because: .billing),
    Case("Apple gave up, without grace",     [month(graced: 30, then: over)], at: day(91),                    .expired, expires: day(30), because: .billing),
    Case("bought anew by another after grace", [month(graced: 46)], at: day(91),                              .expired, expires: day(30), accessEnds: day(46), because: .billing),
    Case("paid by another in grace, before", [month(graced: 35)], at: day(35, minus(ms)),                     .inGracePeriod, expires: day(30), accessEnds: day(35)),
    Case("lost in grace",                    [month(graced: 46, moved: 40)], at: day(41),                     .revoked, expires: day(30), accessEnds: day(40), because: .moved),
    Case("the next failed and will end",     [month("1"), month("2", 30, 60, graced: 76, then: off)], at: day(29), .active, expires: day(60), accessEnds: day(76)),
    Case("Apple says expired",               [month(then: over)], at: day(31),                                .expired, expires: day(30)),
    Case("expired, said before the end",     [month(then: over)], at: day(29),                                .active,  expires: day(30)),

    Case("revoked",                          [month(revoked: 10)], at: day(10),                         .revoked, expires: day(30), accessEnds: day(10)),
    Case("just before the revocation",       [month(revoked: 10)], at: day(10, minus(ms)),              .active,  expires: day(30), accessEnds: day(10)),
    Case("revoked, would be over anyway",    [month(revoked: 10)], at: day(30),                         .revoked, expires: day(30), accessEnds: day(10)),
    Case("revoked after another had ended",  [month("1"), month("2", 5, 45, revoked: 40)], at: day(99), .revoked, expires: day(45), accessEnds: day(40)),
    Case("revoked before another ended",     [month("1"), month("2", 5, 45, revoked: 20)], at: day(40), .expired, expires: day(30)),
    Case("revoked in grace",                 [month(revoked: 31, then: grace)], at: day(32), .revoked, expires: day(30), accessEnds: day(31)),
    Case("one of two is revoked",            [month("1", revoked: 10), month("2", 5, 35)], at: day(12), .active,  expires: day(35)),
    Case("both that would cover are revoked", [month("1", revoked: 10), month("2", 5, 35, revoked: 11)], at: day(12), .revoked, expires: day(35), accessEnds: day(11)),
    Case("an old one is revoked",            [month("1", revoked: 40), month("2", 30, 60, then: on)], at: day(41), .active, expires: day(60), willRenew: true),
    Case("the current one is revoked",       [month("1"), month("2", 30, 60, revoked: 40)], at: day(41), .revoked, expires: day(60), accessEnds: day(40)),
    Case("revoked long after its end",       [month(revoked: 200)], at: day(201),                        .expired, expires: day(30)),
    Case("revoked at its end",               [month(revoked: 30)], at: day(30),                          .expired, expires: day(30)),
    Case("revoked after its end, then grace", [month(revoked: 50, then: grace)], at: day(51),            .expired, expires: day(30), accessEnds: day(46), because: .billing),
    Case("superseded",                       [month(superseded: 10)], at: day(10),                      .expired, expires: day(10), because: .replaced),
    Case("lost",                             [month(moved: 10)], at: day(10),                           .revoked, expires: day(30), accessEnds: day(10), because: .moved),
    Case("lost, would be over anyway",       [month(moved: 10)], at: day(99),                           .revoked, expires: day(30), accessEnds: day(10), because: .moved),
    Case("not lost yet, as known now",       [month(moved: 10)], at: day(10, minus(ms)),                nil),
    Case("lost after its end",               [month(moved: 40)], at: day(41),                           .expired, expires: day(30), because: .moved),
    Case("replaced, and lost later",         [month(superseded: 10, moved: 40)], at: day(41),           .expired, expires: day(10), because: .replaced),
    Case("no longer shared",                 [unshared(10)], at: day(41),                               .revoked, expires: day(30), accessEnds: day(10), because: .familySharingEnded),
    Case("no longer shared after its end",   [unshared(40)], at: day(41),                               .expired, expires: day(30)),
    Case("lost after a refund",              [month(revoked: 10, moved: 20)], at: day(21),              .revoked, expires: day(30), accessEnds: day(10)),
    Case("one of two is lost",               [month("1", moved: 10), month("2", 5, 35)], at: day(12),   .active,  expires: day(35)),
    Case("a lost one prolongs nothing",      [month("1"), month("2", 30, 60, moved: 20)], at: day(29),  .active,  expires: day(30)),
    Case("just before it is superseded",     [month(superseded: 10)], at: day(10, minus(ms)),           .active,  expires: day(10)),

    Case("will renew",                       [month(then: on)],  at: day(10),                                 .active,  expires: day(30), willRenew: true),
    Case("off",                              [month(then: off)], at: day(10),                                 .active,  expires: day(30)),
    Case("another account's is the latest",    [month()],    at: day(10),                                 .active,  expires: day(30)),
    Case("on, but lapsed",                   [month(then: on)],  at: day(31),                                 .expired, expires: day(30)),
    Case("on, but revoked",                  [month(revoked: 5, then: on)], at: day(10),                      .revoked, expires: day(30), accessEnds: day(5)),
    Case("the latest is not the longest",    [month("1"), month("2", 20, 25, then: on)], at: day(22),          .active,  expires: day(30), willRenew: true),
    Case("the latest is over before",        [month("1"), month("2", 20, 25, then: on)], at: day(25),          .active,  expires: day(30)),
    Case("the latest, not the longest, off", [month("1"), month("2", 20, 25, then: off)], at: day(22),         .active,  expires: day(30)),
    Case("the latest is revoked",            [month("1"), month("2", 20, 25, revoked: 21, then: on)], at: day(22), .active, expires: day(30)),
    Case("the latest grants something else", [month("1"), holding("2", "basic", 20, 25, renewal: on)], at: day(22), .active, expires: day(30)),
    Case("the latest begins after a gap",    [month("1"), month("2", 40, 70, then: on)], at: day(22),          .active,  expires: day(30)),
    Case("in grace, off",                    [month(then: renewal(false, .gracePeriod(until: day(46))))], at: day(31), .inGracePeriod, expires: day(30), accessEnds: day(46)),
  ]

  // swift-format-ignore
  static let prolongations: [Case] = [
    Case("a renewal that begins tomorrow",   [month("1"), month("2", 30, 60, then: on)], at: day(29),         .active,  expires: day(60), willRenew: true),
    Case("in the millisecond between",       [month("1"), month("2", 30, 60, then: on)], at: day(30),         .active,  expires: day(60), willRenew: true),
    Case("several renewals on",              [month("1"), month("2", 30, 60), month("3", 60, 90, then: off)], at: day(29), .active, expires: day(90)),
    Case("a gap is a gap",                   [month("1"), month("2", 30.001, 60, then: on)], at: day(29),     .active,  expires: day(30)),
    Case("in the gap",                       [month("1"), month("2", 31, 60, then: on)], at: day(30.5),       .expired, expires: day(30)),
    Case("60 seconds are no gap",            [month("1"), minuteLater(.zero)], at: day(29),             .active,  expires: day(60), willRenew: true),
    Case("60 seconds and a millisecond are", [month("1"), minuteLater(ms)], at: day(29),                .active,  expires: day(30)),
    Case("within the 60 seconds",            [month("1"), minuteLater(.zero)], at: day(30, .seconds(30)), .active, expires: day(60), willRenew: true),
    Case("in retry, paid 8 seconds ahead",   [month("1"), month("2", 40, 70, then: on)], at: day(40, minus(.seconds(8))), .active, expires: day(70), willRenew: true),
    Case("another product in 4 minutes",     [month("1"), holding("2", "basic", 30, 60)], at: day(30, minus(.minutes(4))), .active, expires: day(30)),
    Case("one that overlaps",                [month("1"), month("2", 20, 50)], at: day(10),             .active,  expires: day(50)),
    Case("one that ends earlier",            [month("1"), month("2", 20, 25)], at: day(10),             .active,  expires: day(30)),
    Case("a revoked one does not",           [month("1"), month("2", 30, 60, revoked: 29)], at: day(29), .active, expires: day(30)),
    Case("what was revoked after its end",   [month("1", revoked: 40), month("2", 30, 60, then: on)], at: day(29), .active, expires: day(60), willRenew: true),
    Case("what was revoked before its end",  [month("1", revoked: 20), month("2", 30, 60, then: on)], at: day(19), .active, expires: day(30), accessEnds: day(20)),
    Case("revoked when the next had begun",  [month("1", revoked: 29), month("2", 28, 58, then: on)], at: day(27), .active, expires: day(58), willRenew: true),
    Case("a linked line's renewal",          [month("1"), holding("2", .monthly, 30, 60, renewal: on, line: otherKey, original: "1000")], at: day(29.5), .active, expires: day(60), willRenew: true),
    Case("another line's is another",        [month("1"), holding("2", .monthly, 30, 60, renewal: on, line: otherKey)], at: day(29.5), .active, expires: day(30)),
    Case("another plan of the same grant",   [month("1"), holding("2", .quarterly, 30, 120)], at: day(29), .active, expires: day(120)),
    Case("another product, other grant",     [month("1"), holding("2", "basic", 30, 60)], at: day(29),  .active,  expires: day(30)),
    Case("another product at its own date",  [month("1"), holding("2", "basic", 30, 60)], at: day(30),  nil),
    Case("an upgrade's successor",           [month("1", superseded: 10), holding("2", .quarterly, 10, 100, renewal: on)], at: day(10), .active, expires: day(100), willRenew: true),
    Case("forever",                          [month("1"), holding("2", .lifetime, 20, nil)], at: day(10), .active),
  ]

  /// Day 0 is 1 January 2026; a season lasts a month, and two from day 100 (11 April) on.
  // swift-format-ignore
  static let others: [Case] = [
    Case("a lifetime",                       [holding("1", .lifetime, 0, nil)], at: day(5000),          .active),
    Case("a lifetime, revoked",              [holding("1", .lifetime, 0, nil, revoked: 9)], at: day(9), .revoked, accessEnds: day(9)),
    Case("a season, its last millisecond",   [holding("1", .season, 0, nil)], at: day(31, minus(ms)),   .active,  expires: day(31)),
    Case("a season, over",                   [holding("1", .season, 0, nil)], at: day(31),              .expired, expires: day(31)),
    Case("a season keeps its old length",    [holding("1", .season, 99, nil)], at: day(128),            .active,  expires: day(129)),
    Case("a season of the new length",       [holding("1", .season, 100, nil)], at: day(160),           .active,  expires: day(161)),
    Case("a consumable grants nothing",      [holding("1", .gems, 0, nil)], at: day(1),                 nil),
    Case("what the catalogue doesn't know",  [holding("1", "unheard", 0, 30)], at: day(1),              nil),
    Case("a consumable, as Apple says",      [holding("1", .monthly, 0, 30, type: .consumable)], at: day(1), nil),
    Case("a subscription without an expiry", [holding("1", .monthly, 0, nil)], at: day(1),              .expired, expires: day(0)),
    Case("nothing",                          [],             at: day(1),                                nil),
    Case("two lines, the longer",            [month("1"), holding("2", .quarterly, 5, 95, line: otherKey)], at: day(10), .active, expires: day(95)),
    Case("two lines, one not begun",         [month("1"), holding("2", .quarterly, 40, 130, line: otherKey)], at: day(35), .expired, expires: day(30)),
    Case("two lines, retry before expired",  [month(then: retry), holding("2", .quarterly, -90, 0, line: otherKey)], at: day(35), .inBillingRetry, expires: day(30), willRenew: true),
    Case("two lines, the last to end",       [month(revoked: 10), holding("2", .quarterly, -60, 20, line: otherKey)], at: day(35), .expired, expires: day(20)),
    Case("two lines, forever wins",          [month("1", then: on), holding("2", .lifetime, 5, nil, line: otherKey)], at: day(10), .active),
  ]

  @Test("States", arguments: states) func state(_ test: Case) { check(test) }
  @Test("Prolongations", arguments: prolongations) func prolongation(_ test: Case) { check(test) }
  @Test("Other products, several lines", arguments: others) func other(_ test: Case) {
    check(test)
  }

  private func check(_ test: Case) {
    for holdings in [test.holdings, test.holdings.reversed()] {
      let premium = Entitlement.entitlements(
        holdings: holdings, catalogue: catalogue, at: test.at
      ).first { $0.name == "premium" }
      #expect(premium?.state == test.state)
      #expect(premium?.expiresAt == test.expires)
      #expect(premium?.accessEndsAt == test.accessEnds)
      #expect(premium?.willRenew ?? false == test.willRenew)
      #expect(premium?.endedBecause == test.because)
      #expect(premium?.endedAt == (test.because == nil ? nil : test.accessEnds))
    }
  }

  @Test func eachNameOfAProductIsGrantedAndSortedByName() {
    let entitlements = Entitlement.entitlements(
      holdings: [Self.holding("1", "both", 0, 30, period: .trial)], catalogue: catalogue,
      at: day(1))
    #expect(entitlements.map(\.name) == ["basic", "premium"])
    #expect(entitlements.map(\.periodType) == [.trial, .trial])
    #expect(entitlements.map(\.transactionID) == ["1", "1"])
    #expect(entitlements.map(\.source) == [.appStore, .appStore])
  }

  @Test func aProlongationIsForTheNamesThatBothGrant() {
    let entitlements = Entitlement.entitlements(
      holdings: [Self.holding("1", "both", 0, 30), Self.holding("2", "basic", 30, 60)],
      catalogue: catalogue, at: day(29))
    #expect(entitlements.map(\.expiresAt) == [day(60), day(30)])
  }

  @Test func activeStatesAreTwo() {
    #expect(Entitlement.State.allCases.filter(\.isActive) == [.active, .inGracePeriod])
  }

  // MARK: Grants

  struct Given: Sendable, CustomTestStringConvertible {
    var name: String
    var grant: Grant
    var at: Timestamp
    var state: Entitlement.State?
    var source: Entitlement.Source?

    init(
      _ name: String, from start: Double, to end: Double?, at moment: Timestamp,
      _ state: Entitlement.State?, _ source: Entitlement.Source?,
      as given: Entitlement.Source = .grant, revoked: Double? = nil
    ) {
      self.name = name
      grant = Grant(
        id: strangeToken, entitlement: "premium", startsAt: day(start),
        endsAt: end.map { day($0) }, revokedAt: revoked.map { day($0) }, source: given)
      at = moment
      self.state = state
      self.source = source
    }

    var testDescription: String { name }
  }

  /// Grants in addition to a month from day 0 to day 30.
  // swift-format-ignore
  static let grants: [Given] = [
    Given("longer than the month",   from: 5,  to: 40,  at: day(10),            .active,  .grant),
    Given("shorter than the month",  from: 5,  to: 20,  at: day(10),            .active,  .appStore),
    Given("forever",                 from: 5,  to: nil, at: day(10),            .active,  .grant),
    Given("not begun",               from: 15, to: 40,  at: day(10),            .active,  .appStore),
    Given("after the month",         from: 5,  to: 40,  at: day(35),            .active,  .grant),
    Given("the last millisecond",    from: 5,  to: 40,  at: day(40, minus(ms)), .active,  .grant),
    Given("over, as is the month",   from: 5,  to: 40,  at: day(40),            .expired, .grant),
    Given("provisional",             from: 31, to: 32,  at: day(31),            .active,  .provisional, as: .provisional),
    Given("alone, not begun",        from: 15, to: 40,  at: day(-1),            nil,      nil),
    Given("taken back, the month on", from: 5, to: 40,  at: day(10),            .active,  .appStore, revoked: 8),
    Given("not taken back yet",      from: 5,  to: nil, at: day(34),            .active,  .grant, revoked: 35),
    Given("taken back",              from: 5,  to: nil, at: day(35),            .revoked, .grant, revoked: 35),
    Given("taken back, end passed",  from: 5,  to: 40,  at: day(50),            .revoked, .grant, revoked: 35),
  ]

  @Test("Grants", arguments: grants)
  func grant(_ test: Given) {
    let premium = Entitlement.entitlements(
      holdings: [Self.month()], grants: [test.grant], catalogue: catalogue, at: test.at
    ).first
    #expect(premium?.state == test.state)
    #expect(premium?.source == test.source)
    #expect(premium?.willRenew ?? false == false)
  }

  @Test func tiesInTheEndAreTheSameInEveryOrder() {
    let given = [Entitlement.Source.provisional, .grant].enumerated().map { number, source in
      Grant(
        id: issuedToken([a, b][number]), entitlement: "premium", startsAt: day(0),
        endsAt: day(30), source: source)
    }
    let sandbox = OriginalTransactionKey(.sandbox, mainKey.originalTransactionID)
    let held = [Self.month(), Self.holding("1", .monthly, 0, 30, line: sandbox)]
    for (holdings, grants) in [(held, given), (held.reversed(), given.reversed())] {
      func first(_ holdings: [Holding]) -> Entitlement? {
        Entitlement.entitlements(
          holdings: holdings, grants: grants, catalogue: catalogue, at: day(1)
        ).first
      }
      #expect(first(holdings)?.environment == .production)
      #expect(first([])?.source == .grant)
    }
  }
}
