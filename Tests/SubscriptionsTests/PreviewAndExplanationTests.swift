import Subscriptions
import Testing

/// Who would own what is bought or renewed now.
struct OwnershipPreviewTests {
  /// A's month from day 0 to day 30, and what was heard since; asked by B.
  static func preview(_ heard: [RenewalStatus], at moment: Timestamp) -> OwnershipPreview {
    var ledger = Ledger()
    ledger.hear(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.hear(heard)
    return OwnershipPreview(of: ledger.line, account: b, id: mainLine, at: moment)
  }

  // swift-format-ignore
  static let previews: [(name: String, heard: [RenewalStatus], at: Timestamp, purchase: AccountKey, renewal: AccountKey)] = [
    ("while A's month runs, on",       [],                                                      day(10), a, a),
    ("while A's month runs, off",      [off(day(5))],                                           day(10), b, a),
    ("a day before A's month ends",    [],                                                      day(29), a, a),
    ("when A's month is over",         [],                                                      day(30), b, a),
    ("in A's grace",                   [status(day(30), .gracePeriod(until: day(46)))],         day(40), a, a),
    ("before A's month, clocks differ", [],                                                     day(-1), a, a),
  ]

  @Test(arguments: previews)
  func tellsWhoWouldOwn(
    _ name: String, _ heard: [RenewalStatus], _ moment: Timestamp, _ purchase: AccountKey,
    _ renewal: AccountKey
  ) {
    let preview = Self.preview(heard, at: moment)
    #expect(preview.purchase.owner == purchase)
    #expect(preview.renewal.owner == renewal)
  }

  @Test func aLineWithoutChargesIsTheBuyers() {
    let preview = OwnershipPreview(of: Ledger().line, account: b, id: mainLine, at: day(0))
    #expect(preview.purchase.owner == b)
    #expect(preview.purchase.rule == .submitter)
    #expect(preview.renewal.rule == .unclaimed)
  }

  @Test func whatIsBoughtOnceIsRestored() {
    var ledger = Ledger()
    ledger.hear(charge("1", .lifetime, from: day(0)))
    ledger.claim(key("1", .lifetime), by: a)
    let preview = OwnershipPreview(of: ledger.line, account: b, id: mainLine, at: day(9))
    #expect(preview.purchase.owner == a)
    let refund = RevocationStatus.revoked(at: day(10), reason: nil)
    ledger.hear(charge("1", .lifetime, from: day(0), asOf: day(11), revocation: refund))
    let again = OwnershipPreview(of: ledger.line, account: b, id: mainLine, at: day(12))
    #expect(again.purchase.owner == b)
  }

  @Test func previewsTellTheTruth() {
    forAll("What was previewed comes true", iterations: 150) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      for batch in batches(rearranged(history.items, using: &generator), using: &generator) {
        ledger.record(batch)
      }
      guard let latest = ledger.rule.charges.last else { return nil }
      let now = latest.date + .days(generator.number(1...60))
      let preview = OwnershipPreview(of: ledger.line, account: b, id: mainLine, at: now)
      var (bought, renewed) = (ledger, ledger)
      func record(_ kind: ChargeKind) -> TransactionRecord {
        charge(
          "p", latest.productID, from: now, to: latest.isSubscription ? day(9000) : nil,
          kind: kind, item: latest.isSubscription ? "p" : nil, productType: latest.productType)
      }
      bought.hear(record(.purchase))
      bought.claim(key("p", latest.productID), by: b, receivedAt: now)
      renewed.hear(record(.renewal))
      if bought.decision("p") != preview.purchase { return "the purchase" }
      if renewed.decision("p") != preview.renewal { return "the renewal" }
      return nil
    }
  }
}

/// The sentences that say why.
struct ExplanationTests {
  static func sentence(
    _ rule: Decision.Rule, _ owner: AccountKey?, _ ground: RenewalEvidence.Ground,
    statusAsOf: Timestamp? = day(5), switchedOffAt: Timestamp? = nil,
    previous: Charge.ID? = key("7")
  ) -> String {
    let finding = RenewalEvidence(
      account: ground.isRenewing ? owner : nil, ground: ground, previous: previous,
      statusAsOf: statusAsOf, switchedOffAt: switchedOffAt)
    return Explanation(Decision(owner: owner, rule: rule, finding: finding)) {
      $0 == a ? "alice" : "bob"
    }.sentence
  }

  @Test(arguments: RenewalEvidence.Ground.allCases, Decision.Rule.allCases)
  func eachGroundGivesASentence(_ ground: RenewalEvidence.Ground, _ rule: Decision.Rule) {
    for (statusAsOf, previous) in [(day(5), key("7")), (nil, nil)] as [(Timestamp?, Charge.ID?)] {
      let sentence = Self.sentence(rule, a, ground, statusAsOf: statusAsOf, previous: previous)
      #expect(sentence.first?.isUppercase == true || sentence.hasPrefix("“alice” "))
      #expect(sentence.hasSuffix("."))
      for fault in ["  ", " ,", " .", "..", "nil", "Optional", "()", " :", "( "] {
        #expect(!sentence.contains(fault), "\(sentence)")
      }
    }
  }

  @Test func eachGroundGivesItsOwnSentence() {
    let sentences = RenewalEvidence.Ground.allCases.map { ground in
      Self.sentence(ground.isRenewing ? .activelyAutoRenewing : .submitter, a, ground)
    }
    #expect(Set(sentences).count == sentences.count)
  }

  @Test func sentences() {
    #expect(
      Self.sentence(.activelyAutoRenewing, a, .renewedAtPeriodEnd)
        == "“alice” had auto-renew on when Apple charged: this charge begins where the period of "
        + "transaction 7 ends.")
    #expect(
      Self.sentence(.submitter, b, .autoRenewOff)
        == "“bob” submitted it first; auto-renew of transaction 7 had been off since "
        + "2026-01-06T00:00:00.000Z.")
    #expect(
      Self.sentence(.unclaimed, nil, .noEarlierCharge)
        == "No account has submitted it yet; no earlier subscriber: this is the subscription's "
        + "first charge.")
    #expect(
      Self.sentence(.appAccountToken, a, .noEarlierCharge)
        == "It was bought with the token issued to “alice”; no earlier subscriber: this is the "
        + "subscription's first charge.")
    #expect(
      Self.sentence(.administrator, nil, .lapsed) == "An administrator assigned it to no account.")
    #expect(
      Self.sentence(.unclaimed, nil, .reportsAnotherCharge)
        == "It reports the same charge as transaction 7; one decision covers both.")
    #expect(
      Self.sentence(.activelyAutoRenewing, a, .renewedByApple, switchedOffAt: day(10))
        .contains("; auto-renew had been off since 2026-01-11T00:00:00.000Z, so"))
  }
}
