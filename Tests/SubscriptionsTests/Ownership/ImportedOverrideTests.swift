import Subscriptions
import Testing

/// Lines that an import placed as a whole, before Apple was asked about them.
struct ImportedOverrideTests {
  static let month = charge("1", from: day(0), to: day(30))
  static let renewal = charge("2", from: day(30), to: day(60))

  @Test func purchasesUntilThenAreTheirsOnceAppleReportsThem() {
    var ledger = Ledger()
    ledger.import(for: a, boughtUntil: day(40))
    #expect(ledger.line.decisions.isEmpty)
    ledger.receive(Self.month, Self.renewal, at: day(41))
    #expect([ledger.owner("1"), ledger.owner("2")] == [a, a])
    #expect(ledger.decision("1")?.rule == .administrator)
    #expect(ledger.lastAction("1") == .placed)
    #expect(ledger.premium(a, at: day(41))?.isActive == true)
  }

  struct Later: Sendable, CustomTestStringConvertible {
    var name: String
    var statuses: [RenewalStatus]
    var kind: ChargeKind
    var day: Double
    var owner: AccountKey?
    var testDescription: String { name }
  }

  // swift-format-ignore
  static let later: [Later] = [
    Later(name: "a renewal is theirs",                 statuses: [],             kind: .renewal,  day: 60, owner: a),
    Later(name: "a charge at the end is theirs",       statuses: [on(day(41))],  kind: .unknown,  day: 60, owner: a),
    Later(name: "after an off it is the submitter's",  statuses: [off(day(41))], kind: .purchase, day: 60, owner: b),
    Later(name: "after a lapse it is the submitter's", statuses: [],             kind: .purchase, day: 80, owner: b),
  ]

  @Test("What is bought later follows the rule", arguments: later)
  func afterwards(_ test: Later) {
    var ledger = Ledger()
    ledger.import(for: a, boughtUntil: day(40))
    ledger.receive(Self.month, Self.renewal, at: day(41))
    ledger.receive(test.statuses, at: day(42))
    ledger.receive(
      charge("3", from: day(test.day), to: day(test.day + 30), kind: test.kind), at: day(test.day))
    ledger.claim(key("3"), by: b)
    #expect(ledger.owner("3") == test.owner)
  }

  @Test func itTakesNothingFromWhomItWasDecidedTo() {
    var ledger = Ledger()
    ledger.receive(Self.month)
    ledger.claim(key("1"), by: b)
    // It is unclaimed, and B had lapsed.
    ledger.receive(charge("2", from: day(80), to: day(110), kind: .purchase), at: day(80))
    ledger.import(for: a, boughtUntil: day(90))
    #expect(ledger.owner("1") == b)
    #expect(ledger.owner("2") == a)
  }

  @Test func aClaimThatComesLaterFindsItSettled() {
    var ledger = Ledger()
    ledger.import(for: a, boughtUntil: day(40))
    ledger.receive(Self.month, at: day(41))
    ledger.claim(key("1"), by: b)
    #expect(ledger.owner("1") == a)
  }

  @Test func aTokenYieldsToIt() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), token: issuedToken(t)))
    #expect(ledger.owner("1") == t)
    ledger.import(for: a, boughtUntil: day(10))
    #expect(ledger.owner("1") == a)
    #expect(ledger.decision("1")?.isProvisional == false)
  }

  @Test func aChargeThatIsPlacedByItselfIsPlacedThere() {
    var ledger = Ledger()
    ledger.import(for: a, boughtUntil: day(40))
    ledger.receive(Self.month, Self.renewal, at: day(41))
    ledger.place(key("2"), with: b, from: day(41))
    #expect([ledger.owner("1"), ledger.owner("2")] == [a, b])
  }

  @Test func ofLinkedLinesItSpeaksForItsOwn() {
    var ledger = Ledger(members: [mainKey, otherKey])
    ledger.record([.evidence(.link(line: otherKey, previous: mainKey))])
    ledger.import(otherKey, for: a, boughtUntil: day(90))
    ledger.receive(Self.month, at: day(91))
    ledger.receive(charge("2", from: day(70), to: day(100), line: otherKey), at: day(91))
    #expect([ledger.owner("1"), ledger.owner("2")] == [nil, a])
  }

  @Test func sayingItAgainAppendsNothing() {
    var ledger = Ledger()
    ledger.import(for: a, boughtUntil: day(40))
    #expect(ledger.import(for: a, boughtUntil: day(40)).isEmpty)
    #expect(ledger.import(for: a, boughtUntil: day(39)).isEmpty)
    #expect(ledger.import(for: a, boughtUntil: day(41)).count == 1)
  }
}
