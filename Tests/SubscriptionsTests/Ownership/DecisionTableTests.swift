import Foundation
import Subscriptions
import Testing

/// The rows of the decision table, and which of them comes first.
struct DecisionTableTests {
  /// A month from day 0 and its renewal on day 30.
  static let month = charge("1", from: day(0), to: day(30))
  static let renewal = charge("2", from: day(30), to: day(60))

  // MARK: Row 4 and row 2

  @Test func withoutClaim() {
    var ledger = Ledger()
    ledger.receive(Self.month)
    #expect(ledger.decision("1")?.rule == .unclaimed)
    #expect(ledger.owner("1") == nil)
    #expect(ledger.lastAction("1") == .decided)
    #expect(ledger.holdings(of: a).isEmpty)
  }

  @Test func theFirstClaimDecides() {
    var ledger = Ledger()
    ledger.receive(Self.month)
    ledger.claim(key("1"), by: b)
    ledger.claim(key("1"), by: a)
    #expect(ledger.decision("1")?.rule == .submitter)
    #expect(ledger.owner("1") == b)
    #expect(ledger.lastAction("1") == .claimed)
  }

  @Test func aClaimOfAnAliasIsAClaimOfItsCharge() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), item: "w"))
    ledger.receive(charge("9", from: day(0), to: day(30), item: "w"))
    ledger.claim(key("9"), by: b)
    ledger.claim(key("1"), by: a)
    #expect(ledger.owner("1") == b)
  }

  @Test func laterUnclaimedChargesFollowAClaim() {
    var ledger = Ledger()
    ledger.receive(Self.month, Self.renewal, charge("3", from: day(60), to: day(90)))
    ledger.claim(key("1"), by: a)
    #expect(ledger.owner("2") == a)
    #expect(ledger.owner("3") == a)
    #expect(ledger.decision("3")?.rule == .activelyAutoRenewing)
    #expect(ledger.decision("3")?.isProvisional == false)
  }

  @Test func earlierChargesDoNotFollowAClaim() {
    var ledger = Ledger()
    ledger.receive(Self.month, Self.renewal)
    ledger.claim(key("2"), by: a)
    #expect(ledger.owner("1") == nil)
  }

  // MARK: Row 1 before row 2 and row 3

  @Test func whoIsRenewingComesBeforeWhoClaims() {
    var ledger = Ledger()
    ledger.receive(Self.month)
    ledger.claim(key("1"), by: a)
    ledger.receive(Self.renewal)
    ledger.claim(key("2"), by: b)
    #expect(ledger.owner("2") == a)
    #expect(ledger.decision("2")?.rule == .activelyAutoRenewing)
  }

  @Test func whoIsRenewingComesBeforeTheToken() {
    var ledger = Ledger()
    ledger.receive(Self.month)
    ledger.claim(key("1"), by: a)
    ledger.receive(charge("2", from: day(30), to: day(60), token: issuedToken(t)))
    #expect(ledger.owner("2") == a)
  }

  // MARK: Row 1t

  struct TokenCase: Sendable, CustomTestStringConvertible {
    var name: String
    var kind: ChargeKind = .purchase
    /// The token of a month two months before, and of the charge.
    var earlier: AccountKey?
    var token: UUID? = issuedToken(t)
    var erased: Timestamp?
    /// Whether A owns a month that ends where the charge begins.
    var isRenewed = false
    /// The owner when it is reported, and after B has claimed it.
    var received: AccountKey?
    var claimed: AccountKey?
    var rule: Decision.Rule

    var testDescription: String { name }
  }

  // swift-format-ignore
  static let tokens: [TokenCase] = [
    TokenCase(name: "a purchase with a token of its own",              received: t, claimed: t, rule: .appAccountToken),
    TokenCase(name: "of a kind that Apple does not name", kind: .unknown, received: t, claimed: t, rule: .appAccountToken),
    TokenCase(name: "with another token than before",     earlier: c,  received: t, claimed: t, rule: .appAccountToken),
    TokenCase(name: "with the token of before",           earlier: t,  received: t, claimed: b, rule: .submitter),
    TokenCase(name: "which Apple calls a renewal",        kind: .renewal, received: t, claimed: b, rule: .submitter),
    TokenCase(name: "with a token that was never issued", token: strangeToken, received: nil, claimed: b, rule: .submitter),
    TokenCase(name: "T was erased before",                erased: day(-1), received: nil, claimed: b, rule: .submitter),
    TokenCase(name: "T was erased at the charge",         erased: day(0), received: nil, claimed: b, rule: .submitter),
    TokenCase(name: "T was erased after",                 erased: day(0, ms), received: t, claimed: t, rule: .appAccountToken),
    TokenCase(name: "the token of before, T was erased",  earlier: t, erased: day(-1), received: nil, claimed: b, rule: .submitter),
    TokenCase(name: "A is renewing",                      kind: .unknown, isRenewed: true, received: a, claimed: a, rule: .activelyAutoRenewing),
    TokenCase(name: "A's month is over, and it was bought again", isRenewed: true, received: t, claimed: t, rule: .appAccountToken),
  ]

  @Test("The token that the buyer's app passed", arguments: tokens)
  func tokenOfItsOwn(_ test: TokenCase) {
    var ledger = Ledger(erasures: test.erased.map { [t: $0] } ?? [:])
    if let earlier = test.earlier {
      ledger.receive(charge("0", from: day(-60), to: day(-40), token: issuedToken(earlier)))
    }
    if test.isRenewed {
      ledger.receive(charge("P", from: day(-30), to: day(0)))
      ledger.claim(key("P"), by: a)
    }
    ledger.receive(charge("C", from: day(0), to: day(30), kind: test.kind, token: test.token))
    #expect(ledger.owner("C") == test.received)
    ledger.claim(key("C"), by: b)
    #expect(ledger.owner("C") == test.claimed)
    #expect(ledger.decision("C")?.rule == test.rule)
    #expect(ledger.decision("C")?.isProvisional == false)
  }

  @Test func aPurchaseWithATokenIsSettledAndSoAreItsRenewals() {
    var ledger = Ledger()
    ledger.receive(
      charge("1", from: day(0), to: day(30), kind: .purchase, token: issuedToken(t)),
      charge("2", from: day(30), to: day(60), token: issuedToken(t)))
    #expect(ledger.decision("1")?.isProvisional == false)
    #expect(ledger.decision("2")?.rule == .activelyAutoRenewing)
    #expect(ledger.decision("2")?.isProvisional == false)
    // The claim itself is the only entry.
    #expect(ledger.claim(key("1"), by: b).count == 1)
    #expect(ledger.claim(key("2"), by: b).count == 1)
    #expect([ledger.owner("1"), ledger.owner("2")] == [t, t])
  }

  @Test func aClaimOfTheChargeBeforeCanShowWhoWasRenewing() {
    // An upgrade with T's token, of an unclaimed month.
    var ledger = Ledger()
    ledger.receive(
      Self.month,
      charge("2", .quarterly, from: day(10), to: day(100), kind: .unknown, token: issuedToken(t)))
    #expect(ledger.owner("2") == t)
    #expect(ledger.decision("2")?.isProvisional == true)
    ledger.claim(key("1"), by: a)
    #expect(ledger.owner("2") == a)
    #expect(ledger.lastAction("2") == .decided)
  }

  // MARK: Row 3

  /// A lapsed month with T's token, which later purchases of the line repeat.
  static let oldMonth = charge("0", from: day(-60), to: day(-30), token: issuedToken(t))

  @Test func theTokenNamesTheOwnerUntilTheFirstClaim() {
    var ledger = Ledger()
    ledger.receive(Self.oldMonth, charge("1", from: day(0), to: day(30), token: issuedToken(t)))
    #expect(ledger.owner("1") == t)
    #expect(ledger.decision("1")?.rule == .appAccountToken)
    #expect(ledger.decision("1")?.isProvisional == true)
    ledger.claim(key("1"), by: b)
    #expect(ledger.owner("1") == b)
    #expect(ledger.decision("1")?.rule == .submitter)
    ledger.claim(key("1"), by: t)
    #expect(ledger.owner("1") == b)
  }

  @Test func aTokenThatWasNeverIssuedNamesNoAccount() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), token: strangeToken))
    #expect(ledger.decision("1")?.rule == .unclaimed)
  }

  @Test func theLatestAnswersTokenCounts() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), asOf: day(5), token: issuedToken(t)))
    ledger.receive(charge("1", from: day(0), to: day(30), asOf: day(3), token: issuedToken(c)))
    #expect(ledger.owner("1") == t)
    ledger.receive(charge("1", from: day(0), to: day(30), asOf: day(6)))
    #expect(ledger.owner("1") == t, "an answer without a token says nothing of tokens")
    ledger.receive(charge("1", from: day(0), to: day(30), asOf: day(7), token: issuedToken(c)))
    #expect(ledger.owner("1") == c)
  }

  @Test func renewalsOfATokensOwnerYieldTogetherWithIt() {
    var ledger = Ledger()
    ledger.receive(
      Self.oldMonth, charge("1", from: day(0), to: day(30), token: issuedToken(t)), Self.renewal)
    #expect(ledger.owner("2") == t)
    #expect(ledger.decision("2")?.isProvisional == true)
    ledger.claim(key("1"), by: b)
    #expect(ledger.owner("2") == b)
    #expect(ledger.decision("2")?.isProvisional == false)
  }

  @Test func aClaimOfTheRenewalSettlesItForTheTokensOwner() {
    var ledger = Ledger()
    ledger.receive(
      Self.oldMonth, charge("1", from: day(0), to: day(30), token: issuedToken(t)), Self.renewal)
    ledger.claim(key("2"), by: b)
    #expect(ledger.owner("2") == t)
    ledger.claim(key("1"), by: b)
    #expect(ledger.owner("1") == b)
    #expect(ledger.owner("2") == t, "an owner once settled stays, whatever claims come later")
  }

  // MARK: Row 0

  @Test func anAdministratorComesFirst() {
    var ledger = Ledger()
    ledger.receive(Self.month)
    ledger.claim(key("1"), by: a)
    ledger.place(key("1"), with: b, from: day(10))
    #expect(ledger.owner("1") == b)
    #expect(ledger.decision("1")?.rule == .administrator)
    #expect(ledger.lastAction("1") == .placed)
    ledger.claim(key("1"), by: c)
    #expect(ledger.owner("1") == b)
    ledger.place(key("1"), with: nil, from: day(11))
    #expect(ledger.owner("1") == nil)
    #expect(ledger.decision("1")?.rule == .unclaimed)
    ledger.claim(key("1"), by: c)
    #expect(ledger.owner("1") == c)
  }

  @Test func anAdministratorComesBeforeWhoIsRenewing() {
    var ledger = Ledger()
    ledger.receive(Self.month)
    ledger.claim(key("1"), by: a)
    ledger.receive(Self.renewal)
    ledger.place(key("2"), with: b, from: day(31))
    #expect(ledger.owner("2") == b)
    ledger.receive(charge("3", from: day(60), to: day(90)))
    #expect(ledger.owner("3") == b)
  }

  @Test(
    "A placement counts for what is charged from its moment on",
    arguments: [(day(30, ms), a), (day(30), b), (day(10), b)])
  func overridesCountFromTheirMomentOn(_ effectiveFrom: Timestamp, _ owner: AccountKey) {
    // Whether the renewal was known when the administrator acted or came later.
    for isKnownBefore in [true, false] {
      var ledger = Ledger()
      ledger.receive(Self.month)
      ledger.claim(key("1"), by: a)
      if isKnownBefore { ledger.receive(Self.renewal) }
      ledger.place(key("1"), with: b, from: effectiveFrom)
      ledger.receive(Self.renewal)
      #expect(ledger.owner("1") == b)
      #expect(ledger.owner("2") == owner)
    }
  }

  @Test func anOverrideOfAnUnknownTransactionWaitsForIt() {
    var ledger = Ledger()
    ledger.place(key("1"), with: b, from: day(0))
    ledger.receive(Self.month, Self.renewal)
    #expect(ledger.owner("1") == b)
    #expect(ledger.owner("2") == b)
  }

  // MARK: Other product types

  @Test func theFirstClaimDecidesOnAConsumableOnce() {
    var ledger = Ledger()
    ledger.receive(charge("1", .gems, from: day(0)))
    ledger.claim(key("1", .gems), by: b)
    ledger.claim(key("1", .gems), by: a)
    #expect(ledger.owner("1") == b)
    #expect(ledger.decision("1")?.renewal.reason == .notASubscription)
  }

  // MARK: Corrections

  @Test func lateEvidenceCorrectsASettledOwner() {
    var ledger = Ledger()
    ledger.receive(Self.month)
    ledger.claim(key("1"), by: a)
    ledger.receive([off(day(10))])
    ledger.receive(Self.renewal)
    ledger.claim(key("2"), by: b)
    #expect(ledger.owner("2") == b)
    ledger.receive([on(day(29))])
    #expect(ledger.owner("2") == a)
    #expect(ledger.lastAction("2") == .corrected)
    let charge = ledger.charge("2")?.id
    #expect(charge.flatMap { ledger.line.decisions[$0]?.correctedAt } != nil)
  }

  @Test func aRowThreeOwnerIsNotCorrectedButReplaced() {
    var ledger = Ledger()
    ledger.receive(charge("2", from: day(30), to: day(60), token: issuedToken(t)))
    ledger.receive(Self.month)
    ledger.claim(key("1"), by: a)
    #expect(ledger.owner("2") == a)
    #expect(ledger.lastAction("2") == .decided)
  }
}
