import AppStoreSimulator
import Subscriptions
import Testing

/// Lives of subscriptions: what happens when, and Apple's later answers.
///
/// Everything is charged 20 hours before a period ends; the app has a grace period of 16 days.
struct LifeOfASubscriptionTests {
  enum Action: Sendable {
    case nothing, off, on, failCard, repairCard, refundLatest, reverseRefund, acceptPrice
    case buy(ProductID)
    case withdraw(ProductID)
    case raisePrice(ProductID)
  }

  /// The state of the line at a moment, just after an action.
  struct Step: Sendable {
    let at: String
    let action: Action
    /// How many charges `latest_receipt_info` lists.
    let charges: Int
    /// The end of the newest, to the minute.
    let ends: String
    let product: String
    /// The rest is `pending_renewal_info`; nil in `renews`: there is no entry.
    let renews: String?
    let next: String?
    var intent: String?
    var retry: String?
    var grace: String?
  }

  struct Story: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let steps: [Step]

    init(_ name: String, _ steps: [Step]) {
      testDescription = name
      self.steps = steps
    }
  }

  private static func step(
    _ at: String, _ action: Action, _ charges: Int, _ ends: String, _ product: String,
    renews: String? = "1", next: String? = nil, intent: String? = nil, retry: String? = nil,
    grace: String? = nil
  ) -> Step {
    Step(
      at: at, action: action, charges: charges, ends: ends, product: product, renews: renews,
      next: renews == nil ? nil : next ?? product, intent: intent, retry: retry, grace: grace)
  }

  // swift-format-ignore
  static let stories = [
    Story("renews 20 hours before the end", [
      step("2026-01-01T00:00:00Z", .buy("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-31T03:59:59Z", .nothing,        1, "2026-02-01T00:00", "monthly"),
      step("2026-01-31T04:00:00Z", .nothing,        2, "2026-03-01T00:00", "monthly"),
      step("2026-06-01T00:00:00Z", .nothing,        6, "2026-07-01T00:00", "monthly"),
    ]),
    Story("off ends it, on again before the end keeps it", [
      step("2026-01-01T00:00:00Z", .buy("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-10T00:00:00Z", .off,            1, "2026-02-01T00:00", "monthly", renews: "0"),
      step("2026-01-20T00:00:00Z", .on,             1, "2026-02-01T00:00", "monthly"),
      step("2026-02-10T00:00:00Z", .off,            2, "2026-03-01T00:00", "monthly", renews: "0"),
      step("2026-02-28T23:59:59Z", .nothing,        2, "2026-03-01T00:00", "monthly", renews: "0"),
      step("2026-03-01T00:00:00Z", .nothing,        2, "2026-03-01T00:00", "monthly",
           renews: "0", intent: "1", retry: "0"),
    ]),
    Story("on again after the charge's usual time: charged at the end", [
      step("2026-01-01T00:00:00Z", .buy("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-10T00:00:00Z", .off,            1, "2026-02-01T00:00", "monthly", renews: "0"),
      step("2026-01-31T12:00:00Z", .on,             1, "2026-02-01T00:00", "monthly"),
      step("2026-02-01T00:00:00Z", .nothing,        2, "2026-03-01T00:00", "monthly"),
    ]),
    Story("recovers inside grace: the billing date stays", [
      step("2026-01-01T00:00:00Z", .buy("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-15T00:00:00Z", .failCard,       1, "2026-02-01T00:00", "monthly"),
      step("2026-01-31T23:59:59Z", .nothing,        1, "2026-02-01T00:00", "monthly"),
      step("2026-02-01T00:00:00Z", .nothing,        1, "2026-02-01T00:00", "monthly",
           intent: "2", retry: "1", grace: "2026-02-17T00:00"),
      step("2026-02-05T00:00:00Z", .repairCard,     2, "2026-03-01T00:00", "monthly"),
    ]),
    Story("recovers after grace: a new period begins", [
      step("2026-01-01T00:00:00Z", .buy("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-15T00:00:00Z", .failCard,       1, "2026-02-01T00:00", "monthly"),
      step("2026-02-17T00:00:00Z", .nothing,        1, "2026-02-01T00:00", "monthly",
           intent: "2", retry: "1"),
      step("2026-02-21T09:00:00Z", .repairCard,     2, "2026-03-21T09:00", "monthly"),
      step("2026-03-20T13:00:00Z", .nothing,        3, "2026-04-21T09:00", "monthly"),
    ]),
    Story("is given up after 60 days", [
      step("2026-01-01T00:00:00Z", .buy("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-15T00:00:00Z", .failCard,       1, "2026-02-01T00:00", "monthly"),
      step("2026-04-01T23:59:59Z", .nothing,        1, "2026-02-01T00:00", "monthly",
           intent: "2", retry: "1"),
      step("2026-04-02T00:00:00Z", .nothing,        1, "2026-02-01T00:00", "monthly",
           renews: "0", intent: "2", retry: "0"),
      step("2026-05-01T00:00:00Z", .repairCard,     1, "2026-02-01T00:00", "monthly",
           renews: "0", intent: "2", retry: "0"),
      step("2026-05-02T00:00:00Z", .buy("monthly"), 2, "2026-06-02T00:00", "monthly"),
    ]),
    Story("off during grace: the entry leaves pending_renewal_info", [
      step("2026-01-01T00:00:00Z", .buy("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-15T00:00:00Z", .failCard,       1, "2026-02-01T00:00", "monthly"),
      step("2026-02-05T00:00:00Z", .off,            1, "2026-02-01T00:00", "monthly", renews: nil),
    ]),
    Story("off during retry without grace", [
      step("2026-01-01T00:00:00Z", .buy("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-15T00:00:00Z", .failCard,       1, "2026-02-01T00:00", "monthly"),
      step("2026-02-20T00:00:00Z", .off,            1, "2026-02-01T00:00", "monthly",
           renews: "0", intent: "1", retry: "0"),
    ]),
    Story("weekly grace is six days", [
      step("2026-01-01T00:00:00Z", .buy("news.weekly"), 1, "2026-01-08T00:00", "news.weekly"),
      step("2026-01-02T00:00:00Z", .failCard,           1, "2026-01-08T00:00", "news.weekly"),
      step("2026-01-08T00:00:00Z", .nothing,            1, "2026-01-08T00:00", "news.weekly",
           intent: "2", retry: "1", grace: "2026-01-14T00:00"),
    ]),
    Story("upgrade at once, downgrade at the renewal", [
      step("2026-01-01T00:00:00Z", .buy("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-10T00:00:00Z", .buy("premium"), 2, "2026-02-10T00:00", "premium"),
      step("2026-01-20T00:00:00Z", .buy("monthly"), 2, "2026-02-10T00:00", "premium",
           next: "monthly"),
      step("2026-01-21T00:00:00Z", .buy("premium"), 2, "2026-02-10T00:00", "premium"),
      step("2026-01-22T00:00:00Z", .buy("monthly"), 2, "2026-02-10T00:00", "premium",
           next: "monthly"),
      step("2026-02-10T00:00:00Z", .nothing,        3, "2026-03-10T00:00", "monthly"),
    ]),
    Story("crossgrade of equal duration at once, of another at the renewal", [
      step("2026-01-01T00:00:00Z", .buy("monthly"),         1, "2026-02-01T00:00", "monthly"),
      step("2026-01-05T00:00:00Z", .buy("monthly.student"), 2, "2026-02-05T00:00",
           "monthly.student"),
      step("2026-01-06T00:00:00Z", .buy("quarterly"),       2, "2026-02-05T00:00",
           "monthly.student", next: "quarterly"),
      step("2026-02-05T00:00:00Z", .nothing,                3, "2026-05-05T00:00", "quarterly"),
    ]),
    Story("a change for later switches renewal on again", [
      step("2026-01-01T00:00:00Z", .buy("monthly"),   1, "2026-02-01T00:00", "monthly"),
      step("2026-01-05T00:00:00Z", .off,              1, "2026-02-01T00:00", "monthly",
           renews: "0"),
      step("2026-01-06T00:00:00Z", .buy("quarterly"), 1, "2026-02-01T00:00", "monthly",
           next: "quarterly"),
      step("2026-02-01T00:00:00Z", .nothing,          2, "2026-05-01T00:00", "quarterly"),
    ]),
    Story("refund of the latest ends it, its reversal brings the time back", [
      step("2026-01-01T00:00:00Z", .buy("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-10T00:00:00Z", .refundLatest,   1, "2026-02-01T00:00", "monthly",
           renews: "0", intent: "1", retry: "0"),
      step("2026-01-12T00:00:00Z", .reverseRefund,  1, "2026-02-01T00:00", "monthly", renews: "0"),
      step("2026-02-01T00:00:00Z", .nothing,        1, "2026-02-01T00:00", "monthly",
           renews: "0", intent: "1", retry: "0"),
    ]),
    Story("refund of an early renewal leaves the period before it", [
      step("2026-01-01T00:00:00Z", .buy("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-31T06:00:00Z", .refundLatest,   2, "2026-03-01T00:00", "monthly", renews: "0"),
      step("2026-02-01T00:00:00Z", .nothing,        2, "2026-03-01T00:00", "monthly",
           renews: "0", intent: "1", retry: "0"),
    ]),
    Story("the product goes from sale", [
      step("2026-01-01T00:00:00Z", .buy("monthly"),      1, "2026-02-01T00:00", "monthly"),
      step("2026-01-10T00:00:00Z", .withdraw("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-02-01T00:00:00Z", .nothing,             1, "2026-02-01T00:00", "monthly",
           intent: "4", retry: "0"),
    ]),
    Story("no consent to a higher price", [
      step("2026-01-01T00:00:00Z", .buy("monthly"),        1, "2026-02-01T00:00", "monthly"),
      step("2026-01-10T00:00:00Z", .raisePrice("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-02-01T00:00:00Z", .nothing,               1, "2026-02-01T00:00", "monthly",
           intent: "3", retry: "0"),
    ]),
    Story("consent to a higher price", [
      step("2026-01-01T00:00:00Z", .buy("monthly"),        1, "2026-02-01T00:00", "monthly"),
      step("2026-01-10T00:00:00Z", .raisePrice("monthly"), 1, "2026-02-01T00:00", "monthly"),
      step("2026-01-11T00:00:00Z", .acceptPrice,           1, "2026-02-01T00:00", "monthly"),
      step("2026-02-01T00:00:00Z", .nothing,               2, "2026-03-01T00:00", "monthly"),
    ]),
    Story("a trial becomes a year", [
      step("2026-01-01T00:00:00Z", .buy("yearly"), 1, "2026-01-08T00:00", "yearly"),
      step("2026-01-08T00:00:00Z", .nothing,       2, "2027-01-08T00:00", "yearly"),
      step("2027-01-08T00:00:00Z", .nothing,       3, "2028-01-08T00:00", "yearly"),
    ]),
    Story("the 31st comes back after February", [
      step("2026-01-31T10:00:00Z", .buy("monthly"), 1, "2026-02-28T10:00", "monthly"),
      step("2026-02-28T10:00:00Z", .nothing,        2, "2026-03-31T10:00", "monthly"),
      step("2026-03-31T10:00:00Z", .nothing,        3, "2026-04-30T10:00", "monthly"),
    ]),
  ]

  @Test(arguments: stories) func life(_ story: Story) throws {
    let stage = try Stage()
    for step in story.steps {
      try stage.advance(to: step.at)
      try perform(step.action, on: stage)
      let answer = try stage.answer()
      let comment = Comment(rawValue: step.at)
      let newest = try #require(answer.latest.last, comment)
      #expect(answer.latest.count == step.charges, comment)
      #expect(newest.minute("expires") == step.ends, comment)
      #expect(newest.text("product_id") == step.product, comment)
      let pending = answer.pending.first
      #expect(pending?.text("auto_renew_status") == step.renews, comment)
      #expect(pending?.text("auto_renew_product_id") == step.next, comment)
      #expect(pending?.text("expiration_intent") == step.intent, comment)
      #expect(pending?.text("is_in_billing_retry_period") == step.retry, comment)
      #expect(pending?.minute("grace_period_expires") == step.grace, comment)
      let lines = Set(answer.latest.map { $0.text("original_transaction_id") })
      #expect(lines.count == 1, "One Apple ID and group, one line, whatever happens.")
    }
  }

  private func perform(_ action: Action, on stage: Stage) throws {
    let simulation = stage.simulation
    let charges = simulation.truth()
    switch action {
    case .nothing: break
    case .buy(let product): try simulation.buy(product, on: "phone")
    case .off:
      try simulation.setAutoRenew(false, try #require(charges.last).line.originalTransactionID)
    case .on:
      try simulation.setAutoRenew(true, try #require(charges.last).line.originalTransactionID)
    case .failCard: try simulation.failCard(of: "ada")
    case .repairCard: try simulation.repairCard(of: "ada")
    case .refundLatest: try simulation.refund(try #require(charges.last).transactionID, reason: "1")
    case .reverseRefund: try simulation.reverseRefund(try #require(charges.last).transactionID)
    case .withdraw(let product): try simulation.withdraw(product)
    case .raisePrice(let product):
      try simulation.raisePrice(of: product, to: 12_990, needsConsent: true)
    case .acceptPrice:
      try simulation.acceptPrice(try #require(charges.last).line.originalTransactionID)
    }
  }

  @Test func sandboxRatesEndAfterTwelveRenewals() throws {
    let stage = try Stage(environment: .sandbox, sandboxRates: true)
    try stage.simulation.buy("monthly", on: "phone")
    stage.simulation.advance(by: .hours(3))
    let answer = try stage.answer()
    #expect(answer.latest.count == 13)
    #expect(answer.pending.first?.text("auto_renew_status") == "0")
    for (period, next) in zip(answer.latest, answer.latest.dropFirst()) {
      #expect(period.date("expires") - period.date("purchase") == .minutes(5))
      let gap = next.date("purchase") - period.date("expires")
      #expect(.zero <= gap && gap <= .seconds(30))
    }
  }

  @Test func impossibleThingsAreRefused() throws {
    let stage = try Stage()
    let simulation = stage.simulation
    let line = try simulation.buy("monthly", on: "phone").originalTransactionID
    let purchase = try #require(simulation.truth().first).transactionID
    func code(_ work: () throws -> Void) -> SimulationError.Code? {
      do {
        try work()
        return nil
      } catch {
        return (error as? SimulationError)?.code
      }
    }
    #expect(code { try simulation.buy("monthly", on: "phone") } == .notPossible)
    #expect(code { try simulation.buy("gold", on: "phone") } == .unknownProduct)
    #expect(code { try simulation.buy("monthly", on: "tablet") } == .unknownDevice)
    #expect(code { try simulation.setAutoRenew(true, line) } == .notPossible)
    #expect(code { try simulation.setAutoRenew(false, "1") } == .unknownLine)
    #expect(code { try simulation.reverseRefund(purchase) } == .notPossible)
    #expect(code { try simulation.refund("1") } == .unknownTransaction)
    #expect(code { try simulation.finish(purchase) } == .notPossible)
    #expect(code { try simulation.addAppleID("ada") } == .alreadyExists)
    #expect(code { try simulation.add(.sample) } == .alreadyExists)
    try simulation.failCard(of: "ada")
    #expect(code { try simulation.buy("coins.100", on: "phone") } == .paymentDeclined)
    #expect(code { try simulation.buy("coins.100", on: "phone", quantity: 11) } == .paymentDeclined)
    try simulation.repairCard(of: "ada")
    #expect(code { try simulation.buy("coins.100", on: "phone", quantity: 11) } == .notPossible)
    #expect(simulation.truth().count == 1)
  }
}
