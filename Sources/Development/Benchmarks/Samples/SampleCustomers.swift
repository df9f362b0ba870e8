import AppStoreSimulator
import Foundation
import LedgerStorage
import Postgres
import Subscriptions

/// Three years of an app as the histories of some hundred customers, with everything that reports
/// count; the same seed gives the same histories.
struct SampleCustomers {
  /// The time since the app's launch.
  static let span: Duration = .days(3 * 365)
  /// The number of customers per one of each special kind.
  private static let kinds = 32
  /// Pending submissions are rarer by this factor.
  private static let rarity = 10
  /// More charges than a page shows.
  private static let mostCharges = 60

  private struct Plan {
    var id: ProductID
    var group: String
    var level: Int
    var period: CalendarPeriod
    /// In thousandths of a dollar.
    var price: Int64
    /// The percentage of customers who begin with it, and the probability of a renewal.
    var share: Int
    var loyalty: Double
  }

  private static let plans = [
    Plan(
      id: "basic.weekly", group: "basic", level: 3, period: CalendarPeriod(days: 7), price: 1990,
      share: 8, loyalty: 0.86),
    Plan(
      id: "basic.monthly", group: "basic", level: 2, period: CalendarPeriod(months: 1),
      price: 4990, share: 30, loyalty: 0.89),
    Plan(
      id: "basic.yearly", group: "basic", level: 1, period: CalendarPeriod(months: 12),
      price: 39_990, share: 20, loyalty: 0.66),
    Plan(
      id: "pro.monthly", group: "pro", level: 3, period: CalendarPeriod(months: 1), price: 9990,
      share: 20, loyalty: 0.89),
    Plan(
      id: "pro.quarterly", group: "pro", level: 2, period: CalendarPeriod(months: 3),
      price: 24_990, share: 10, loyalty: 0.8),
    Plan(
      id: "pro.yearly", group: "pro", level: 1, period: CalendarPeriod(months: 12),
      price: 79_990, share: 12, loyalty: 0.68),
  ]
  private static let coins: ProductID = "coins.100"
  private static let lifetime: ProductID = "pro.lifetime"
  private static let season: ProductID = "season.pass"
  /// The value of a dollar, in tenths of each currency.
  private static let currencies: [(code: String, tenths: Int64)] = [
    ("USD", 10), ("USD", 10), ("EUR", 9), ("GBP", 8), ("JPY", 1500),
  ]

  private let database: ConnectionPool
  private let ledger: Ledger
  private let present: Timestamp
  private var random: SplitMix64

  init(in database: ConnectionPool, until present: Timestamp, seed: UInt64 = 1) {
    self.database = database
    self.present = present
    ledger = Ledger(database: database)
    random = SplitMix64(seed: seed)
  }

  /// Records the histories of the first customers, and returns them in order.
  mutating func record(_ count: Int) async throws -> [SampleLife] {
    try await describeProducts()
    let terms = AccessTerms(catalogue: try await ledger.products.catalogue())
    var lives: [SampleLife] = []
    for index in 0..<count { lives.append(try await live(index, by: terms)) }
    return lives
  }

  private func describeProducts() async throws {
    let beginning = present - Self.span - .days(60)
    for plan in Self.plans {
      _ = try await ledger.products.describe(
        Product(
          id: plan.id, validFrom: beginning, type: .autoRenewable,
          entitlements: plan.group == "pro" ? ["premium", "pro"] : ["premium"],
          subscriptionGroup: plan.group, level: plan.level, period: plan.period,
          priceMilliunits: plan.price, currency: "USD"))
    }
    for (id, type, price) in [
      (Self.coins, ProductType.consumable, Int64(990)),
      (Self.lifetime, .nonConsumable, 149_990), (Self.season, .nonRenewing, 14_990),
    ] {
      _ = try await ledger.products.describe(
        Product(
          id: id, validFrom: beginning, type: type,
          entitlements: type == .consumable ? [] : ["premium"],
          period: type == .nonRenewing ? CalendarPeriod(months: 3) : nil, priceMilliunits: price,
          currency: "USD"))
    }
  }

  // MARK: History

  private struct Course {
    var line: OriginalTransactionKey
    var plan: Plan
    var currency: (code: String, tenths: Int64)
    /// The last charge as Apple last described it.
    var last: TransactionRecord
    var charges = 0
    /// Whether the customer's special event has happened.
    var isSpent = false

    var end: Timestamp { last.expiresDate ?? last.purchaseDate }
  }

  private enum Kind: Int {
    case unclaimed, late, familyShared, otherAccount, transferred, forged, coins, lifetime, season
    case granted, grantRevoked, neverPaid, inGrace, inRetry, upgraded, downgraded, switched
    case refunded, refundReversed, waiting, missed, trial, intro, ordered
  }

  private mutating func live(_ index: Int, by terms: AccessTerms) async throws -> SampleLife {
    var kind = Kind(rawValue: index % Self.kinds)
    if kind == .waiting, !(index / Self.kinds).isMultiple(of: Self.rarity) { kind = nil }
    // Sales grow over time.
    let part = pow(Double(random.number(in: 0...9999)) / 10_000, 0.8)
    var start = present - Self.span * (1 - 0.98 * part)
    // A month that ended some days ago.
    if kind == .inGrace || kind == .inRetry { start = present - .days(36) }
    var life = SampleLife(
      of: SampleCustomer(index), from: start, in: database, ledger: ledger, terms: terms,
      present: present)
    life.isUnclaimed = kind == .unclaimed
    life.isReportedLate = kind == .late
    if kind == .familyShared { life.ownership = .familyShared }
    try await life.customer.insertAccount(in: database, at: start)
    try await subscribe(&life, kind, from: start)
    if life.isReportedLate { try await life.publishAll(at: present - .hours(1)) }
    try await beSpecial(&life, kind, since: start)
    return life
  }

  private mutating func subscribe(_ life: inout SampleLife, _ kind: Kind?, from start: Timestamp)
    async throws
  {
    var course = try await begin(&life, kind, at: start)
    while course.charges < Self.mostCharges {
      try await beSpecial(&life, &course, kind)
      if course.end > present {
        life.dueAt = course.end
        try await perhapsSwitchOff(&life, &course)
        return
      }
      if kind == .inGrace || kind == .inRetry, course.end > present - .days(14) {
        return try await stayInTrouble(&life, &course, kind == .inGrace)
      }
      if random.chance(course.plan.loyalty) {
        guard try await renew(&life, &course, kind) else { return }
        continue
      }
      try await lapse(&life, &course)
      let back = course.end + .days(random.number(in: 3...120))
      guard back < present - .hours(1), random.chance(0.3) || kind == .otherAccount else { return }
      if kind == .otherAccount, life.accountID == life.customer.accountID {
        try await life.changeAccount(at: back)
      }
      try await buy(&life, &course, course.plan, at: back, kind)
    }
  }

  private mutating func begin(_ life: inout SampleLife, _ kind: Kind?, at start: Timestamp)
    async throws -> Course
  {
    var draw = random.number(in: 0...99)
    var plan = Self.plans[0]
    for candidate in Self.plans {
      plan = candidate
      draw -= candidate.share
      if draw < 0 { break }
    }
    if kind == .inGrace || kind == .inRetry { plan = Self.plans[1] }
    let line = life.customer.line
    let currency = Self.currencies[random.number(in: 0...(Self.currencies.count - 1))]
    var course = Course(
      line: line, plan: plan, currency: currency,
      last: TransactionRecord(
        key: life.newKey(of: plan.id, on: line), asOf: start, purchaseDate: start))
    let isTrial = kind == .trial || kind != .inGrace && kind != .inRetry && random.chance(0.2)
    let isIntro = kind == .intro || random.chance(0.08)
    try await buy(
      &life, &course, plan, at: start, kind,
      as: isTrial ? .trial : isIntro ? .intro : random.chance(0.04) ? .offer : .normal)
    return course
  }

  // MARK: Charges

  private mutating func charge(
    _ life: inout SampleLife, _ course: inout Course, _ plan: Plan, at moment: Timestamp,
    kind: ChargeKind, as type: PeriodType = .normal
  ) -> [Evidence] {
    let price = plan.price * course.currency.tenths / 10
    let end = type == .trial ? moment + .days(7) : plan.period.end(from: moment)
    course.plan = plan
    course.charges += 1
    course.last = TransactionRecord(
      key: life.newKey(of: plan.id, on: course.line), asOf: moment, kind: kind,
      purchaseDate: moment, expiresDate: end, webOrderLineItemID: life.newLineItem(),
      productType: .autoRenewable, subscriptionGroup: plan.group, ownershipType: life.ownership,
      periodType: type, offerID: type == .offer ? "summer" : nil, revocation: .notRevoked,
      priceMilliunits: type == .trial ? 0 : type == .normal ? price : price / 2,
      currency: course.currency.code)
    return [.transaction(course.last), status(course, at: moment)]
  }

  private func status(
    _ course: Course, at moment: Timestamp, isOn: Bool = true,
    _ phase: RenewalStatus.Phase = .undisturbed, intent: Int? = nil, next: ProductID? = nil
  ) -> Evidence {
    .renewalStatus(
      RenewalStatus(
        asOf: moment, autoRenews: isOn, phase: phase,
        autoRenewProductID: next ?? course.plan.id, expirationIntent: intent), line: course.line)
  }

  private mutating func buy(
    _ life: inout SampleLife, _ course: inout Course, _ plan: Plan, at moment: Timestamp,
    _ kind: Kind?, as type: PeriodType = .normal
  ) async throws {
    let isOrdered = kind == .ordered || random.chance(0.15)
    let order =
      isOrdered && !life.isReportedLate && !life.isUnclaimed && life.ownership == .purchased
      ? try await life.openOrder(for: plan.id, at: moment - .seconds(90)) : nil
    let evidence = charge(&life, &course, plan, at: moment, kind: .purchase, as: type)
    try await life.buy(
      evidence, course.last.key, order: order,
      exchanges: random.chance(0.01) ? [SampleLife.failure(at: moment)] : [],
      at: moment + .seconds(random.number(in: 5...120)))
  }

  /// Renews the subscription; returns false if the charge failed for good.
  private mutating func renew(_ life: inout SampleLife, _ course: inout Course, _ kind: Kind?)
    async throws -> Bool
  {
    let end = course.end
    var plan = course.plan
    if kind == .downgraded || random.chance(0.01),
      let other = Self.plans.first(where: {
        $0.group == plan.group && $0.level > plan.level
      })
    {
      plan = other
      try await life.notify(
        "DID_CHANGE_RENEWAL_PREF", "DOWNGRADE",
        [status(course, at: end - .days(2), next: plan.id)], at: end - .days(2))
    }
    var moment = end
    if random.chance(0.04) {
      let recovery = end + .days(random.number(in: 1...30))
      guard recovery < present - .hours(1) else {
        try await fail(&life, course, withGrace: recovery < end + .days(16))
        return false
      }
      try await fail(&life, course, withGrace: recovery < end + .days(16))
      moment = recovery
    }
    let evidence = charge(&life, &course, plan, at: moment, kind: .renewal)
    try await life.notify(
      "DID_RENEW", moment > end ? "BILLING_RECOVERY" : nil, evidence,
      at: min(moment + .seconds(random.number(in: 2...600)), present),
      arrival: kind == .missed && course.charges == 2 ? .history : .delivered)
    return true
  }

  /// Reports a failed charge, with a grace period of two weeks or none.
  private func fail(_ life: inout SampleLife, _ course: Course, withGrace: Bool) async throws {
    let moment = min(course.end + .hours(1), present)
    let grace = course.end + .days(16)
    try await life.notify(
      "DID_FAIL_TO_RENEW", withGrace ? "GRACE_PERIOD" : nil,
      [status(course, at: moment, withGrace ? .gracePeriod(until: grace) : .billingRetry)],
      at: moment)
    if withGrace, grace > present { life.dueAt = grace }
  }

  private mutating func stayInTrouble(
    _ life: inout SampleLife, _ course: inout Course, _ isInGrace: Bool
  ) async throws {
    try await fail(&life, course, withGrace: isInGrace)
    if life.dueAt == nil { life.dueAt = course.end + .days(60) }
  }

  // MARK: Ends

  private mutating func lapse(_ life: inout SampleLife, _ course: inout Course) async throws {
    let end = course.end
    let draw = random.number(in: 0...99)
    let intent = draw < 60 ? 1 : draw < 90 ? 2 : draw < 94 ? 3 : draw < 96 ? 4 : 5
    if intent == 1 {
      let days = Double(random.number(in: 1...99)) / 100
      let off = course.last.purchaseDate + (end - course.last.purchaseDate) * days
      try await life.notify(
        "DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_DISABLED",
        [status(course, at: off, isOn: false)], at: off + .seconds(3))
    }
    var over = end + .minutes(5)
    if intent == 2 {
      try await fail(&life, course, withGrace: random.chance(0.5))
      over = end + .days(60)
      guard over < present else {
        if life.dueAt == nil { life.dueAt = over }
        return
      }
    }
    guard over < present else { return }
    try await life.notify(
      "EXPIRED", intent == 1 ? "VOLUNTARY" : nil,
      [status(course, at: over, isOn: false, .expired, intent: intent)], at: over + .seconds(5))
  }

  private mutating func perhapsSwitchOff(_ life: inout SampleLife, _ course: inout Course)
    async throws
  {
    guard random.chance(0.25) else { return }
    let off = course.last.purchaseDate + (present - course.last.purchaseDate) * 0.5
    try await life.notify(
      "DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_DISABLED",
      [status(course, at: off, isOn: false)], at: off + .seconds(2))
  }

  // MARK: Special customers

  /// Events in the middle of a period.
  private mutating func beSpecial(
    _ life: inout SampleLife, _ course: inout Course, _ kind: Kind?
  ) async throws {
    let middle = course.last.purchaseDate + (course.end - course.last.purchaseDate) * 0.4
    guard middle < present - .days(1), course.last.periodType != .trial else { return }
    if kind == .upgraded && !course.isSpent || random.chance(0.004),
      let other = Self.plans.first(where: {
        $0.group == course.plan.group && $0.level < course.plan.level
      })
    {
      course.isSpent = true
      var replaced = course.last
      replaced.isUpgraded = true
      replaced.asOf = middle
      let evidence = charge(&life, &course, other, at: middle, kind: .purchase)
      return try await life.buy(
        [.transaction(replaced)] + evidence, course.last.key, at: middle + .seconds(20))
    }
    if kind == .switched && !course.isSpent || random.chance(0.01) {
      course.isSpent = true
      try await life.notify(
        "DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_DISABLED",
        [status(course, at: middle, isOn: false)], at: middle + .seconds(2))
      try await life.notify(
        "DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_ENABLED",
        [status(course, at: middle + .hours(5))], at: middle + .hours(5) + .seconds(2))
    }
    let isRefunded = kind == .refunded || kind == .refundReversed
    if isRefunded && !course.isSpent || random.chance(0.006), life.ownership == .purchased {
      course.isSpent = true
      var taken = course.last
      taken.asOf = middle
      taken.revocation = .revoked(at: middle, reason: random.chance(0.3) ? "1" : "0")
      try await life.notify("REFUND", nil, [.transaction(taken)], at: middle + .minutes(1))
      if kind == .refundReversed {
        taken.asOf = middle + .hours(8)
        taken.revocation = .notRevoked
        try await life.notify(
          "REFUND_REVERSED", nil, [.transaction(taken)], at: middle + .hours(8) + .minutes(1))
      }
      course.last = taken
    }
  }

  /// Events outside the subscription.
  private mutating func beSpecial(_ life: inout SampleLife, _ kind: Kind?, since start: Timestamp)
    async throws
  {
    let moment = start + (present - start) * (Double(random.number(in: 10...90)) / 100)
    switch kind {
    case .transferred:
      try await life.changeAccount(at: moment)
      let key = try await lastCharge(on: life.customer.line)
      try await life.transfer(key, at: max(moment, life.lastAt + .seconds(1)))
    case .forged: try await life.submitForgery(at: moment)
    case .waiting: try await life.submitInVain(at: present - .hours(2))
    case .coins:
      for number in 0..<random.number(in: 2...6) {
        try await buyOnce(&life, Self.coins, .consumable, at: moment + .hours(number))
      }
    case .lifetime: try await buyOnce(&life, Self.lifetime, .nonConsumable, at: moment)
    case .season: try await buyOnce(&life, Self.season, .nonRenewing, at: moment)
    case .granted, .grantRevoked:
      try await life.grant(
        until: kind == .granted ? present + .days(40) : nil, isRevoked: kind == .grantRevoked,
        at: moment)
    case .neverPaid: _ = try await life.openOrder(for: Self.plans[1].id, at: moment)
    default: break
    }
  }

  private func lastCharge(on line: OriginalTransactionKey) async throws -> TransactionKey {
    guard let original = try await ledger.ownership.original(of: line),
      let charge = original.rule.charges.last
    else { throw BenchError.wrongAnswer("\(line) has no charge") }
    return charge.id
  }

  private mutating func buyOnce(
    _ life: inout SampleLife, _ product: ProductID, _ type: ProductType, at moment: Timestamp
  ) async throws {
    guard moment < present - .hours(1) else { return }
    let line = life.newLine()
    let key = life.newKey(of: product, on: line)
    let record = TransactionRecord(
      key: key, asOf: moment, kind: .purchase, purchaseDate: moment,
      webOrderLineItemID: nil, productType: type, revocation: .notRevoked,
      priceMilliunits: type == .consumable ? 990 : 14_990, currency: "USD")
    try await life.submit(
      [.transaction(record)], claiming: [key], isDelivered: random.chance(0.9),
      at: moment + .seconds(15))
  }
}
