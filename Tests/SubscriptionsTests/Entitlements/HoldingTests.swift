import Subscriptions
import Testing

/// The holdings recorded for a line.
struct HoldingTests {
  @Test func everyOwnedChargeIsHeldByItsOwner() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive([off(day(5))])
    ledger.receive(charge("2", .quarterly, from: day(35), to: day(125)))
    #expect(ledger.holdings(of: a).map(\.charge) == [key("1")])
    ledger.claim(key("2", .quarterly), by: b)
    #expect(ledger.holdings(of: a).map(\.charge) == [key("1")])
    #expect(ledger.holdings(of: b).map(\.charge) == [key("2", .quarterly)])
  }

  @Test func onlyTheLatestChargeRenews() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    #expect(ledger.premium(a, at: day(1))?.willRenew == true)
    ledger.receive([off(day(5))])
    #expect(ledger.premium(a, at: day(6))?.willRenew == false)
    ledger.receive([on(day(7))])
    #expect(ledger.premium(a, at: day(8))?.willRenew == true)
    ledger.receive(charge("2", .quarterly, from: day(20), to: day(110), kind: .purchase))
    ledger.receive([on(day(21))])
    #expect(ledger.holdings(of: a).map { $0.renewal != nil } == [false, true])
    ledger.place(key("2", .quarterly), with: b, from: day(22))
    #expect(ledger.holdings(of: a).map(\.renewal) == [nil])
    #expect(ledger.premium(a, at: day(22))?.willRenew == false)
    #expect(ledger.premium(b, at: day(22))?.willRenew == true)
  }

  @Test func anUnclaimedLatestChargeTakesTheRenewalAway() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive([off(day(5))])
    ledger.receive(charge("2", .quarterly, from: day(20), to: day(110), kind: .purchase))
    #expect(ledger.owner("2") == nil)
    #expect(ledger.holdings(of: a).map(\.renewal) == [nil])
  }

  @Test func `another account's charge ends a grace period, and leaves the cause`() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive([status(day(30), .gracePeriod(until: day(46)), autoRenews: false)])
    ledger.receive(charge("2", from: day(40), to: day(70), kind: .purchase))
    ledger.claim(key("2"), by: b)
    #expect(ledger.owner("2") == b)
    #expect(ledger.holdings(of: a).map(\.graceEndsAt) == [day(40)])
    #expect(ledger.premium(a, at: day(50))?.endedBecause == .billing)
    #expect(ledger.premium(a, at: day(50))?.endedAt == day(40))
  }

  @Test(arguments: [(1, Entitlement.EndReason.expired), (2, .billing), (3, .expired)])
  func `billing ended what Apple says so of, without a word before`(
    intent: Int, reason: Entitlement.EndReason
  ) {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    let end = RenewalStatus(
      asOf: day(95), autoRenews: false, phase: .expired, expirationIntent: intent)
    ledger.receive([end])
    #expect(ledger.premium(a, at: day(96))?.endedBecause == reason)
    #expect(ledger.premium(a, at: day(96))?.endedAt == day(30))
  }

  @Test("Apple's latest status of the latest charge, by date")
  func latestStatus() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive([status(day(31), .gracePeriod(until: day(46)), autoRenews: true)])
    #expect(ledger.premium(a, at: day(32))?.state == .inGracePeriod)
    ledger.receive([status(day(29), .expired, autoRenews: false)])
    #expect(ledger.premium(a, at: day(32))?.state == .inGracePeriod)
    ledger.receive([status(day(40), .billingRetry, autoRenews: true)])
    #expect(ledger.premium(a, at: day(41))?.state == .inBillingRetry)
    #expect(ledger.premium(a, at: day(41))?.endedAt == day(40))
    ledger.receive([status(day(90), .expired, autoRenews: false)])
    #expect(ledger.premium(a, at: day(91))?.state == .expired)
    #expect(ledger.premium(a, at: day(91))?.endedAt == day(40))
    #expect(ledger.premium(a, at: day(91))?.endedBecause == .billing)
  }

  @Test func whatWasSaidOfAnEarlierPeriodSaysNothingOfTheLatest() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive([status(day(31), .gracePeriod(until: day(400)), autoRenews: true)])
    ledger.receive(charge("2", from: day(35), to: day(65), kind: .renewal))
    #expect(ledger.premium(a, at: day(66))?.state == .expired)
  }

  @Test func aliasesAreHeldOnce() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), item: "w"))
    ledger.receive(charge("9", from: day(0), to: day(30), item: "w"))
    ledger.claim(key("9"), by: a)
    #expect(ledger.holdings(of: a).map(\.charge) == [key("1")])
  }

  @Test func consumablesAreNotHeldAndGrantNothing() {
    var ledger = Ledger()
    ledger.receive(charge("1", .gems, from: day(0), productType: .consumable))
    ledger.claim(key("1", .gems), by: a)
    #expect(ledger.holdings(of: a).isEmpty)
    #expect(ledger.entitlements(of: a, at: day(1)).isEmpty)
    // If only the catalogue gives the type, another catalogue may give a different one.
    var untyped = Ledger()
    untyped.receive(charge("1", .gems, from: day(0)))
    untyped.claim(key("1", .gems), by: a)
    #expect(untyped.holdings(of: a).map(\.charge) == [key("1", .gems)])
    #expect(untyped.entitlements(of: a, at: day(1)).isEmpty)
  }

  @Test func whatIsOverIsLeftOutOnceSomethingLastedLonger() {
    var ledger = Ledger()
    for number in 0..<24 {
      let start = day(Double(number) * 30)
      ledger.receive(charge(TransactionID("\(number + 1)"), from: start, to: start + .days(30)))
    }
    ledger.claim(key("1"), by: a)
    func held(at moment: Timestamp) -> [TransactionID] {
      ledger.line.holdings(ledger.rule, asOf: moment).map(\.holding.charge.transactionID)
    }
    #expect(held(at: day(680)) == ["23", "24"])
    #expect(held(at: day(720)) == ["24"])
    #expect(held(at: day(9000)) == ["24"])
    #expect(held(at: day(0)).count == 24)
  }

  @Test func theLastOfAnAccountThatOwnsNoMoreIsKept() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive([off(day(5))])
    ledger.receive(charge("2", from: day(35), to: day(65)))
    ledger.claim(key("2"), by: b)
    let pruned = ledger.line.holdings(ledger.rule, asOf: day(900))
    #expect(pruned.map(\.account) == [a, b])
  }

  @Test func whatIsUpgradedFromRenewsNothingEvenAsTheLatest() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), asOf: day(10), isUpgraded: true))
    ledger.claim(key("1"), by: a)
    ledger.receive([on(day(11))])
    #expect(ledger.line.holding(ofChargeAt: 0, in: ledger.rule).renewal == nil)
    #expect(ledger.premium(a, at: day(9))?.willRenew == false)
  }

  @Test func linkedOriginalTransactionsAreHeldAsOne() {
    var ledger = Ledger(members: [mainKey, otherKey])
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.record([.evidence(.link(line: otherKey, previous: mainKey))])
    ledger.receive(charge("2", from: day(30), to: day(60), asOf: day(29.2), line: otherKey))
    #expect(ledger.holdings(of: a).map(\.linkedTo) == [nil, "1000"])
    #expect(ledger.premium(a, at: day(29.5))?.expiresAt == day(60))
    #expect(ledger.premium(a, at: day(29.5))?.willRenew == true)
    let pruned = ledger.line.holdings(ledger.rule, asOf: day(32))
    #expect(pruned.map(\.holding.charge) == [key("2", line: otherKey)])
  }

  /// A server's clock that was two days ahead dated the entry, and not yet the end of the month.
  @Test func aClockThatWasAheadTakesNothingAway() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive(charge("2", from: day(30), to: day(60), asOf: day(29.2)))
    let kept = ledger.line.holdings(ledger.rule, asOf: day(31.9)).map(\.holding.charge)
    #expect(kept == [key("1"), key("2")])
    #expect(
      ledger.line.holdings(ledger.rule, asOf: day(32)).map(\.holding.charge) == [key("2")])
  }
}
