import Subscriptions
import Testing

/// The owner of a purchase or renewal made now.
struct OwnershipPreviewTests {
  /// A's month from day 0 to day 30, and the statuses since; asked by B.
  static func preview(_ received: [RenewalStatus], at moment: Timestamp) -> OwnershipPreview {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive(received)
    return OwnershipPreview(of: ledger.line, account: b, id: mainKey, at: moment)
  }

  // swift-format-ignore
  static let previews: [(name: String, received: [RenewalStatus], at: Timestamp, purchase: AccountKey, renewal: AccountKey)] = [
    ("while A's month runs, on",       [],                                                      day(10), a, a),
    ("while A's month runs, off",      [off(day(5))],                                           day(10), b, a),
    ("a day before A's month ends",    [],                                                      day(29), a, a),
    ("when A's month is over",         [],                                                      day(30), b, a),
    ("in A's grace",                   [status(day(30), .gracePeriod(until: day(46)))],         day(40), a, a),
    ("before A's month, clocks differ", [],                                                     day(-1), a, a),
  ]

  @Test(arguments: previews)
  func previewsTheOwner(
    _ name: String, _ received: [RenewalStatus], _ moment: Timestamp, _ purchase: AccountKey,
    _ renewal: AccountKey
  ) {
    let preview = Self.preview(received, at: moment)
    #expect(preview.purchase.owner == purchase)
    #expect(preview.renewal.owner == renewal)
  }

  @Test func anOriginalTransactionWithoutChargesIsTheBuyers() {
    let preview = OwnershipPreview(of: Ledger().line, account: b, id: mainKey, at: day(0))
    #expect(preview.purchase.owner == b)
    #expect(preview.purchase.rule == .submitter)
    #expect(preview.renewal.rule == .unclaimed)
  }

  @Test func whatIsBoughtOnceIsRestored() {
    var ledger = Ledger()
    ledger.receive(charge("1", .lifetime, from: day(0)))
    ledger.claim(key("1", .lifetime), by: a)
    let preview = OwnershipPreview(of: ledger.line, account: b, id: mainKey, at: day(9))
    #expect(preview.purchase.owner == a)
    let refund = RevocationStatus.revoked(at: day(10), reason: nil)
    ledger.receive(charge("1", .lifetime, from: day(0), asOf: day(11), revocation: refund))
    let again = OwnershipPreview(of: ledger.line, account: b, id: mainKey, at: day(12))
    #expect(again.purchase.owner == b)
  }

  @Test func previewsAreTrue() {
    forAll("What was previewed comes true", iterations: 150) { generator in
      let history = RandomHistory(isHostile: generator.once(in: 2), using: &generator)
      var ledger = history.ledger
      for batch in batches(rearranged(history.items, using: &generator), using: &generator) {
        ledger.record(batch)
      }
      guard let latest = ledger.rule.charges.last else { return nil }
      let now = latest.date + .days(generator.number(1...60))
      let preview = OwnershipPreview(of: ledger.line, account: b, id: mainKey, at: now)
      var (bought, renewed) = (ledger, ledger)
      func record(_ kind: ChargeKind) -> TransactionRecord {
        charge(
          "p", latest.productID, from: now, to: latest.isSubscription ? day(9000) : nil,
          kind: kind, item: latest.isSubscription ? "p" : nil, productType: latest.productType)
      }
      bought.receive(record(.purchase))
      bought.claim(key("p", latest.productID), by: b, receivedAt: now)
      renewed.receive(record(.renewal))
      if bought.decision("p") != preview.purchase { return "the purchase" }
      if renewed.decision("p") != preview.renewal { return "the renewal" }
      return nil
    }
  }
}

/// The sentences that say why.
struct ExplanationTests {
  static func sentence(
    _ rule: Decision.Rule, _ owner: AccountKey?, _ reason: RenewalEvidence.Reason,
    statusAsOf: Timestamp? = day(5), switchedOffAt: Timestamp? = nil,
    previous: Charge.ID? = key("7")
  ) -> String {
    let renewal = RenewalEvidence(
      account: reason.isRenewing ? owner : nil, reason: reason, previous: previous,
      statusAsOf: statusAsOf, switchedOffAt: switchedOffAt)
    return Explanation(Decision(owner: owner, rule: rule, renewal: renewal)) {
      $0 == a ? "alice" : "bob"
    }.sentence
  }

  @Test(arguments: RenewalEvidence.Reason.allCases, Decision.Rule.allCases)
  func eachReasonGivesASentence(_ reason: RenewalEvidence.Reason, _ rule: Decision.Rule) {
    for (statusAsOf, previous) in [(day(5), key("7")), (nil, nil)] as [(Timestamp?, Charge.ID?)] {
      let sentence = Self.sentence(rule, a, reason, statusAsOf: statusAsOf, previous: previous)
      #expect(sentence.first?.isUppercase == true || sentence.hasPrefix("“alice” "))
      #expect(sentence.hasSuffix("."))
      for fault in ["  ", " ,", " .", "..", "nil", "Optional", "()", " :", "( "] {
        #expect(!sentence.contains(fault), "\(sentence)")
      }
    }
  }

  @Test func eachReasonGivesItsOwnSentence() {
    let sentences = RenewalEvidence.Reason.allCases.map { reason in
      Self.sentence(reason.isRenewing ? .activelyAutoRenewing : .submitter, a, reason)
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
      Self.sentence(.submitter, b, .orderedByAnotherAccount)
        == "“bob” submitted it first; auto-renew had been turned off, and “bob”'s order turned it on "
        + "again.")
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
