import Subscriptions
import Testing

/// Refunds, their reversals, and the upgrades that look like them.
struct RevocationTests {
  static func month(
    _ id: TransactionID = "1", asOf: Double, refundedAt: Double? = nil,
    item: WebOrderLineItemID? = nil
  ) -> TransactionRecord {
    charge(
      id, from: day(0), to: day(30), asOf: day(asOf), item: item,
      revocation: refundedAt.map { .revoked(at: day($0), reason: "1") } ?? .notRevoked)
  }

  // MARK: By the date of the answer

  @Test("The latest answer holds, in whatever order answers come")
  func latestAnswer() {
    let answers = [
      Self.month(asOf: 1), Self.month(asOf: 6, refundedAt: 5), Self.month(asOf: 8),
      Self.month(asOf: 12, refundedAt: 11),
    ]
    let expected: [Timestamp?] = [nil, day(5), nil, day(11)]
    for (count, revokedAt) in zip(1...4, expected) {
      var generator = SeededGenerator(seed: 3)
      for _ in 0..<24 {
        var ledger = Ledger()
        for answer in answers.prefix(count).shuffled(using: &generator) { ledger.receive(answer) }
        #expect(ledger.charge("1")?.revocation?.at == revokedAt)
      }
    }
  }

  struct Lifting: Sendable, CustomTestStringConvertible {
    var name: String
    /// The responses, with the day of each; revocations have the given day.
    var statuses: [(asOf: Timestamp, status: RevocationStatus)]
    var revokedAt: Timestamp?

    var testDescription: String { name }
  }

  static func refund(_ at: Timestamp) -> RevocationStatus { .revoked(at: at, reason: "1") }
  static func receipt(_ at: Timestamp) -> RevocationStatus { .mentioned(at: at, reason: "1") }

  // swift-format-ignore
  static let liftings: [Lifting] = [
    Lifting(name: "silence is none",            statuses: [(day(7), .notSaid), (day(6), refund(day(5)))], revokedAt: day(5)),
    Lifting(name: "a signed answer lifts it",   statuses: [(day(6), refund(day(5))), (day(6, ms), .notRevoked)], revokedAt: nil),
    Lifting(name: "a receipt right after it",   statuses: [(day(6), refund(day(5))), (day(6, ms), .notMentioned)], revokedAt: day(5)),
    Lifting(name: "a receipt within 24 h",      statuses: [(day(6), refund(day(5))), (day(7, minus(ms)), .notMentioned)], revokedAt: day(5)),
    Lifting(name: "a receipt after 24 h",       statuses: [(day(6), refund(day(5))), (day(7), .notMentioned)], revokedAt: nil),
    Lifting(name: "24 h after the first answer, not the last", statuses: [(day(6), refund(day(5))), (day(6.9), refund(day(5))), (day(7), .notMentioned)], revokedAt: nil),
    Lifting(name: "said again after the receipt", statuses: [(day(6), refund(day(5))), (day(8), .notMentioned), (day(9), refund(day(5)))], revokedAt: day(5)),
    Lifting(name: "refunded again, receipt right after it", statuses: [(day(6), refund(day(5))), (day(8), .notRevoked), (day(12), refund(day(12))), (day(12.5), .notMentioned)], revokedAt: day(12)),
    Lifting(name: "refunded again, receipt after 24 h", statuses: [(day(6), refund(day(5))), (day(8), .notRevoked), (day(12), refund(day(12))), (day(13), .notMentioned)], revokedAt: nil),
    Lifting(name: "a receipt repeats what was lifted", statuses: [(day(6), refund(day(5))), (day(8), .notRevoked), (day(9, minus(ms)), receipt(day(5)))], revokedAt: nil),
    Lifting(name: "a receipt repeats it after 24 h", statuses: [(day(6), refund(day(5))), (day(8), .notRevoked), (day(9), receipt(day(5)))], revokedAt: day(5)),
    Lifting(name: "receipts repeat what only they said", statuses: [(day(6), receipt(day(5))), (day(8), .notRevoked), (day(8.5), receipt(day(5)))], revokedAt: nil),
    Lifting(name: "a receipt names a second refund", statuses: [(day(6), refund(day(5))), (day(8), .notRevoked), (day(8.5), receipt(day(8.4)))], revokedAt: day(8.4)),
    Lifting(name: "a receipt names what was never lifted", statuses: [(day(8), .notRevoked), (day(8.5), receipt(day(5)))], revokedAt: day(5)),
    Lifting(name: "a receipt as old as the lifting", statuses: [(day(8), .notRevoked), (day(8), receipt(day(5)))], revokedAt: day(5)),
    Lifting(name: "signed again within 24 h", statuses: [(day(6), refund(day(5))), (day(8), .notRevoked), (day(8.5), receipt(day(5))), (day(8.6), refund(day(8.1)))], revokedAt: day(8.1)),
    Lifting(name: "a second refund known late, receipt right after it", statuses: [(day(6), refund(day(5))), (day(8), .notRevoked), (day(14), refund(day(12))), (day(14.5), .notMentioned)], revokedAt: day(12)),
    Lifting(name: "a second refund known late, receipt after 24 h", statuses: [(day(6), refund(day(5))), (day(8), .notRevoked), (day(14), refund(day(12))), (day(15), .notMentioned)], revokedAt: nil),
    Lifting(name: "an earlier date in a late receipt, another within 24 h of the known one", statuses: [(day(6), refund(day(5))), (day(6.5), receipt(day(4))), (day(6.9), .notMentioned)], revokedAt: day(5)),
    Lifting(name: "a later date in a late receipt, another within 24 h of it", statuses: [(day(6), receipt(day(5))), (day(6.5), receipt(day(5.5))), (day(7.2), .notMentioned)], revokedAt: day(5.5)),
    Lifting(name: "an earlier date in a late receipt, another after 24 h of the known one", statuses: [(day(6), receipt(day(5))), (day(6.5), receipt(day(4))), (day(7.2), .notMentioned)], revokedAt: nil),
    Lifting(name: "lifted before it was said",  statuses: [(day(4), .notRevoked), (day(4), .notMentioned), (day(6), refund(day(5)))], revokedAt: day(5)),
  ]

  @Test("What lifts a revocation, in whatever order answers come", arguments: liftings)
  func lifts(_ test: Lifting) {
    var generator = SeededGenerator(seed: 11)
    for _ in 0..<12 {
      var ledger = Ledger()
      for (asOf, status) in test.statuses.shuffled(using: &generator) {
        ledger.receive(charge("1", from: day(0), to: day(30), asOf: asOf, revocation: status))
      }
      #expect(ledger.charge("1")?.revocation?.at == test.revokedAt)
      #expect(ledger.replayed.history.transactions == ledger.line.history.transactions)
    }
  }

  @Test(
    "The silence of an alias lifts nothing",
    arguments: [RevocationStatus.notMentioned, .notRevoked])
  func silentAlias(_ status: RevocationStatus) {
    for records in [
      [Self.month("1", asOf: 6, refundedAt: 5, item: "w")],
      [Self.month("1", asOf: 1, item: "w"), Self.month("1", asOf: 6, refundedAt: 5, item: "w")],
    ] {
      var ledger = Ledger()
      for record in records { ledger.receive(record) }
      ledger.receive(
        charge("9", from: day(0), to: day(30), asOf: day(20), item: "w", revocation: status))
      #expect(ledger.charge("1")?.revocation?.at == day(5))
      // Only a status of the refunded transaction itself lifts it.
      ledger.receive(
        charge("1", from: day(0), to: day(30), asOf: day(20), item: "w", revocation: status))
      #expect(ledger.charge("1")?.revocation == nil)
    }
  }

  @Test("A signed reversal clears what receipts say of an alias, for 24 h")
  func reversalOfAnAlias() {
    func month(_ id: TransactionID, _ asOf: Double, _ status: RevocationStatus) -> TransactionRecord
    {
      charge(id, from: day(0), to: day(30), asOf: day(asOf), item: "w", revocation: status)
    }
    let (refund, receipt) = (Self.refund(day(5)), Self.receipt(day(5)))
    // swift-format-ignore
    let stories: [(records: [TransactionRecord], revokedAt: Timestamp?)] = [
      ([month("1", 6, refund),  month("9", 7, receipt),    month("1", 8, .notRevoked)], nil),
      ([month("1", 6, receipt), month("9", 7, receipt),    month("1", 8, .notRevoked)], nil),
      ([month("1", 6, refund),  month("9", 8.9, receipt),  month("1", 8, .notRevoked)], nil),
      ([month("1", 6, refund),  month("9", 9, receipt),    month("1", 8, .notRevoked)], day(5)),
      ([month("1", 6, refund),  month("9", 8.5, Self.receipt(day(8.2))), month("1", 8, .notRevoked)], day(8.2)),
      ([month("1", 6, refund),  month("9", 7, refund),     month("1", 8, .notRevoked)], day(5)),
      ([month("9", 7, receipt), month("1", 8, .notRevoked)],                            day(5)),
    ]
    var generator = SeededGenerator(seed: 17)
    for (records, revokedAt) in stories {
      for _ in 0..<6 {
        var ledger = Ledger()
        for record in records.shuffled(using: &generator) { ledger.receive(record) }
        #expect(ledger.charge("1")?.revocation?.at == revokedAt)
      }
    }
  }

  @Test("Merging what answers say is commutative, associative and idempotent")
  func merging() {
    forAll("Revocations merge by extremes", iterations: 400) { generator in
      let statuses = (0..<generator.number(2...6)).map { _ in
        let asOf = day(0, .hours(12 * generator.number(0...6)))
        let at = day(0, .hours(12 * generator.number(0...4)))
        let status = generator.pick(
          RevocationStatus.notSaid, .notMentioned, .notRevoked, Self.refund(at), Self.receipt(at),
          .mentioned(at: at, reason: nil))
        return charge("1", from: day(0), to: day(30), asOf: asOf, revocation: status)
      }
      func merged(_ statuses: [TransactionRecord]) -> StoreTransaction {
        var result = StoreTransaction(
          statuses[0], recorded: RecordingOrder(at: day(0), number: 1))
        for status in statuses { result.merge(status) }
        return result
      }
      let expected = merged(statuses)
      for _ in 0..<4 {
        let others = (statuses + [generator.pick(from: statuses)]).shuffled(using: &generator)
        if merged(others) != expected { return "\(others)" }
      }
      return nil
    }
  }

  @Test(
    "What was refunded of a price",
    arguments: [
      (nil, nil, -10_000 as Int64?), ("REFUND_FULL", 100_000, -10_000),
      ("REFUND_PRORATED", 30_000, -3_000), ("REFUND_PRORATED", 67_932, -6_793),
      ("REFUND_PRORATED", nil, -10_000), ("REFUND_PRORATED", 0, 0), ("FAMILY_REVOKE", nil, nil),
      ("FAMILY_REVOKE", 100_000, nil), ("NEW_TYPE", 50_000, -5_000),
    ] as [(String?, Int64?, Int64?)])
  func share(_ type: String?, _ percentage: Int64?, _ refunded: Int64?) {
    var record = charge("1", from: day(0), to: day(30), asOf: day(12))
    record.priceMilliunits = 10_000
    record.currency = "EUR"
    record.revocation = .revoked(
      Revocation(at: day(12), reason: "1", type: type, percentage: percentage))
    var ledger = Ledger()
    ledger.receive(record)
    ledger.claim(key("1"), by: a)
    #expect(ledger.charge("1")?.revocation?.percentage == percentage)
    #expect(ledger.premium(a, at: day(13))?.state == .revoked, "access ends all the same")
    let movements = ledger.movements(in: catalogue)
    #expect(movements.first { $0.kind == .refunded }?.terms.price?.amountMilliunits == refunded)
    #expect(
      movements.first { $0.kind == .ended }?.cause == (refunded == nil ? "unknown" : "refunded"))
  }

  @Test func ofOneDateTheRevocationIsStronger() {
    for answers in [
      [Self.month(asOf: 6, refundedAt: 5), Self.month(asOf: 6)],
      [Self.month(asOf: 6), Self.month(asOf: 6, refundedAt: 5)],
    ] {
      var ledger = Ledger()
      for answer in answers { ledger.receive(answer) }
      #expect(ledger.charge("1")?.revocation?.at == day(5))
    }
  }

  @Test func whatIsTooOldToKnowSaysNothing() {
    var inApp = Self.month(asOf: 20)
    inApp.revocation = .notSaid
    var ledger = Ledger()
    ledger.receive(Self.month(asOf: 6, refundedAt: 5))
    ledger.receive(inApp)
    #expect(ledger.charge("1")?.revocation == Revocation(at: day(5), reason: "1"))
  }

  @Test func aConfirmationOutweighsAnOlderAnswerThatComesLater() {
    var ledger = Ledger()
    ledger.receive(Self.month(asOf: 1))
    ledger.receive(Self.month(asOf: 10))
    ledger.receive(Self.month(asOf: 6, refundedAt: 5))
    #expect(ledger.charge("1")?.revocation == nil)
  }

  @Test func aRevocationBeforeTheTransactionApplies() {
    // REFUND of an unknown transaction brings the transaction itself.
    var ledger = Ledger()
    ledger.receive(Self.month(asOf: 6, refundedAt: 5))
    ledger.receive(Self.month(asOf: 1))
    ledger.claim(key("1"), by: a)
    #expect(ledger.premium(a, at: day(4))?.state == .active)
    #expect(ledger.premium(a, at: day(6))?.state == .revoked)
  }

  @Test func revokingAnAliasRevokesItsCharge() {
    var ledger = Ledger()
    ledger.receive(Self.month("1", asOf: 1, item: "w"))
    ledger.claim(key("1"), by: a)
    ledger.receive(Self.month("9", asOf: 6, refundedAt: 5, item: "w"))
    #expect(ledger.premium(a, at: day(6))?.state == .revoked)
  }

  @Test func ofOneAnswerThatListsBothTheRevokedAliasCounts() {
    var ledger = Ledger()
    ledger.receive(
      Self.month("1", asOf: 6, item: "w"), Self.month("9", asOf: 6, refundedAt: 5, item: "w"))
    #expect(ledger.charge("1")?.revocation?.at == day(5))
  }

  @Test func aRefundOfAnOldPeriodEndsNothingElse() {
    var ledger = Ledger()
    ledger.receive(Self.month(asOf: 1), charge("2", from: day(30), to: day(60)))
    ledger.claim(key("1"), by: a)
    ledger.receive(Self.month(asOf: 40, refundedAt: 39))
    #expect(ledger.premium(a, at: day(40))?.state == .active)
    #expect(ledger.premium(a, at: day(40))?.willRenew == true)
    #expect(ledger.owner("2") == a)
  }

  @Test func grantedAccessEndsAtOnceForAnyOwner() {
    var ledger = Ledger()
    ledger.receive(Self.month(asOf: 1))
    ledger.claim(key("1"), by: a)
    ledger.receive(Self.month(asOf: 6, refundedAt: 5))
    #expect(ledger.premium(a, at: day(5, minus(ms)))?.state == .active)
    #expect(ledger.premium(a, at: day(5))?.state == .revoked)
    #expect(ledger.premium(a, at: day(30))?.state == .revoked)
  }

  // MARK: Upgrades

  struct Upgrade: Sendable, CustomTestStringConvertible {
    var name: String
    var cancelledAt: Timestamp?
    var saysUpgraded: Bool
    var successor: TransactionRecord?
    var supersededAt: Timestamp?
    var isRevoked: Bool

    init(
      _ name: String, cancelled: Timestamp? = nil, upgraded: Bool = false,
      successor: TransactionRecord? = nil, supersededAt: Timestamp? = nil, isRevoked: Bool = false
    ) {
      self.name = name
      cancelledAt = cancelled
      saysUpgraded = upgraded
      self.successor = successor
      self.supersededAt = supersededAt
      self.isRevoked = isRevoked
    }

    var testDescription: String { name }
  }

  static let quarter = charge("2", .quarterly, from: day(10), to: day(100))
  static let sameProduct = charge("2", from: day(10), to: day(40))
  static let bought = charge("2", .quarterly, from: day(10), to: day(100), kind: .purchase)
  static let boughtAtEnd = charge("2", .quarterly, from: day(30), to: day(120), kind: .purchase)
  static let boughtBefore = charge("2", .quarterly, from: day(-1), to: day(89), kind: .purchase)
  static let gems = charge("2", .gems, from: day(10))
  static let earlier = charge("2", .quarterly, from: day(-1), to: day(89))
  static let later = charge("2", .quarterly, from: day(25), to: day(115))

  /// The month's answers are of day 20.
  // swift-format-ignore
  static let upgrades: [Upgrade] = [
    Upgrade("neither"),
    Upgrade("a refund",                          cancelled: day(10),                                          isRevoked: true),
    Upgrade("cancelled with the successor",      cancelled: day(10),                      successor: quarter, supersededAt: day(10)),
    Upgrade("cancelled 60 s before",             cancelled: day(10, minus(.seconds(60))), successor: quarter, supersededAt: day(10, minus(.seconds(60)))),
    Upgrade("cancelled 60 s after",              cancelled: day(10, .seconds(60)),        successor: quarter, supersededAt: day(10, .seconds(60))),
    Upgrade("refunded 60 s and 1 ms before",     cancelled: day(10, minus(.seconds(60) + ms)), successor: quarter, isRevoked: true),
    Upgrade("refunded 60 s and 1 ms after",      cancelled: day(10, .seconds(60) + ms),   successor: quarter, isRevoked: true),
    Upgrade("refunded when the same is bought",  cancelled: day(10),                      successor: sameProduct, isRevoked: true),
    Upgrade("refunded when gems are bought",     cancelled: day(10),                      successor: gems,    isRevoked: true),
    Upgrade("cancelled with a plan dated before", cancelled: day(-1, .seconds(30)),       successor: earlier, supersededAt: day(-1, .seconds(30))),
    Upgrade("refunded, another plan long before", cancelled: day(1),                      successor: earlier, isRevoked: true),
    Upgrade("upgraded, successor known",         upgraded: true,                          successor: quarter, supersededAt: day(10)),
    Upgrade("upgraded, successor unknown",       upgraded: true,                                              supersededAt: day(20)),
    Upgrade("upgraded, cancelled, unknown",      cancelled: day(10), upgraded: true,                          supersededAt: day(10)),
    Upgrade("upgraded before what is known",     upgraded: true,                          successor: later,   supersededAt: day(20)),
    // Notifications name the new charge alone.
    Upgrade("another plan, of unknown kind",                                              successor: quarter),
    Upgrade("another plan was bought",                                                    successor: bought,  supersededAt: day(10)),
    Upgrade("another plan was bought at the end",                                         successor: boughtAtEnd),
    Upgrade("another plan was bought before",                                             successor: boughtBefore),
    Upgrade("bought, and refunded before that",  cancelled: day(8),                       successor: bought,  isRevoked: true),
    Upgrade("bought, and refunded after that",   cancelled: day(12),                      successor: bought,  supersededAt: day(10), isRevoked: true),
  ]

  @Test("An upgrade or a refund", arguments: upgrades)
  func upgradeOrRefund(_ test: Upgrade) {
    let month = charge(
      "1", from: day(0), to: day(30), asOf: day(20), isUpgraded: test.saysUpgraded,
      revocation: test.cancelledAt.map { .revoked(at: $0, reason: nil) } ?? .notRevoked)
    for records in [
      [month] + [test.successor].compactMap(\.self),
      [test.successor].compactMap(\.self) + [month],
    ] {
      var ledger = Ledger()
      for record in records { ledger.receive(record) }
      #expect(ledger.charge("1")?.supersededAt == test.supersededAt)
      #expect((ledger.charge("1")?.revocation != nil) == test.isRevoked)
    }
  }

  @Test func anUpgradeAfterAnEarlyRenewalReplacesTheRenewal() {
    // Apple charges the renewal on day 29.2 and dates it day 30; on day 29.5 A upgrades.
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.receive(charge("2", from: day(30), to: day(60), asOf: day(29.2)))
    ledger.receive(
      charge(
        "2", from: day(30), to: day(60), asOf: day(29.5),
        revocation: .revoked(at: day(29.5), reason: nil)),
      charge("3", .quarterly, from: day(29.5), to: day(120)))
    #expect(ledger.charge("2")?.supersededAt == day(29.5))
    #expect(ledger.charge("2")?.revocation == nil)
    ledger.claim(key("1"), by: a)
    #expect(ledger.premium(a, at: day(31))?.expiresAt == day(120))
  }

  /// A month whose renewal Apple charged on day 29.2 and dated day 30, and the quarter that A
  /// upgraded to on day 29.5: the renewal never began.
  private func upgradedAfterAnEarlyRenewal() -> Ledger {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30)))
    ledger.receive(charge("2", from: day(30), to: day(60), asOf: day(29.2)))
    ledger.claim(key("1"), by: a)
    ledger.receive(
      charge(
        "2", from: day(30), to: day(60), asOf: day(29.5),
        revocation: .revoked(at: day(29.5), reason: nil)),
      charge("3", .quarterly, from: day(29.5), to: day(120)))
    ledger.claim(key("3", .quarterly), by: a)
    return ledger
  }

  @Test func whatFollowsAnUpgradeFollowsItThoughARenewalIsDatedLater() {
    for isQuiet in [true, false] {
      var ledger = upgradedAfterAnEarlyRenewal()
      #expect(ledger.charge("2")?.neverBegan == true)
      #expect(ledger.premium(a, at: day(31))?.willRenew == true)
      #expect(
        Binding.bindings(of: ledger.rule.charges, decisions: ledger.rule.decisions).count == 1)
      // Another account's receipt reports the quarter's renewal first, or no renewal at all.
      if !isQuiet { ledger.receive(charge("4", .quarterly, from: day(120), to: day(210))) }
      ledger.claim(key("4", .quarterly), by: b)
      if isQuiet { ledger.receive(charge("4", .quarterly, from: day(120), to: day(210))) }
      #expect(ledger.decision("4")?.owner == a)
      #expect(ledger.decision("4")?.renewal.reason == .renewedAtPeriodEnd)
    }
  }

  @Test func anUpgradeAfterAnEarlyRenewalHasItsGracePeriod() {
    var ledger = upgradedAfterAnEarlyRenewal()
    ledger.receive([status(day(120.1), .gracePeriod(until: day(136)))])
    #expect(ledger.premium(a, at: day(121))?.state == .inGracePeriod)
    #expect(ledger.premium(a, at: day(121))?.isActive == true)
  }

  @Test func aLateReportDoesNotMakeABoughtUpgradeLater() {
    let records = [
      charge("1", from: day(0), to: day(30), kind: .purchase),
      charge("2", from: day(30), to: day(60), asOf: day(31), kind: .renewal, isUpgraded: true),
      charge("3", .quarterly, from: day(29.5), to: day(119.5), kind: .purchase),
    ]
    for records in [records, records.reversed()] {
      var ledger = Ledger()
      for record in records { ledger.receive(record) }
      #expect(ledger.charge("2")?.supersededAt == day(29.5))
    }
  }

  // swift-format-ignore
  @Test("What is bought after an early renewal replaces it, and what renews afterwards stays", arguments: [
    // the quarter is bought on, and a month is renewed on   which is replaced on
    (29.5,                        30.0,                      29.5 as Double?),
    (29.5,                        119.5,                     nil),
    (29.5,                        119.5 - 2 / 1440,          29.5),
    (31,                          30,                        31),
  ])
  func whatIsBoughtAfterAnEarlyRenewal(boughtOn: Double, renewedOn: Double, replacedOn: Double?) {
    let records = [
      charge("1", from: day(0), to: day(30)),
      charge("2", from: day(renewedOn), to: day(renewedOn + 30), kind: .renewal),
      charge("3", .quarterly, from: day(boughtOn), to: day(boughtOn + 90), kind: .purchase),
    ]
    for records in [records, records.reversed()] {
      var ledger = Ledger()
      for record in records { ledger.receive(record) }
      #expect(ledger.charge("2")?.supersededAt == replacedOn.map { day($0) })
      #expect(ledger.charge("3")?.supersededAt == nil)
    }
  }

  @Test func whatWasReplacedItselfReplacesNoRenewal() {
    let records = [
      charge("1", .quarterly, from: day(0), to: day(90), kind: .purchase),
      charge("2", from: day(10), to: day(40), kind: .purchase),
      charge("3", from: day(40), to: day(70), kind: .renewal),
    ]
    for records in [records, records.reversed()] {
      var ledger = Ledger()
      for record in records { ledger.receive(record) }
      #expect(ledger.charge("1")?.supersededAt == day(10))
      #expect(ledger.charge("2")?.supersededAt == nil)
      #expect(ledger.charge("3")?.supersededAt == nil)
    }
  }

  @Test func ofOneRevocationTheReasonCounts() {
    // "Why" is known in one answer, empty in another and left out in a third.
    var generator = SeededGenerator(seed: 5)
    let answers = [nil, "", "1"].map { (reason: String?) in
      charge(
        "1", from: day(0), to: day(30), asOf: day(6),
        revocation: .revoked(at: day(5), reason: reason))
    }
    for _ in 0..<12 {
      var ledger = Ledger()
      for answer in answers.shuffled(using: &generator) { ledger.receive(answer) }
      #expect(ledger.charge("1")?.revocation == Revocation(at: day(5), reason: ""))
    }
  }

  @Test func anUpgradedChargeGivesNothingWhateverItsExpirySays() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), asOf: day(11), isUpgraded: true))
    ledger.claim(key("1"), by: a)
    ledger.receive([off(day(5))])
    ledger.receive(Self.quarter)
    ledger.claim(key("2", .quarterly), by: b)
    #expect(ledger.premium(a, at: day(9))?.state == .active)
    #expect(ledger.premium(a, at: day(10))?.state == .expired)
  }
}
