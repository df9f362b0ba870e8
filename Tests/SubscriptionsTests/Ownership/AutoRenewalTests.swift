import Subscriptions
import Testing

/// "Actively auto-renewing as of t", row by row and with each boundary on both sides.
///
/// A owns P, a month from day 0 to day 30. B claims C. So C is A's where A was renewing, else B's.
struct AutoRenewalTests {
  struct Case: Sendable, CustomTestStringConvertible {
    var name: String
    var kind: ChargeKind
    var date: Timestamp
    var received: [RenewalStatus]
    var reason: RenewalEvidence.Reason
    var previous: TransactionRecord
    var product: ProductID
    var erased: Timestamp?

    init(
      _ name: String, _ kind: ChargeKind, _ date: Timestamp, _ received: [RenewalStatus] = [],
      is reason: RenewalEvidence.Reason,
      previous: TransactionRecord = charge("P", from: day(0), to: day(30)),
      product: ProductID = .monthly, erased: Timestamp? = nil
    ) {
      self.name = name
      self.kind = kind
      self.date = date
      self.received = received
      self.reason = reason
      self.previous = previous
      self.product = product
      self.erased = erased
    }

    var testDescription: String { name }
  }

  static let minute = Duration.seconds(60)

  static func retry(_ asOf: Timestamp, isCommitment: Bool = false) -> RenewalStatus {
    status(asOf, .billingRetry, isCommitment: isCommitment)
  }

  static func grace(_ asOf: Timestamp, to end: Timestamp) -> RenewalStatus {
    status(asOf, .gracePeriod(until: end))
  }

  static func expired(_ asOf: Timestamp) -> RenewalStatus { status(asOf, .expired) }

  // swift-format-ignore
  static let renewals: [Case] = [
    Case("on time",                            .renewal, day(30),                                is: .renewedByApple),
    Case("within the period",                  .renewal, day(10),                                is: .renewedByApple),
    Case("half a year after the end",          .renewal, day(200),                               is: .renewedByApple),
    Case("after Apple had given up",           .renewal, day(50), [expired(day(31))],            is: .renewedByApple),
    Case("although off",                       .renewal, day(30), [off(day(10))],                is: .renewedByApple),
  ]

  // swift-format-ignore
  static let purchases: [Case] = [
    Case("at the millisecond of the end",      .purchase, day(30),                               is: .boughtAfterPeriodEnd),
    Case("just before the end",                .purchase, day(30, minus(ms)),                    is: .changedWhileRenewing),
    Case("just before the end, off",           .purchase, day(30, minus(ms)), [off(day(10))],    is: .autoRenewOff),
    Case("long after the end, on",             .purchase, day(50), [on(day(10))],                is: .boughtAfterPeriodEnd),
    Case("at the end of the grace",            .purchase, day(46), [grace(day(31), to: day(46))], is: .boughtAfterPeriodEnd),
    Case("just before the end of the grace",   .purchase, day(46, minus(ms)), [grace(day(31), to: day(46))], is: .changedWhileRenewing),
    Case("in the grace, off",                  .purchase, day(40), [grace(day(31), to: day(46)), off(day(35))], is: .autoRenewOff),
    Case("in a grace said before P's end",     .purchase, day(40), [grace(day(29), to: day(46))], is: .changedWhileRenewing),
    Case("in a grace reported just before",   .purchase, day(40), [grace(day(40, minus(ms)), to: day(46))], is: .changedWhileRenewing),
    Case("in a grace reported at the charge", .purchase, day(40), [grace(day(40), to: day(46))], is: .boughtAfterPeriodEnd),
    Case("in a grace that had ended early",    .purchase, day(40), [grace(day(31), to: day(46)), expired(day(35))], is: .boughtAfterPeriodEnd),
    Case("in the middle, on",                  .purchase, day(15), [on(day(5))],                 is: .changedWhileRenewing),
    Case("in the middle, off",                 .purchase, day(15), [off(day(5))],                is: .autoRenewOff),
  ]

  // swift-format-ignore
  static let beforeTheEnd: [Case] = [
    Case("no word at all: P is the word, on",  .unknown, day(15),                                is: .changedWhileRenewing),
    Case("on",                                 .unknown, day(15), [on(day(5))],                  is: .changedWhileRenewing),
    Case("off",                                .unknown, day(15), [off(day(5))],                 is: .autoRenewOff),
    Case("off, then on",                       .unknown, day(15), [off(day(5)), on(day(10))],    is: .changedWhileRenewing),
    Case("on, then off",                       .unknown, day(15), [on(day(5)), off(day(10))],    is: .autoRenewOff),
    Case("off just before",                    .unknown, day(15), [off(day(15, minus(ms)))],     is: .autoRenewOff),
    Case("off at the charge says nothing",     .unknown, day(15), [off(day(15))],                is: .changedWhileRenewing),
    Case("off after the charge says nothing",  .unknown, day(15), [off(day(15, ms))],            is: .changedWhileRenewing),
    Case("on after the charge says nothing",   .unknown, day(15), [off(day(5)), on(day(15, ms))], is: .autoRenewOff),
    Case("on and off of one date",             .unknown, day(15), [on(day(5)), off(day(5))],     is: .autoRenewOff),
    Case("off and on of one date",             .unknown, day(15), [off(day(5)), on(day(5))],     is: .autoRenewOff),
    Case("an off that P outlived",             .unknown, day(15), [off(day(-1))],                is: .changedWhileRenewing),
    Case("an off of P's own date",             .unknown, day(15), [off(day(0))],                 is: .autoRenewOff),
    Case("an off that P outlived, repeated",   .unknown, day(15), [off(day(-1)), off(day(2))],   is: .autoRenewOff),
    Case("60 s and 1 ms before the end, off",  .unknown, day(30, minus(minute + ms)), [off(day(29.9))], is: .autoRenewOff),
  ]

  // swift-format-ignore
  static let atTheEnd: [Case] = [
    Case("at the end",                         .unknown, day(30),                                is: .renewedAtPeriodEnd),
    Case("60 s after the end",                 .unknown, day(30, minute),                        is: .renewedAtPeriodEnd),
    Case("60 s before the end, off that day",  .unknown, day(30, minus(minute)), [off(day(29.9))], is: .renewedAtPeriodEnd),
    Case("60 s and 1 ms after the end",        .unknown, day(30, minute + ms),                   is: .lapsed),
    Case("on",                                 .unknown, day(30), [on(day(10))],                 is: .renewedAtPeriodEnd),
    Case("off for 24 h",                       .unknown, day(30), [off(day(29))],                is: .renewedAtPeriodEnd),
    Case("off for 24 h and 1 ms",              .unknown, day(30), [off(day(29, minus(ms)))],     is: .autoRenewOff),
    Case("off for 24 h of a charge 60 s late", .unknown, day(30, minute), [off(day(29, minute))], is: .renewedAtPeriodEnd),
    Case("off since long, said again",         .unknown, day(30), [off(day(20)), off(day(29.9))], is: .autoRenewOff),
    Case("off, on, off again that day",        .unknown, day(30), [off(day(20)), on(day(29)), off(day(29.5))], is: .renewedAtPeriodEnd),
    Case("off, then on and off of one date",   .unknown, day(30), [off(day(20)), on(day(29.5)), off(day(29.5))], is: .autoRenewOff),
    Case("off at the charge says nothing",     .unknown, day(30), [off(day(30))],                is: .renewedAtPeriodEnd),
    Case("off long before P",                  .unknown, day(30), [off(day(-5))],                is: .renewedAtPeriodEnd),
  ]

  // swift-format-ignore
  static let later: [Case] = [
    Case("silence is a lapse",                 .unknown, day(50),                                is: .lapsed),
    Case("on is no word of trying",            .unknown, day(50), [on(day(40))],                 is: .lapsed),
    Case("billing retry",                      .unknown, day(50), [retry(day(31))],              is: .recoveredFromBillingProblem),
    Case("grace",                              .unknown, day(40), [grace(day(31), to: day(46))], is: .recoveredFromBillingProblem),
    Case("retry said at the end of P",         .unknown, day(50), [retry(day(30))],              is: .recoveredFromBillingProblem),
    Case("retry said before the end of P",     .unknown, day(50), [retry(day(30, minus(ms)))],   is: .lapsed),
    Case("retry said just before the charge",  .unknown, day(50), [retry(day(50, minus(ms)))],   is: .recoveredFromBillingProblem),
    Case("retry said at the charge",           .unknown, day(50), [retry(day(50))],              is: .lapsed),
    Case("on the 60th day",                    .unknown, day(90), [retry(day(31))],              is: .recoveredFromBillingProblem),
    Case("after the 60th day",                 .unknown, day(90, ms), [retry(day(31))],          is: .billingRetryOver),
    Case("commitment, on the 90th day",        .unknown, day(120), [retry(day(31), isCommitment: true)], is: .recoveredFromBillingProblem),
    Case("commitment, after the 90th day",     .unknown, day(120, ms), [retry(day(31), isCommitment: true)], is: .billingRetryOver),
    Case("P of a commitment, on the 90th day", .unknown, day(120), [retry(day(31))],             is: .recoveredFromBillingProblem,
         previous: charge("P", from: day(0), to: day(30), isCommitment: true)),
    Case("P of a commitment, retry of its last day", .unknown, day(100), [retry(day(29.5))],     is: .lapsed,
         previous: charge("P", from: day(0), to: day(30), isCommitment: true)),
    Case("retry, then expired",                .unknown, day(50), [retry(day(31)), expired(day(45))], is: .expired),
    Case("expired, then retry",                .unknown, day(50), [expired(day(31)), retry(day(45))], is: .recoveredFromBillingProblem),
    Case("retry and expired of one date",      .unknown, day(50), [expired(day(31)), retry(day(31))], is: .expired),
    Case("expired said after the charge",      .unknown, day(50), [retry(day(31)), expired(day(51))], is: .recoveredFromBillingProblem),
    Case("retry, then nothing is wrong",       .unknown, day(50), [retry(day(31)), status(day(40), .undisturbed)], is: .lapsed),
    Case("retry, then a word on auto-renew",   .unknown, day(50), [retry(day(31)), on(day(40))],  is: .recoveredFromBillingProblem),
    Case("retry, then off",                    .unknown, day(50), [retry(day(31)), off(day(40))], is: .recoveredFromBillingProblem),
  ]

  // swift-format-ignore
  static let theChargeBefore: [Case] = [
    Case("refunded before",                    .unknown, day(12),                                is: .earlierChargeRevoked, previous: revoked(at: day(12, minus(ms)))),
    Case("refunded at the charge",             .unknown, day(12),                                is: .changedWhileRenewing, previous: revoked(at: day(12))),
    Case("refunded, Apple calls C a renewal",  .renewal, day(30),                                is: .earlierChargeRevoked, previous: revoked(at: day(12))),
    Case("upgraded from, 60 s before",         .unknown, day(12),                                is: .changedWhileRenewing, previous: revoked(at: day(12, minus(minute))), product: .quarterly),
    Case("refunded 60 s and 1 ms before",      .unknown, day(12),                                is: .earlierChargeRevoked, previous: revoked(at: day(12, minus(minute + ms))), product: .quarterly),
    Case("Apple says upgraded, cancelled long before", .unknown, day(12),                        is: .changedWhileRenewing, previous: revoked(at: day(10), isUpgraded: true), product: .quarterly),
    Case("owner erased before",                .unknown, day(30),                                is: .accountErased, erased: day(20)),
    Case("owner erased at the charge",         .unknown, day(30),                                is: .accountErased, erased: day(30)),
    Case("owner erased after",                 .unknown, day(30),                                is: .renewedAtPeriodEnd, erased: day(30, ms)),
    Case("no subscription",                    .unknown, day(30),                                is: .earlierChargeWithoutPeriod, previous: charge("P", .season, from: day(0))),
    Case("no expiry known",                    .unknown, day(30),                                is: .earlierChargeWithoutPeriod, previous: charge("P", from: day(0), productType: .autoRenewable)),
    Case("no expiry known, C a renewal",       .renewal, day(30),                                is: .renewedByApple, previous: charge("P", from: day(0), productType: .autoRenewable)),
    Case("of the same date is not before",     .unknown, day(0),                                 is: .noEarlierCharge, product: .quarterly),
  ]

  static func revoked(at moment: Timestamp, isUpgraded: Bool = false) -> TransactionRecord {
    charge(
      "P", from: day(0), to: day(30), asOf: day(60), isUpgraded: isUpgraded,
      revocation: .revoked(at: moment, reason: nil))
  }

  @Test("A renewal", arguments: renewals) func renewal(_ test: Case) { check(test) }
  @Test("A purchase", arguments: purchases) func purchase(_ test: Case) { check(test) }
  @Test("Before P's end", arguments: beforeTheEnd) func before(_ test: Case) { check(test) }
  @Test("Within 60 s of P's end", arguments: atTheEnd) func near(_ test: Case) { check(test) }
  @Test("After P's end", arguments: later) func late(_ test: Case) { check(test) }
  @Test("P itself", arguments: theChargeBefore) func previous(_ test: Case) { check(test) }

  private func check(_ test: Case) {
    var ledger = Ledger(erasures: test.erased.map { [a: $0] } ?? [:])
    ledger.receive(test.previous)
    ledger.claim(test.previous.key, by: a)
    ledger.receive(test.received)
    ledger.receive(
      charge(
        "C", test.product, from: test.date, to: test.date + .days(30), asOf: day(300),
        kind: test.kind))
    ledger.claim(key("C", test.product), by: b)

    let decision = ledger.decision("C")
    #expect(decision?.renewal.reason == test.reason)
    #expect(decision?.owner == (test.reason.isRenewing ? a : b))
    #expect(decision?.rule == (test.reason.isRenewing ? .activelyAutoRenewing : .submitter))
    #expect(decision?.renewal.account == (test.reason.isRenewing ? a : nil))
  }

  @Test(arguments: [nil, ProductType.consumable, .nonConsumable, .nonRenewing])
  func rowOneNeverHoldsForWhatIsNoSubscription(_ type: ProductType?) {
    var ledger = Ledger()
    ledger.receive(charge("P", from: day(0), to: day(30)))
    ledger.claim(key("P"), by: a)
    ledger.receive(charge("C", .gems, from: day(30), kind: .renewal, productType: type))
    ledger.claim(key("C", .gems), by: b)
    #expect(ledger.decision("C")?.renewal.reason == .notASubscription)
    #expect(ledger.owner("C") == b)
  }

  @Test func anUnclaimedChargeBeforeRenewsForNoAccount() {
    var ledger = Ledger()
    ledger.receive(charge("P", from: day(0), to: day(30)))
    ledger.receive(charge("C", from: day(30), to: day(60), kind: .renewal))
    #expect(ledger.decision("C")?.renewal.reason == .earlierChargeUnclaimed)
    ledger.claim(key("C"), by: b)
    #expect(ledger.owner("C") == b)
    #expect(ledger.owner("P") == nil)
  }

  @Test func theLatestChargeBeforeDecidesAndNotAnEarlierOne() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive(charge("2", from: day(40), to: day(70), kind: .purchase))
    ledger.claim(key("2"), by: b)
    ledger.receive(charge("3", from: day(70), to: day(100)))
    #expect(ledger.owner("3") == b)
    #expect(ledger.decision("3")?.renewal.previous == key("2"))
  }

  @Test("An off in the day before a renewal is about the period after it")
  func offInTheDayBeforeARenewal() {
    // Bought on day 0, renewed on day 30; switched off 20 hours before, said again just before day
    // 60.
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive([off(day(29.2)), off(day(59.9))])
    ledger.receive(charge("2", from: day(30), to: day(60)), charge("3", from: day(60), to: day(90)))
    #expect(ledger.owner("2") == a)
    #expect(ledger.decision("3")?.renewal.reason == .autoRenewOff)
    #expect(ledger.decision("3")?.renewal.statusAsOf == day(29.2))
  }

  /// Whether an off before P speaks about what follows P: 24 hours before an automatic charge, and
  /// never before a purchase.
  ///
  /// Automatic is, too, what comes within 60 seconds of the end of the month before.
  // swift-format-ignore
  static let offsBefore: [(String, ChargeKind, Timestamp, before: Duration, speaks: Bool)] = [
    ("24 h before a renewal",                 .renewal,  day(30),                        .hours(24),      true),
    ("24 h and 1 ms before a renewal",        .renewal,  day(30),                        .hours(24) + ms, false),
    ("24 h before the period's end",          .unknown,  day(30),                        .hours(24),      true),
    ("24 h and 1 ms before the period's end", .unknown,  day(30),                        .hours(24) + ms, false),
    ("24 h before a purchase",                .purchase, day(30),                        .hours(24),      false),
    ("24 h and 1 ms before a purchase",       .purchase, day(30),                        .hours(24) + ms, false),
    ("1 ms before a purchase",                .purchase, day(30),                        ms,              false),
    ("at a purchase",                         .purchase, day(30),                        .zero,           true),
    ("charged 60 s late",                     .unknown,  day(30, minute),                .hours(20),      true),
    ("charged 60 s and 1 ms late",            .unknown,  day(30, minute + ms),           .hours(20),      false),
    ("charged 60 s early",                    .unknown,  day(30, minus(minute)),         .hours(20),      true),
    ("charged 60 s and 1 ms early",           .unknown,  day(30, minus(minute + ms)),    .hours(20),      false),
  ]

  @Test("An off before P", arguments: offsBefore)
  func offBefore(
    _ name: String, _ kind: ChargeKind, _ date: Timestamp, _ before: Duration, _ speaks: Bool
  ) {
    var ledger = Ledger()
    ledger.receive(charge("O", from: day(0), to: day(30)))
    ledger.receive(charge("P", from: date, to: date + .days(30), kind: kind))
    ledger.claim(key("P"), by: a)
    ledger.receive([off(date - before)])
    ledger.receive(charge("C", from: date + .days(30), to: date + .days(60)))
    let reason = ledger.decision("C")?.renewal.reason
    #expect(reason == (speaks ? .autoRenewOff : .renewedAtPeriodEnd))
  }

  struct OlderOff: Sendable, CustomTestStringConvertible {
    var name: String
    /// The charge that follows the month from day 0 and the off of day 10, unheard of by Apple.
    var kind: ChargeKind
    var bought: Double
    /// Words on auto-renew before the renewal, by the days from the charge's end.
    var offs: [Double]
    var ons: [Double] = []
    var isOff: Bool

    var testDescription: String { name }
  }

  // swift-format-ignore
  static let olderOffs: [OlderOff] = [
    OlderOff(name: "bought by hand, off 12 h before the renewal",  kind: .purchase, bought: 40, offs: [-0.5],           isOff: true),
    OlderOff(name: "bought by hand, off 24 h before",              kind: .purchase, bought: 40, offs: [-1],             isOff: true),
    OlderOff(name: "bought by hand, off 25 h before",              kind: .purchase, bought: 40, offs: [-25 / 24.0],     isOff: false),
    OlderOff(name: "bought by hand, off for days, said again",     kind: .purchase, bought: 40, offs: [-5, -0.5],       isOff: false),
    OlderOff(name: "bought by hand, off for days, said afterwards", kind: .purchase, bought: 40, offs: [-5, 1],         isOff: true),
    OlderOff(name: "bought by hand, off, then on",                 kind: .purchase, bought: 40, offs: [-0.5], ons: [-0.2], isOff: false),
    OlderOff(name: "renewed by Apple, off 12 h before the next",   kind: .renewal, bought: 30,  offs: [-0.5],           isOff: true),
    OlderOff(name: "renewed by Apple, off for days, said again",   kind: .renewal, bought: 30,  offs: [-5, -0.5],       isOff: false),
    OlderOff(name: "kind unknown after a gap, off 12 h before",    kind: .unknown, bought: 40,  offs: [-0.5],           isOff: true),
    OlderOff(name: "kind unknown at the end, off 12 h before",     kind: .unknown, bought: 30,  offs: [-0.5],           isOff: true),
    OlderOff(name: "no word but the old one",                      kind: .purchase, bought: 40, offs: [],               isOff: false),
  ]

  @Test("An off of the last day before a renewal, after one without an on", arguments: olderOffs)
  func olderOff(_ test: OlderOff) {
    var ledger = Ledger()
    let end = test.bought + 30
    ledger.receive(charge("1", from: day(0), to: day(30), kind: .purchase))
    ledger.claim(key("1"), by: a)
    ledger.receive([off(day(10))])
    ledger.receive(charge("2", from: day(test.bought), to: day(end), kind: test.kind))
    ledger.claim(key("2"), by: b)
    ledger.receive(test.offs.map { off(day(end + $0)) } + test.ons.map { on(day(end + $0)) })
    ledger.receive(charge("3", from: day(end), to: day(end + 30), kind: .renewal))
    let rule = ledger.rule
    let position = rule.charges.endIndex - 1
    #expect(rule.renewal(ofChargeAt: position).autoRenews == !test.isOff)
    let owner = ledger.owner("3") ?? b
    let entitlement = ledger.premium(owner, at: day(end + 2))
    #expect(entitlement?.willRenew == !test.isOff)
    // The forecast of renewals relies on this.
    let timeline = SubscriptionTimeline(of: ledger.line, rule: rule, in: catalogue)
    #expect(
      timeline.spans.last { $0.state != .expired }?.state
        == (test.isOff ? .activeCancelled : .activeRenewing))
    // The next charge is not known to be a renewal: its submitter bought it.
    ledger.receive(charge("4", from: day(end + 30), to: day(end + 60)))
    ledger.claim(key("4"), by: c)
    #expect(ledger.owner("4") == (test.isOff ? c : owner))
  }

  @Test("An off of more than a day before a purchase at the period's end is over")
  func offOutlivedByAPurchaseAtThePeriodEnd() {
    // A is off from day 5 on, as every poll says; B buys in the very second when A's month ends.
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive((5..<30).map { off(day(Double($0) + 0.9)) })
    ledger.receive(charge("2", from: day(30), to: day(60)))
    ledger.claim(key("2"), by: b)
    ledger.receive(charge("3", from: day(60), to: day(90)))
    #expect(ledger.owner("2") == b)
    #expect(ledger.owner("3") == b)
  }
}

extension RenewalEvidence.Reason {
  var isRenewing: Bool {
    switch self {
    case .renewedByApple, .renewedAtPeriodEnd, .recoveredFromBillingProblem, .changedWhileRenewing:
      true
    default: false
    }
  }
}
