import Foundation
import Subscriptions
import Testing

/// The charges that fulfil orders.
struct PurchaseOrderTests {
  static func order(
    _ number: UInt8 = 1, by account: AccountKey = a, of product: ProductID = .monthly,
    at moment: Timestamp = day(0), is status: PurchaseOrder.Status = .open
  ) -> PurchaseOrder {
    PurchaseOrder(
      id: UUID(uuid: (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number)), account: account,
      productID: product, createdAt: moment, status: status)
  }

  /// A charge of A's of day 1, by row 2 unless another ground is given.
  static func payment(
    _ kind: ChargeKind = .unknown, of account: AccountKey? = a,
    reason: RenewalEvidence.Reason = .noEarlierCharge, fulfils: UUID? = nil,
    revocation: RevocationStatus = .notRevoked, isUpgraded: Bool = false
  ) -> PurchaseOrder.Payment? {
    var ledger = Ledger()
    ledger.receive(
      charge(
        "1", from: day(1), to: day(31), kind: kind, isUpgraded: isUpgraded,
        revocation: revocation))
    let rule: Decision.Rule = reason.isRenewing ? .activelyAutoRenewing : .submitter
    return ledger.charge("1").map {
      PurchaseOrder.Payment(
        charge: $0,
        decision: Decision(
          owner: account, rule: account == nil ? .unclaimed : rule,
          renewal: RenewalEvidence(account: reason.isRenewing ? account : nil, reason: reason)),
        fulfils: fulfils)
    }
  }

  static let refund = RevocationStatus.revoked(at: day(2), reason: nil)

  // MARK: Named

  struct Named: Sendable, CustomTestStringConvertible {
    var name: String
    var order: PurchaseOrder
    var payments: [PurchaseOrder.Payment?]
    var yielding: Set<UUID>
    var outcome: PurchaseOrder.NamedOrder

    init(
      _ name: String, _ order: PurchaseOrder, _ payments: [PurchaseOrder.Payment?],
      yielding: Set<UUID> = [], _ outcome: PurchaseOrder.NamedOrder
    ) {
      self.name = name
      self.order = order
      self.payments = payments
      self.yielding = yielding
      self.outcome = outcome
    }

    var testDescription: String { name }
  }

  // swift-format-ignore
  static let named: [Named] = [
    Named("paid",                         order(),                 [payment()],                              .fulfilled(by: key("1"))),
    Named("made long after the purchase", order(at: day(9)),       [payment()],                              .fulfilled(by: key("1"))),
    Named("expired, then paid",           order(is: .expired),         [payment()],                              .fulfilled(by: key("1"))),
    Named("another account's",            order(by: b),            [payment()],                              .accountMismatch),
    Named("another product's",            order(of: .gems),         [payment()],                              .productMismatch),
    Named("fulfilled before",             order(is: .fulfilled),   [payment()],                              .alreadyFulfilled),
    Named("refunded",                     order(is: .refunded),    [payment()],                              .alreadyFulfilled),
    Named("fulfilled by this charge",     order(is: .fulfilled),   [payment(fulfils: order().id)],           .fulfilled(by: key("1"))),
    Named("this charge was refunded",     order(is: .refunded),    [payment(fulfils: order().id, revocation: refund)], .fulfilled(by: key("1"))),
    Named("nothing submitted",            order(),                 [],                                       .productMismatch),
    Named("the charge is another's",      order(),                 [payment(of: b)],                         .accountMismatch),
    Named("the charge is unclaimed",      order(),                 [payment(of: nil)],                       .accountMismatch),
    Named("the charge paid for another",  order(),                 [payment(fulfils: order(2).id)],          .alreadyFulfilled),
    Named("another that was not named",   order(),                 [payment(fulfils: order(2).id)], yielding: [order(2).id], .fulfilled(by: key("1"))),
    Named("expired, another not named",   order(is: .expired),     [payment(fulfils: order(2).id)], yielding: [order(2).id], .fulfilled(by: key("1"))),
    Named("the charge is refunded",       order(),                 [payment(revocation: refund)],            .productMismatch),
    Named("the charge is upgraded from",  order(),                 [payment(isUpgraded: true)],              .productMismatch),
    Named("Apple calls it a renewal",     order(),                 [payment(.renewal, reason: .renewedByApple)], .productMismatch),
    Named("bought at the period's end",   order(),                 [payment(reason: .renewedAtPeriodEnd)],   .fulfilled(by: key("1"))),
    Named("a renewal, on by its order",   order(),                 [payment(.renewal, reason: .orderedByAnotherAccount)], .fulfilled(by: key("1"))),
    Named("a renewal, on by its token",   order(),                 [payment(.renewal, reason: .tokenOfAnotherAccount)], .fulfilled(by: key("1"))),
    Named("the second of two pays",       order(),                 [payment(of: b), payment()],              .fulfilled(by: key("1"))),
  ]

  @Test("Named", arguments: named)
  func theNamedOrder(_ test: Named) {
    #expect(
      test.order.match(
        submittedBy: a, among: test.payments.compactMap(\.self), yielding: test.yielding)
        == test.outcome)
  }

  // MARK: Not named

  struct Unnamed: Sendable, CustomTestStringConvertible {
    var name: String
    var payment: PurchaseOrder.Payment?
    var orders: [PurchaseOrder]
    var fulfilled: UUID?

    init(
      _ name: String, _ payment: PurchaseOrder.Payment?, _ orders: [PurchaseOrder],
      _ fulfilled: PurchaseOrder?
    ) {
      self.name = name
      self.payment = payment
      self.orders = orders
      self.fulfilled = fulfilled?.id
    }

    var testDescription: String { name }
  }

  static let five = Duration.minutes(5)

  // swift-format-ignore
  static let unnamed: [Unnamed] = [
    Unnamed("the only one",                 payment(),                                           [order()],                               order()),
    Unnamed("the latest",                   payment(),                                           [order(1, at: day(0.5)), order(2)],      order(1)),
    Unnamed("of one age, the larger id",    payment(),                                           [order(2), order(1)],                    order(2)),
    Unnamed("the open one before expired",  payment(),                                           [order(1, at: day(0.5), is: .expired), order(2)], order(2)),
    Unnamed("the latest expired one",       payment(),                                           [order(1, is: .expired), order(2, at: day(0.5), is: .expired)], order(2)),
    Unnamed("expired, 60 days before",      payment(),                                           [order(at: day(-59), is: .expired)],     order()),
    Unnamed("expired, 60 days and 1 ms",    payment(),                                           [order(at: day(-59, minus(ms)), is: .expired)], nil),
    Unnamed("open for 90 days",             payment(),                                           [order(at: day(-89))],                   order()),
    Unnamed("5 min after the purchase",     payment(),                                           [order(at: day(1, five))],               order()),
    Unnamed("5 min and 1 ms after",         payment(),                                           [order(at: day(1, five + ms))],          nil),
    Unnamed("expired, then paid",           payment(),                                           [order(is: .expired)],                       order()),
    Unnamed("fulfilled before",             payment(),                                           [order(is: .fulfilled)],                     nil),
    Unnamed("another account's",            payment(),                                           [order(by: b)],                          nil),
    Unnamed("another product's",            payment(),                                           [order(of: .gems)],                       nil),
    Unnamed("the charge is unclaimed",      payment(of: nil),                                    [order()],                               nil),
    Unnamed("it paid for one already",      payment(fulfils: order(2).id),                       [order()],                               nil),
    Unnamed("refunded",                     payment(revocation: refund),                         [order()],                               nil),
    Unnamed("Apple calls it a renewal",     payment(.renewal, reason: .renewedByApple),          [order()],                               nil),
    Unnamed("renewed at the period's end",  payment(reason: .renewedAtPeriodEnd),                [order()],                               nil),
    Unnamed("recovered",                    payment(reason: .recoveredFromBillingProblem),       [order()],                               nil),
    Unnamed("bought by hand at the end",    payment(.purchase, reason: .renewedAtPeriodEnd),     [order()],                               order()),
    Unnamed("changed while renewing",       payment(reason: .changedWhileRenewing),              [order()],                               order()),
    Unnamed("renewed, on by its order",     payment(.renewal, reason: .orderedByAnotherAccount), [order()],                               order()),
    Unnamed("renewed, on by its token",     payment(.renewal, reason: .tokenOfAnotherAccount),   [order()],                               order()),
  ]

  @Test("Not named", arguments: unnamed)
  func theLatestOrder(_ test: Unnamed) throws {
    let payment = try #require(test.payment)
    #expect(PurchaseOrder.latest(among: test.orders, for: payment)?.id == test.fulfilled)
  }
}
