import Subscriptions
import Testing

/// Auto-renew was off and Apple charged all the same: it had been switched on again.
///
/// A owns P, a month from day 0 to day 30. C begins on day 30, and B claims it. It is A's unless a
/// token or B's order shows that it was B who switched.
struct SwitchedOnAgainTests {
  struct Case: Sendable, CustomTestStringConvertible {
    var name: String
    var kind: ChargeKind
    var received: [RenewalStatus]
    var ordered: OpenedOrder?
    var token: AccountKey?
    /// When B's submission of C arrived.
    var submitted: Timestamp
    var owner: AccountKey

    init(
      _ name: String, _ kind: ChargeKind, _ received: [RenewalStatus], ordered: Timestamp? = nil,
      product: ProductID = .monthly, by account: AccountKey = b, token: AccountKey? = nil,
      submitted: Timestamp = day(30.5), _ owner: AccountKey
    ) {
      self.name = name
      self.kind = kind
      self.received = received
      self.ordered = ordered.map {
        OpenedOrder(account: account, productID: product, openedAt: $0)
      }
      self.token = token
      self.submitted = submitted
      self.owner = owner
    }

    var testDescription: String { name }
  }

  static let five = Duration.minutes(5)

  // swift-format-ignore
  static let silently: [Case] = [
    Case("no order, no token",              .renewal, [off(day(10))],                                        a),
    Case("B's order",                       .renewal, [off(day(10))], ordered: day(12),                      b),
    Case("B's order of another product",    .renewal, [off(day(10))], ordered: day(12), product: .quarterly, a),
    Case("C's order",                       .renewal, [off(day(10))], ordered: day(12), by: c,               a),
    Case("5 min before the off",            .renewal, [off(day(10))], ordered: day(10, minus(five)),         b),
    Case("5 min and 1 ms before the off",   .renewal, [off(day(10))], ordered: day(10, minus(five + ms)),    a),
    Case("5 min after the charge",          .renewal, [off(day(10))], ordered: day(30, five),                b),
    Case("5 min and 1 ms after the charge", .renewal, [off(day(10))], ordered: day(30, five + ms),           a),
    Case("ordered when it was submitted",   .renewal, [off(day(10))], ordered: day(30, second), submitted: day(30, second), b),
    Case("ordered 1 ms after it was submitted", .renewal, [off(day(10))], ordered: day(30, second + ms), submitted: day(30, second), a),
    Case("said off again after the order",  .renewal, [off(day(10)), off(day(20))], ordered: day(12),        b),
    Case("B's token on the charge",         .renewal, [off(day(10))], token: b,                              b),
    Case("A's token on the charge",         .renewal, [off(day(10))], token: a,                              a),
    Case("B's token in the renewal info",   .renewal, [off(day(10)), off(day(12), token: issuedToken(b))],   b),
    Case("A's token in the renewal info",   .renewal, [off(day(10)), off(day(12), token: issuedToken(a))],   a),
    Case("a token that was never issued",   .renewal, [off(day(10), token: strangeToken)],                   a),
    Case("B's token, replaced by A's",      .renewal, [off(day(10), token: issuedToken(b)), off(day(12), token: issuedToken(a))], a),
    Case("B's token said at the charge",    .renewal, [off(day(10)), off(day(30), token: issuedToken(b))],   a),
    Case("B's token before the off",        .renewal, [on(day(5), token: issuedToken(b)), off(day(10))],     a),
    Case("an off that P outlived",          .renewal, [off(day(-5))], ordered: day(-3),                      a),
    Case("off in the last day",             .unknown, [off(day(29.5))],                                      a),
    Case("off in the last day, B's order",  .unknown, [off(day(29.5))], ordered: day(29.7),                  b),
    Case("off in the last day, B's token",  .unknown, [off(day(29.5))], token: b,                            b),
  ]

  // swift-format-ignore
  static let received: [Case] = [
    Case("no order, no token",              .unknown, [off(day(10)), on(day(20))],                           a),
    Case("B's order",                       .unknown, [off(day(10)), on(day(20))], ordered: day(15),         b),
    Case("5 min before the off",            .unknown, [off(day(10)), on(day(20))], ordered: day(10, minus(five)), b),
    Case("5 min and 1 ms before the off",   .unknown, [off(day(10)), on(day(20))], ordered: day(10, minus(five + ms)), a),
    Case("5 min after the on",              .unknown, [off(day(10)), on(day(20))], ordered: day(20, five),   b),
    Case("5 min and 1 ms after the on",     .unknown, [off(day(10)), on(day(20))], ordered: day(20, five + ms), a),
    Case("on, said again after the order",  .unknown, [off(day(10)), on(day(12)), on(day(20))], ordered: day(15), a),
    Case("B's token on the charge",         .unknown, [off(day(10)), on(day(20))], token: b,                 b),
    Case("B's token in the renewal info",   .unknown, [off(day(10)), on(day(20), token: issuedToken(b))],    b),
    Case("never off, B's order",            .unknown, [on(day(10))], ordered: day(15),                       a),
    Case("never off, B's token",            .unknown, [on(day(10))], token: b,                               a),
    Case("no status, B's order",            .unknown, [], ordered: day(15),                                  a),
  ]

  @Test("It was not reported", arguments: silently) func silent(_ test: Case) { check(test) }
  @Test("Apple said so", arguments: received) func reported(_ test: Case) { check(test) }

  private func check(_ test: Case) {
    var ledger = Ledger(orders: Set([test.ordered].compactMap(\.self)))
    ledger.receive(charge("P", from: day(0), to: day(30)))
    ledger.claim(key("P"), by: a)
    ledger.receive(test.received)
    ledger.receive(
      charge(
        "C", from: day(30), to: day(60), kind: test.kind, token: test.token.map(issuedToken)))
    ledger.claim(key("C"), by: b, receivedAt: test.submitted)
    #expect(ledger.owner("C") == test.owner)
    switch (test.owner == a, test.ordered) {
    case (true, _): #expect(ledger.decision("C")?.rule == .activelyAutoRenewing)
    case (false, nil):
      #expect(ledger.decision("C")?.renewal.reason == .tokenOfAnotherAccount)
    case (false, _):
      #expect(ledger.decision("C")?.renewal.reason == .orderedByAnotherAccount)
    }
  }

  @Test func anOrderOpenedAfterTheClaimOverturnsNothing() {
    // The claim settled it for A; B's order comes two minutes later, and so does late evidence.
    var ledger = Ledger()
    ledger.receive(charge("P", from: day(0), to: day(30)))
    ledger.claim(key("P"), by: a)
    ledger.receive([off(day(29.5))])
    ledger.receive(charge("C", from: day(30), to: day(60)))
    ledger.claim(key("C"), by: b, receivedAt: day(30, .minutes(1)))
    #expect(ledger.owner("C") == a)
    ledger.open(OpenedOrder(account: b, productID: .monthly, openedAt: day(30, .minutes(3))))
    ledger.receive([on(day(20))])
    #expect(ledger.owner("C") == a)
    #expect(ledger.lastAction("C") != .corrected)
  }

  @Test func untilTheFirstClaimItIsAsProvisionally() {
    var ledger = Ledger(orders: [
      OpenedOrder(account: b, productID: .monthly, openedAt: day(12)),
      OpenedOrder(account: c, productID: .monthly, openedAt: day(13)),
    ])
    ledger.receive(charge("P", from: day(0), to: day(30)))
    ledger.claim(key("P"), by: a)
    ledger.receive([off(day(10))])
    ledger.receive(charge("C", from: day(30), to: day(60), kind: .renewal))
    ledger.receive(charge("D", from: day(60), to: day(90), kind: .renewal))
    #expect(ledger.owner("C") == a)
    #expect(ledger.decision("C")?.isProvisional == true)
    #expect(ledger.decision("D")?.isProvisional == true)

    ledger.claim(key("C"), by: b)
    #expect(ledger.owner("C") == b)
    #expect(ledger.owner("D") == b, "the renewal of what B turned out to own")
    #expect(ledger.decision("D")?.isProvisional == false)
    ledger.claim(key("C"), by: c)
    #expect(ledger.owner("C") == b)
  }

  @Test func theFirstClaimWithoutAnOrderSettlesItForA() {
    var ledger = Ledger(orders: [
      OpenedOrder(account: c, productID: .monthly, openedAt: day(13))
    ])
    ledger.receive(charge("P", from: day(0), to: day(30)))
    ledger.claim(key("P"), by: a)
    ledger.receive([off(day(10))])
    ledger.receive(charge("C", from: day(30), to: day(60), kind: .renewal))
    ledger.claim(key("C"), by: b)
    #expect(ledger.owner("C") == a)
    #expect(ledger.decision("C")?.isProvisional == false)
    ledger.claim(key("C"), by: c)
    #expect(ledger.owner("C") == a)
  }
}
