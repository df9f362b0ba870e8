import Subscriptions
import Testing

/// Charges that administrators release: unclaimed until an account claims them.
///
/// A owns a month from day 0 to day 30, which has renewed until day 60.
struct ReleaseTests {
  private func released(_ id: TransactionID, from moment: Timestamp = day(40)) -> Ledger {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive(charge("2", from: day(30), to: day(60), kind: .renewal))
    ledger.place(key(id), with: nil, from: moment)
    return ledger
  }

  @Test func `has no owner, and every answer says unclaimed`() {
    let ledger = released("2")
    #expect(
      ledger.decision("2")
        == Decision(
          owner: nil, rule: .unclaimed,
          renewal: RenewalEvidence(reason: .released, previous: key("1")), isProvisional: true))
    #expect(ledger.lastAction("2") == .placed)
    #expect(ledger.owner("1") == a)
    #expect(ledger.holdings(of: a).map(\.charge) == [key("1")])
    #expect(ledger.line.decisions == ledger.replayed.decisions)
  }

  @Test func `belongs to the next claimant, though another account was renewing`() {
    for account in [a, b] {
      var ledger = released("2")
      ledger.claim(key("2"), by: account)
      #expect(ledger.owner("2") == account)
      #expect(ledger.decision("2")?.rule == .submitter)
      #expect(ledger.decision("2")?.isProvisional == false)
      #expect(ledger.lastAction("2") == .claimed)
      // Then it is settled.
      ledger.claim(key("2"), by: c)
      #expect(ledger.owner("2") == account)
      #expect(ledger.line.decisions == ledger.replayed.decisions)
    }
  }

  @Test func `who claimed before the release has to claim again, and once`() {
    var ledger = released("1")
    ledger.receive(charge("1", from: day(0), to: day(30), asOf: day(45)))
    #expect(ledger.owner("1") == nil)
    #expect(ledger.claim(key("1"), by: a).map(\.content.kind) == [.claim, .claimed])
    #expect(ledger.owner("1") == a)
    #expect(ledger.claim(key("1"), by: a).isEmpty)
  }

  // swift-format-ignore
  @Test(arguments: [
    // The date of the release, the owner of day 30's charge, and that of day 60's charge unless
    // the second month is claimed, and if B claims it.
    (day(40), a, nil, b),
    (day(61), a, a, a),
  ])
  func `a later renewal finds no owner, or the account that has claimed it since`(
    _ from: Timestamp, _ second: AccountKey, _ third: AccountKey?, _ thirdOfClaimed: AccountKey
  ) {
    let third3 = charge("3", from: day(60), to: day(90), kind: .renewal)
    var ledger = released("2", from: from)
    ledger.receive(third3)
    #expect(ledger.owner("3") == third)
    var claimed = released("2", from: from)
    claimed.claim(key("2"), by: b)
    claimed.receive(third3)
    #expect(claimed.owner("3") == thirdOfClaimed)
    // The claim grants the charge unclaimed in between.
    ledger.claim(key("2"), by: b)
    #expect(ledger.owner("3") == thirdOfClaimed)
    #expect(ledger.owner("1") == a)
  }

  @Test func `a later charge keeps its own claim`() {
    var ledger = released("2")
    ledger.receive(charge("3", from: day(60), to: day(90), kind: .renewal))
    ledger.claim(key("3"), by: c)
    #expect(ledger.owner("3") == c)
    ledger.claim(key("2"), by: b)
    #expect(ledger.owner("2") == b)
    #expect(ledger.owner("3") == c)
  }

  @Test func `can be placed, and released once more`() {
    var ledger = released("2")
    ledger.claim(key("2"), by: b)
    ledger.place(key("2"), with: nil, from: day(45))
    #expect(ledger.owner("2") == nil)
    ledger.place(key("2"), with: c, from: day(46))
    ledger.claim(key("2"), by: a)
    #expect(ledger.owner("2") == c)
    #expect(ledger.decision("2")?.rule == .administrator)
  }

  @Test func `its token does not make the account its owner`() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), token: issuedToken(t)))
    #expect(ledger.owner("1") == t)
    ledger.place(key("1"), with: nil, from: day(1))
    #expect(ledger.owner("1") == nil)
    #expect(ledger.decision("1")?.rule == .unclaimed)
  }
}
