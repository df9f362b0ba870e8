import Foundation
import Subscriptions
import Testing

/// The items that a line appends when it records.
struct OriginalTransactionTests {
  static let first = charge("1", from: day(0), to: day(30), item: "w1")
  static let second = charge("2", from: day(30), to: day(60), item: "w2")

  /// The same facts in a later answer.
  static func again(_ record: TransactionRecord, _ asOf: Double) -> TransactionRecord {
    var record = record
    record.asOf = day(asOf)
    return record
  }

  private func kinds(_ items: [LedgerItem]) -> [LedgerItem.Kind] { items.map(\.content.kind) }

  @Test func entriesRecordEvidenceAndThenDecisions() {
    var ledger = Ledger()
    let items = ledger.record([
      .evidence(.transaction(Self.first)), .evidence(.renewalStatus(on(day(1)), line: mainKey)),
      claimItem(key("1"), by: a, receivedAt: day(1)),
    ])
    #expect(kinds(items) == [.transaction, .renewalStatus, .claim, .claimed])
    #expect(items.map(\.number) == [1, 2, 3, 4])
    #expect(items.map(\.content.evidenceDate) == [day(0), day(1), nil, nil])
    #expect(kinds(ledger.receive(Self.second)) == [.transaction, .decided])
    #expect(kinds(ledger.place(key("2"), with: b, from: day(31))) == [.ownerOverride, .placed])
    #expect(ledger.line.heads == [mainKey: 8])
  }

  @Test func anAnswerThatRepeatsEverythingHasNoEntry() throws {
    var ledger = Ledger()
    ledger.receive(Self.first, Self.second)
    for asOf in [40.0, 40, 35] {
      let again = [Self.again(Self.first, asOf), Self.again(Self.second, asOf)]
      #expect(ledger.receive(again[0], again[1]) == [])
      #expect(ledger.line.repeated[mainKey]?.asOf == day(40))
    }
    let stored = try JSONEncoder().encode(ledger.line.repeated[mainKey])
    #expect(
      try JSONDecoder().decode(RepeatedEvidence.self, from: stored)
        == ledger.line.repeated[mainKey])
  }

  @Test func aRepeatedAnswerHasItsEntryOnceAnOlderOneContradicts() {
    var ledger = Ledger()
    ledger.receive(Self.first, Self.second)
    ledger.receive(Self.again(Self.first, 40), Self.again(Self.second, 40))
    var refunded = Self.again(Self.first, 35)
    refunded.revocation = .revoked(at: day(34), reason: nil)
    let items = ledger.receive(refunded)
    #expect(kinds(items) == [.transaction, .transaction])
    #expect(items.map(\.content.evidenceDate) == [day(40), day(35)])
    #expect(ledger.charge("1")?.revocation == nil)
  }

  @Test func aRepeatedStatusHasItsEntryOnceADateLiesBetween() {
    var ledger = Ledger()
    ledger.receive(Self.first)
    #expect(kinds(ledger.receive([off(day(10))])) == [.renewalStatus])
    #expect(ledger.receive([off(day(12)), off(day(14))]) == [])
    // Only the first after the charge: the second repeats it.
    let items = ledger.receive(charge("2", from: day(11), to: day(41), item: "w2"))
    #expect(kinds(items).filter { $0 == .renewalStatus }.count == 1)
    #expect(ledger.line.history.statuses == [off(day(10)), off(day(12))])
  }

  @Test func aLongRunOfRepeatedStatusesThinsOutWithAge() throws {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(365)))
    let items = (1...360).flatMap { ledger.receive([on(day(Double($0)))]) }
    #expect(kinds(items) == [.renewalStatus])
    let dates = try #require(ledger.line.repeated[mainKey]).statuses.map(\.asOf)
    #expect(dates.count == RepeatedEvidence.mostStatuses)
    #expect(dates.first == day(2) && dates.suffix(8) == (353...360).map { day(Double($0)) }[...])
    for (earlier, later) in zip(dates, dates.dropFirst()).dropLast(5) {
      #expect(later - earlier <= (day(361) - earlier) / 5)
    }
    // One that arrives late, and the next that says otherwise.
    #expect(kinds(ledger.receive([off(day(200.5))])) == [.renewalStatus, .renewalStatus])
    let statuses = ledger.line.history.statuses
    #expect(statuses.dropLast() == [on(day(1)), off(day(200.5))])
    let next = try #require(statuses.last)
    #expect(next == on(next.asOf) && next.asOf < day(230))
  }

  @Test func aStatusThatLacksOnlyTheTokenHasNoItem() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(365)))
    #expect(kinds(ledger.receive([on(day(1), token: issuedToken(b))])) == [.renewalStatus])
    // A receipt's, then a poll's.
    #expect(ledger.receive([on(day(2))]) == [])
    #expect(ledger.receive([on(day(3), token: issuedToken(b))]) == [])
    #expect(kinds(ledger.receive([on(day(4), token: issuedToken(c))])) == [.renewalStatus])
    #expect(
      ledger.line.history.statuses == [
        on(day(1), token: issuedToken(b)), on(day(4), token: issuedToken(c)),
      ])
  }

  @Test func anAnswerMayListATransactionTwice() {
    var ledger = Ledger()
    ledger.receive(Self.first, Self.second, charge("3", from: day(60), to: day(90), item: "w3"))
    let again = Self.again(Self.first, 70)
    #expect(ledger.receive(again, again) == [])
    let new = charge("4", from: day(90), to: day(120), item: "w4")
    #expect(kinds(ledger.receive(new, new)) == [.transaction, .decided])
  }

  @Test func anAnswerThatRepeatsAPartHasNoEntry() {
    var ledger = Ledger()
    ledger.receive(Self.first, Self.second, charge("3", from: day(60), to: day(90), item: "w3"))
    let items = ledger.receive(Self.again(Self.first, 70), Self.again(Self.second, 70))
    #expect(items == [])
  }

  @Test func anAnswerWithoutTheKnownTokenConfirmsNoToken() {
    var ledger = Ledger()
    var reported = Self.first
    reported.appAccountToken = issuedToken(t)
    ledger.receive(reported, Self.second)
    ledger.receive(Self.again(Self.first, 40), Self.again(Self.second, 40))
    reported.appAccountToken = issuedToken(c)
    ledger.receive(Self.again(reported, 35))
    #expect(ledger.charge("1")?.appAccountToken == issuedToken(c))
  }

  @Test func anAnswerTooOldToKnowOfRefundsConfirmsNone() {
    var ledger = Ledger()
    ledger.receive(Self.first, Self.second)
    var inApp = [Self.again(Self.first, 40), Self.again(Self.second, 40)]
    for index in inApp.indices { inApp[index].revocation = .notSaid }
    ledger.receive(inApp[0], inApp[1])
    var refunded = Self.again(Self.first, 35)
    refunded.revocation = .revoked(at: day(34), reason: nil)
    ledger.receive(refunded)
    #expect(ledger.charge("1")?.revocation?.at == day(34))
  }

  @Test func aReportsOwnStatusLiftsARefundAndTheSilenceOfAnotherDoesNot() {
    func answer(_ id: TransactionID, _ asOf: Double, isRefunded: Bool) -> TransactionRecord {
      charge(
        id, from: day(0), to: day(30), asOf: day(asOf), item: "w1",
        revocation: isRefunded ? .revoked(at: day(5), reason: nil) : .notRevoked)
    }
    var ledger = Ledger()
    ledger.receive(answer("1", 6, isRefunded: true), answer("9", 8, isRefunded: false))
    ledger.claim(key("1"), by: a)
    ledger.receive(charge("2", from: day(12), to: day(42), item: "w2"))
    ledger.claim(key("2"), by: b)
    #expect(ledger.owner("2") == b)
    ledger.receive(answer("1", 10, isRefunded: false))
    #expect(ledger.owner("2") == a)
    #expect(ledger.lastAction("2") == .corrected)
  }

  @Test func aStatusIsNewOnceForEachDate() {
    var ledger = Ledger()
    #expect(ledger.receive([off(day(1)), off(day(1)), off(day(2))]).count == 1)
    #expect(ledger.receive([off(day(2)), off(day(1))]) == [])
    #expect(ledger.line.history.statuses == [off(day(1))])
    #expect(ledger.receive([on(day(1))]).count == 2)
    #expect(ledger.line.history.statuses == [on(day(1)), off(day(1)), off(day(2))])
  }

  @Test func aLinkIsNewOnce() {
    var ledger = Ledger(members: [mainKey, otherKey])
    let link = Item.evidence(.link(line: otherKey, previous: mainKey))
    #expect(kinds(ledger.record([link])) == [.link])
    #expect(ledger.record([link]) == [])
    #expect(ledger.line.links == [otherKey: [mainKey], mainKey: [otherKey]])
    let stored = OriginalTransaction(
      history: ledger.line.history, repeated: [:], decisions: ledger.line.decisions,
      heads: ledger.line.heads,
      links: ledger.line.links)
    var reread = stored
    #expect(reread.record([.link(line: otherKey, previous: mainKey)], at: day(9)).items == [])
  }

  @Test func linkedOriginalTransactionsAreOneByDate() {
    // A's line was moved to another original id; it renews there.
    var ledger = Ledger(members: [mainKey, otherKey])
    ledger.receive(Self.first)
    ledger.claim(key("1"), by: a)
    ledger.record([.evidence(.link(line: otherKey, previous: mainKey))])
    ledger.receive(charge("2", from: day(30), to: day(60), line: otherKey, item: "w2"))
    #expect(ledger.owner("2") == a)
    #expect(ledger.bindings.count == 1)
    #expect(ledger.holdings(of: a).map { $0.renewal != nil } == [false, true])
  }

  @Test func eachMemberCountsItsOwnEntries() {
    var ledger = Ledger(members: [mainKey, otherKey])
    ledger.receive(Self.first, charge("5", from: day(60), to: day(90), line: otherKey))
    #expect(ledger.line.heads == [mainKey: 2, otherKey: 2])
  }

  @Test func theFirstRecordedOfLinkedOriginalTransactionsNamesACharge() {
    var ledger = Ledger(members: [mainKey, otherKey])
    ledger.receive(charge("7", from: day(0), to: day(30), line: otherKey, item: "w"), at: day(1))
    ledger.receive(charge("3", from: day(0), to: day(30), item: "w"), at: day(2))
    #expect(ledger.rule.charges.map(\.id) == [key("7", line: otherKey)])
  }

  @Test func claimsOfOneSubmissionCountByTheDatesOfTheirCharges() {
    // B restores: whatever the receipt's order, the first month comes first, its renewal follows.
    let keys = [key("1", line: otherKey), key("2")]
    for transactions in [keys, keys.reversed()] {
      var ledger = Ledger(members: [mainKey, otherKey])
      ledger.receive([on(day(1)), on(day(2)), on(day(3))])
      ledger.receive(charge("1", from: day(0), to: day(30), line: otherKey, item: "w1"))
      ledger.receive(Self.second)
      ledger.record([
        .actions(
          transactions.map { .claim(Claim(account: b, transaction: $0, receivedAt: day(40))) })
      ])
      #expect(ledger.decision("1")?.rule == .submitter)
      #expect(ledger.decision("2")?.rule == .activelyAutoRenewing)
      #expect(ledger.replayed.history.actions == ledger.line.history.actions)
      #expect(OwnershipRule(ledger.replayed.history).decisions == ledger.rule.decisions)
    }
  }

  @Test func whatWasNotSaidDiffersFromWhatIsEmpty() {
    var (nothing, empty, zero) = (off(day(1)), off(day(1)), off(day(1)))
    empty.autoRenewProductID = ""
    zero.expirationIntent = 0
    nothing.phase = nil
    let statuses = [nothing, empty, zero]
    var (forwards, backwards) = (Ledger(), Ledger())
    forwards.receive(statuses + statuses)
    backwards.receive(statuses.reversed() + statuses.reversed())
    #expect(forwards.line.history.statuses.count == 3)
    #expect(forwards.line.history.statuses == backwards.line.history.statuses)
  }

  @Test func decisionsRememberWhenTheyWereMade() {
    var ledger = Ledger()
    ledger.receive(Self.first, at: day(1))
    ledger.record([claimItem(key("1"), by: a, receivedAt: day(1))], at: day(2))
    let recorded = ledger.line.decisions[key("1")]
    #expect(recorded?.decidedAt == day(2))
    #expect(recorded?.correctedAt == nil)
  }

  @Test func entriesSurviveJSON() throws {
    var generator = SeededGenerator(seed: 11)
    for _ in 0..<50 {
      let history = RandomHistory(isHostile: true, using: &generator)
      var ledger = history.ledger
      ledger.record([.evidence(.link(line: otherKey, previous: mainKey))])
      for item in rearranged(history.items, using: &generator) { ledger.record([item]) }
      let data = try JSONEncoder().encode(ledger.items)
      #expect(try JSONDecoder().decode([LedgerItem].self, from: data) == ledger.items)
    }
  }
}

/// The account that a line is bound to, as of a moment.
struct BindingTests {
  @Test func anOriginalTransactionIsBoundToTheOwnerOfItsLatestChargeBefore() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.claim(key("1"), by: a)
    ledger.receive([off(day(5))])
    ledger.receive(charge("2", from: day(35), to: day(65), kind: .purchase))
    ledger.receive(charge("3", from: day(65), to: day(95)))
    ledger.claim(key("3"), by: b)
    let bindings = ledger.bindings
    #expect(bindings.map(\.account) == [a, nil, b])
    #expect(bindings.map(\.charge) == [key("1"), key("2"), key("3")])
    #expect(bindings.map(\.rule) == [.submitter, .unclaimed, .submitter])
    #expect(bindings.account(asOf: day(0)) == nil)
    #expect(bindings.account(asOf: day(0, ms)) == a)
    #expect(bindings.account(asOf: day(35)) == a)
    #expect(bindings.account(asOf: day(35, ms)) == nil)
    #expect(bindings.account(asOf: day(65, ms)) == b)
  }

  @Test func beforeTheFirstOwnerThereIsNoBinding() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)), charge("2", from: day(40), to: day(70)))
    #expect(ledger.bindings.isEmpty)
    ledger.claim(key("2"), by: b)
    #expect(ledger.bindings.map(\.account) == [b])
  }
}
