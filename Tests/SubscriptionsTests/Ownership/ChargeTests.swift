import Subscriptions
import Testing

/// Transactions that report one charge, and the charge's name.
struct ChargeTests {
  struct Pair: Sendable, CustomTestStringConvertible {
    var name: String
    var one: TransactionRecord
    var other: TransactionRecord
    var areOneCharge: Bool

    init(
      _ name: String, _ one: TransactionRecord, _ other: TransactionRecord, _ areOneCharge: Bool
    ) {
      self.name = name
      self.one = one
      self.other = other
      self.areOneCharge = areOneCharge
    }

    var testDescription: String { name }
  }

  static func month(
    _ id: TransactionID, _ product: ProductID = .monthly, _ start: Double = 0, _ end: Double = 30,
    item: WebOrderLineItemID? = nil, line: OriginalTransactionKey = mainKey
  ) -> TransactionRecord {
    charge(id, product, from: day(start), to: day(end), line: line, item: item)
  }

  static func once(
    _ id: TransactionID, _ product: ProductID, _ start: Double, revokedAt: Timestamp? = nil,
    item: WebOrderLineItemID? = nil
  ) -> TransactionRecord {
    charge(
      id, product, from: day(start), item: item,
      revocation: revokedAt.map { .revoked(at: $0, reason: nil) } ?? .notRevoked)
  }

  // swift-format-ignore
  static let pairs: [Pair] = [
    Pair("same line item, all else different",         month("1", item: "w"), month("2", .quarterly, 5, 95, item: "w"), true),
    Pair("other line item, all else equal",            month("1", item: "w"), month("2", item: "x"),                    false),
    Pair("one lacks it, same date, other expiry",      month("1", item: "w"), month("2", .monthly, 0, 31),              true),
    Pair("both lack it, same date, other expiry",      month("1"),            month("2", .monthly, 0, 31),              true),
    Pair("one lacks it, other date, same expiry",      month("1", item: "w"), month("2", .monthly, 1, 30),              true),
    Pair("one lacks it, same dates, other product",    month("1", item: "w"), month("2", .quarterly),                   false),
    Pair("one lacks it, other dates",                  month("1", item: "w"), month("2", .monthly, 30, 60),             false),
    Pair("one lacks it, a millisecond apart",          month("1"), charge("2", from: day(0, ms), to: day(30, ms)),      false),
    Pair("bought once, restored",                      once("1", .lifetime, 0), once("2", .lifetime, 99),               true),
    Pair("bought once, other product",                 once("1", .lifetime, 0), once("2", .gems, 99),                   false),
    Pair("bought again after a revocation",            once("1", .lifetime, 0, revokedAt: day(9)), once("2", .lifetime, 99), false),
    Pair("revoked just before the other was bought",   once("1", .lifetime, 0, revokedAt: day(99, minus(ms))), once("2", .lifetime, 99), false),
    Pair("revoked when the other was bought",          once("1", .lifetime, 0, revokedAt: day(99)), once("2", .lifetime, 99), true),
    Pair("the later one was revoked",                  once("1", .lifetime, 0), once("2", .lifetime, 99, revokedAt: day(100)), true),
    Pair("bought once, two line items",                once("1", .lifetime, 0, item: "w"), once("2", .lifetime, 99, item: "x"), false),
    Pair("the same id under another original id",      month("1", item: "w"), month("1", .monthly, 30, 60, item: "x", line: otherKey), true),
    Pair("the same line item under another original",  month("1", item: "w"), month("2", .monthly, 30, 60, item: "w", line: otherKey), true),
    Pair("the same id, another product",               month("1", item: "w"), month("1", .quarterly, 30, 60, item: "x"), false),
    Pair("same month, one lacks the item, other line", month("1", item: "w"), month("2", line: otherKey),              true),
    Pair("known to renew, no expiries, same date",
         charge("1", from: day(0), productType: .autoRenewable), charge("2", from: day(0), productType: .autoRenewable), true),
    Pair("known to renew, no expiries, other date",
         charge("1", from: day(0), productType: .autoRenewable), charge("2", from: day(30), productType: .autoRenewable), false),
  ]

  @Test("Two reports of one charge", arguments: pairs)
  func twoReports(_ pair: Pair) {
    for records in [[pair.one, pair.other], [pair.other, pair.one]] {
      var ledger = Ledger(members: [mainKey, otherKey])
      for (count, record) in records.enumerated() {
        ledger.receive(record, at: day(Double(count)))
      }
      let charges = ledger.rule.charges
      #expect(charges.count == (pair.areOneCharge ? 1 : 2))
      #expect(charges.contains { $0.id == records[0].key }, "the first recorded names the charge")
    }
  }

  @Test func severalStepsConnectOneCharge() {
    // 1 and 3 share nothing; 2 shares the line item with the one, the month with the other.
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(1), to: day(31), item: "w"))
    ledger.receive(charge("3", from: day(0), to: day(29)))
    #expect(ledger.rule.charges.count == 2)
    ledger.claim(key("1"), by: a)
    ledger.claim(key("3"), by: b)

    ledger.receive(charge("2", from: day(0), to: day(30), item: "w"))
    #expect(ledger.rule.charges.count == 1)
    #expect(ledger.rule.charges.first?.id == key("1"))
    #expect(Set(ledger.rule.charges.first?.aliases ?? []) == [key("2"), key("3")])
    #expect(ledger.owner("3") == a, "the first claim of any of its reports")
    #expect(ledger.holdings(of: b).isEmpty)
  }

  @Test func whatTurnsOutToReportAnotherChargeLosesItsDecisionByAnEntry() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), item: "w"))
    ledger.claim(key("1"), by: a)
    ledger.receive([off(day(0.5))])
    ledger.receive(charge("9", from: day(1), to: day(31)))
    ledger.claim(key("9"), by: b)
    let entries = ledger.receive(charge("9", from: day(1), to: day(31), item: "w"))
    let changes = entries.compactMap { entry in
      if case .ownership(let change) = entry.content { change } else { nil }
    }
    #expect(changes.map(\.charge) == [key("9")])
    #expect(changes.map(\.previousOwner) == [b])
    #expect(changes.map(\.decision.owner) == [nil])
    #expect(changes.map(\.action) == [.corrected])
    #expect(changes.map(\.decision.renewal.previous) == [key("1")])
    #expect(Set(ledger.line.decisions.keys) == [key("1")])
  }

  @Test func aRefundThatIsReversedJoinsWhatItHadParted() {
    var ledger = Ledger()
    ledger.receive(charge("1", .lifetime, from: day(0), asOf: day(0)))
    ledger.claim(key("1", .lifetime), by: a)
    ledger.receive(charge("2", .lifetime, from: day(50), asOf: day(50)))
    ledger.claim(key("2", .lifetime), by: b)
    #expect(ledger.owner("2") == a)
    let refund = RevocationStatus.revoked(at: day(20), reason: nil)
    ledger.receive(charge("1", .lifetime, from: day(0), asOf: day(60), revocation: refund))
    #expect(ledger.owner("2") == b, "bought again, by B")
    ledger.receive(charge("1", .lifetime, from: day(0), asOf: day(70)))
    #expect(ledger.owner("2") == a)
    #expect(ledger.rule.charges.count == 1)
  }

  /// A's lifetime of day 0, its restore of day 5, and a purchase on day 20.
  // swift-format-ignore
  static let threeReports: [(name: String, refund: Double?, onRestore: Bool, charges: Int)] = [
    ("never refunded",                        nil, false, 1),
    ("refunded before the second purchase",   10,  false, 2),
    ("the same, said of the restore",         10,  true,  2),
    ("refunded when it was bought again",     20,  false, 1),
    ("refunded afterwards",                   25,  false, 1),
  ]

  @Test("A restore does not hide the refund of what it restores", arguments: threeReports)
  func threeReportsOfWhatIsBoughtOnce(
    _ name: String, _ refund: Double?, _ onRestore: Bool, _ charges: Int
  ) {
    func report(_ id: TransactionID, _ start: Double, isRefunded: Bool) -> TransactionRecord {
      charge(
        id, .lifetime, from: day(start), asOf: day(isRefunded ? 30 : start),
        revocation: refund.flatMap { isRefunded ? .revoked(at: day($0), reason: nil) : nil }
          ?? .notRevoked)
    }
    let reports = [
      report("1", 0, isRefunded: !onRestore), report("3", 5, isRefunded: onRestore),
      report("2", 20, isRefunded: false),
    ]
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
      var ledger = Ledger()
      for index in order { ledger.receive(reports[index]) }
      ledger.claim(key("1", .lifetime), by: a)
      ledger.claim(key("2", .lifetime), by: b)
      #expect(ledger.rule.charges.count == charges)
      #expect(ledger.owner("3") == a)
      #expect(ledger.owner("2") == (charges == 2 ? b : a))
    }
  }

  @Test func twoPurchasesOfTheirOwnStayTwoBesideARefundedThird() {
    var ledger = Ledger()
    ledger.receive(
      Self.once("1", .lifetime, 0, revokedAt: day(9), item: "w"),
      Self.once("2", .lifetime, 5, item: "x"))
    ledger.receive(Self.once("3", .lifetime, 20))
    let (first, second) = (key("1", .lifetime), [key("2", .lifetime), key("3", .lifetime)])
    #expect(ledger.rule.charges.map(\.transactions) == [[first], second])
  }

  @Test func restoresOfBefore2015CarryTheRestoresDate() {
    // Two months, restored on day 500: the original dates are the charges'.
    var first = charge("1", from: day(500), to: day(30))
    first.originalPurchaseDate = day(0)
    var second = charge("2", from: day(500), to: day(60))
    second.originalPurchaseDate = day(30)
    var ledger = Ledger()
    ledger.receive(first, second)
    #expect(ledger.rule.charges.map(\.date) == [day(0), day(30)])
    #expect(ledger.rule.charges.map(\.end) == [day(30), day(60)])
  }

  @Test func aRestoreOfBefore2015IsKnownByItsExpiry() {
    var restored = charge("9", from: day(500), to: day(30))
    restored.originalPurchaseDate = day(0)
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), item: "w"))
    ledger.receive(restored)
    #expect(ledger.rule.charges.count == 1)
    #expect(ledger.rule.charges.first?.date == day(0))
  }

  @Test func withoutAnOriginalDateTheRestoresDateRemains() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(500), to: day(30)))
    #expect(ledger.charge("1")?.date == day(500))
  }

  @Test func aPurchaseAtItsExpiryIsNoRestore() {
    var record = charge("1", from: day(30), to: day(30))
    record.originalPurchaseDate = day(0)
    #expect(record.chargedAt == day(30))
    record.expiresDate = day(30, minus(ms))
    #expect(record.chargedAt == day(0))
  }

  @Test func knownKindsComeBeforeUnknownOnes() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), kind: .renewal))
    ledger.receive(charge("1", from: day(0), to: day(30), asOf: day(9), kind: .unknown))
    #expect(ledger.charge("1")?.kind == .renewal)
  }

  @Test func anExtendedPeriodEndsLater() {
    var ledger = Ledger()
    ledger.receive(charge("1", from: day(0), to: day(30), asOf: day(5)))
    ledger.receive(charge("1", from: day(0), to: day(44), asOf: day(9)))
    ledger.receive(charge("1", from: day(0), to: day(30), asOf: day(7)))
    #expect(ledger.charge("1")?.end == day(44))
  }
}
