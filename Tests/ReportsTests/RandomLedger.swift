import Foundation
import LedgerStorage
import Postgres
import Reports
import Subscriptions

/// A ledger with some of everything that reports count, recorded as the program records it.
struct RandomLedger: Sendable {
  static let usualStart = Timestamp(CalendarDate(year: 2026, month: 1, day: 1))
  /// After the database's own clock: nothing in it is of the past.
  static let futureStart = Timestamp(CalendarDate(year: 2101, month: 1, day: 1))
  private static let accounts = ["anna", "ben", "carl", "dora"]
  private static let currencies = ["EUR", "USD", "JPY"]
  private static let storefronts = ["DEU", "USA", nil]
  private static let segmentations = ReportChoices.Segmentation.allCases
  private static let steps = 60

  private let start: Timestamp
  private var random: SplitMix

  init(_ seed: UInt64, from start: Timestamp = Self.usualStart) {
    self.start = start
    random = SplitMix(seed)
  }

  private func day(_ day: Double) -> Timestamp {
    start + .milliseconds(Int64(day * 86_400_000))
  }

  private static let catalogue: [Product] = [
    Product(
      id: "month", validFrom: usualStart, type: .autoRenewable, entitlements: ["premium"],
      subscriptionGroup: "plans", period: CalendarPeriod(months: 1), priceMilliunits: 9990,
      currency: "EUR"),
    Product(
      id: "year", validFrom: usualStart, type: .autoRenewable, entitlements: ["premium"],
      subscriptionGroup: "plans", period: CalendarPeriod(months: 12), priceMilliunits: 59_990,
      currency: "EUR"),
    Product(
      id: "quarter", validFrom: usualStart, type: .autoRenewable, entitlements: ["premium"],
      subscriptionGroup: "plans", period: CalendarPeriod(months: 3)),
    Product(
      id: "coins", validFrom: usualStart, type: .consumable, entitlements: [],
      priceMilliunits: 1500, currency: "USD"),
  ]

  private mutating func chance(_ percent: Int) -> Bool {
    Int.random(in: 0..<100, using: &random) < percent
  }

  /// Lets everything happen.
  ///
  /// - Parameters:
  ///   - ledger: Where it is recorded.
  ///   - database: The ledger's.
  ///   - pause: Called in the middle, with the moment.
  /// - Returns: The moment after it.
  /// - Throws: Errors of the database and of `pause`.
  mutating func happen(
    in ledger: Ledger, _ database: ConnectionPool,
    pause: (Timestamp) async throws -> Void = { _ in }
  ) async throws -> Timestamp {
    for product in Self.catalogue { _ = try await ledger.products.describe(product) }
    let terms = AccessTerms(catalogue: try await ledger.products.catalogue())
    let support = Administrator(name: "ops", reason: "They asked for it.")
    for account in Self.accounts {
      _ = try await ledger.accounts.findOrCreateAccount(account, at: start)
    }
    var date = 1.0
    var charges: [TransactionKey] = []
    for step in 0..<Self.steps {
      date += Double.random(in: 0...4, using: &random)
      // Half of it is in the sums by the day, the other half is still to be rolled up.
      if step == Self.steps / 2 {
        try await pause(day(date))
        // The next action is later.
        date += 0.1
        try await Self.rollUp(in: ledger, at: day(date))
      }
      let account = Self.accounts[Int.random(in: 0..<Self.accounts.count, using: &random)]
      // Some of each, whatever chance says.
      let way = step < 12 ? step : Int.random(in: 0..<12, using: &random)
      switch way {
      case 0..<8:
        let line = OriginalTransactionKey(
          chance(90) ? .production : .sandbox,
          OriginalTransactionID("\(Int.random(in: 1...8, using: &random))000"))
        let (evidence, key) = status(of: line, on: date)
        let order: UUID? =
          chance(20)
          ? try await ledger.orders.openOrder(
            accountID: account, productID: key.productID, at: day(date - 0.01)
          ).order.id : nil
        let isClaimed = chance(75)
        try await submit(
          evidence, claiming: isClaimed ? [key] : [], by: account, on: date, order: order,
          environment: line.environment, in: ledger, terms)
        charges.append(key)
        if chance(30) {
          let owner = try await ledger.accounts.findOrCreateAccount(account, at: day(date)).key
          do {
            _ = try await ledger.orders.acknowledgeDelivery(
              of: key, by: owner, at: day(date + 0.01))
          } catch LedgerError.revokedCharge {
            // Refunded charges are not delivered.
          }
        }
      case 8:
        let product = Self.catalogue[Int.random(in: 0..<4, using: &random)].id
        _ = try await ledger.orders.openOrder(accountID: account, productID: product, at: day(date))
      case 9, 10:
        guard let charge = charges.randomElement(using: &random) else { continue }
        do {
          _ = try await ledger.ownership.transfer(
            charge, to: account, by: support, terms: terms, at: day(date))
        } catch is LedgerError {
          // Shared charges, for example, can't be assigned.
        }
      default:
        _ = try await ledger.grants.grant(
          "gold", to: account,
          until: chance(50) ? day(date + Double.random(in: 1...40, using: &random)) : nil,
          by: support, terms: terms, at: day(date))
      }
    }
    return day(date + 1)
  }

  /// Rolls up recorded changes into the daily sums.
  static func rollUp(in ledger: Ledger, at moment: Timestamp) async throws {
    try await ledger.jobs.seed([.rollUpMovements], at: moment)
    let jobs = try await ledger.jobs.claimJobs(
      limits: [.maintenance: 9], worker: "w", at: moment, lease: .seconds(60))
    for job in jobs where job.kind == .rollUpMovements {
      try await ledger.maintenance.rollUpMovements(job, every: .seconds(10), at: moment)
    }
  }

  /// Apple's record of a charge: any product, price, kind and fate.
  private mutating func status(of line: OriginalTransactionKey, on date: Double) -> (
    [Evidence], TransactionKey
  ) {
    let number = Int(date / 30)
    let product = Self.catalogue[chance(60) ? 0 : Int.random(in: 0..<4, using: &random)]
    // Apple's date of a transaction never changes.
    let begin = Double(number * 30) + Double((number + product.id.rawValue.utf8.count) % 3) / 10
    let key = TransactionKey(
      line: line,
      transactionID: TransactionID(
        "\(line.originalTransactionID.rawValue)\(number)\(product.id.rawValue)"),
      productID: product.id)
    let isTrial = number % 2 == 0 && chance(30) && product.type == .autoRenewable
    let price: Int64? =
      isTrial ? 0 : chance(70) ? Int64.random(in: 1...9, using: &random) * 1111 : nil
    var record = TransactionRecord(
      key: key, asOf: day(date), purchaseDate: day(begin),
      expiresDate: product.period.map { $0.end(from: day(begin)) },
      productType: product.type, subscriptionGroup: product.subscriptionGroup,
      ownershipType: chance(10) ? .familyShared : .purchased,
      periodType: isTrial ? .trial : chance(15) ? .intro : chance(10) ? .offer : .normal,
      isUpgraded: chance(5),
      revocation: chance(15)
        ? .revoked(
          at: min(day(date), day(begin + Double.random(in: 0...9, using: &random))),
          reason: chance(50) ? "1" : nil) : .notRevoked,
      priceMilliunits: price,
      currency: price.map { _ in Self.currencies[Int.random(in: 0..<3, using: &random)] })
    record.storefront = Self.storefronts[Int.random(in: 0..<3, using: &random)]
    record.offerType = OfferType.allCases.filter { _ in chance(20) }.first
    guard product.type == .autoRenewable, chance(50) else { return ([.transaction(record)], key) }
    let phases: [RenewalStatus.Phase] = [
      .undisturbed, .billingRetry, .expired, .gracePeriod(until: day(begin + 36)),
    ]
    let status = RenewalStatus(
      asOf: day(date), autoRenews: chance(60),
      phase: phases[Int.random(in: 0..<4, using: &random)], autoRenewProductID: product.id,
      expirationIntent: chance(40) ? Int.random(in: 1...5, using: &random) : nil)
    return ([.transaction(record), .renewalStatus(status, line: line)], key)
  }

  private func submit(
    _ evidence: [Evidence], claiming selected: [TransactionKey], by account: String,
    on date: Double, order: UUID?, environment: Subscriptions.Environment, in ledger: Ledger,
    _ terms: AccessTerms
  ) async throws {
    let submission = try await ledger.submissions.store(
      ledger.submissions.new(
        id: UUID(), accountID: account, receivedAt: day(date), payload: .receipt("receipt"),
        transactionID: nil, orderID: order, isRestore: false, bundleID: nil,
        retryAt: day(date) + .minutes(1)))
    _ = try await ledger.submissions.record(
      SubmissionStore.VerifiedSubmission(
        submission: submission, source: .receipt, environment: environment, evidence: evidence,
        selected: selected, exchanges: []),
      at: day(date), terms: terms)
  }

  // MARK: Asking

  /// Several choices of a report, so that each of its parameters is chosen once at least.
  mutating func choices(of report: Report, at now: Timestamp) -> [ReportChoices] {
    // From the beginning: empty rows before it would only take time.
    var plain = ReportChoices()
    plain.from = start.dayAndTime.date
    var split = ReportChoices()
    split.from = (now - .days(20)).dayAndTime.date
    split.bucket = .week
    split.by = Self.segmentations.randomElement(using: &random)
    split.includesFamilyShared = true
    split.includesTrials = true
    split.includesGrants = true
    split.includesSandbox = true
    var then = ReportChoices()
    then.from = start.dayAndTime.date
    then.timeZone = "America/New_York"
    then.by = chance(50) ? Self.segmentations.randomElement(using: &random) : nil
    then.includesGrants = true
    then.knownAt = now - .days(Int.random(in: 0...60, using: &random))
    var one = ReportChoices()
    one.from = day(Double.random(in: 0...40, using: &random)).dayAndTime.date
    one.to = day(Double.random(in: 60...90, using: &random)).dayAndTime.date
    one.product = "month"
    one.asOf = now - .days(Int.random(in: 0...30, using: &random))
    var sandbox = ReportChoices()
    sandbox.from = day(30).dayAndTime.date
    sandbox.environment = .sandbox
    return [plain, split, then, one, sandbox].map { $0.only(report) }
  }
}

extension ReportChoices {
  /// Keeps the parameters that a report accepts.
  fileprivate func only(_ report: Report) -> ReportChoices {
    let parameters = report.parameters
    var choices = self
    let usual = ReportChoices()
    if !parameters.contains(.bucket) { choices.bucket = nil }
    if !parameters.contains(.timeZone) { choices.timeZone = usual.timeZone }
    if !parameters.contains(.knownAt) { choices.knownAt = nil }
    if !parameters.contains(.asOf) { choices.asOf = nil }
    if !parameters.contains(.product) { choices.product = nil }
    choices.by = by.flatMap { report.segmentations.contains($0) ? $0 : nil }
    return choices
  }
}

extension ReportTable {
  /// The rows that say anything: sums keep one of zeros where something was counted and taken back.
  var rowsThatSay: [[ReportValue]] {
    rows.filter { row in
      row.contains { value in
        switch value {
        case .number(let number): number != 0
        case .money(let milliunits, _): milliunits != 0
        case .duration, .time, .fraction, .rate: true
        case .text, .date, .flag, .none: false
        }
      }
    }
  }
}

/// Random numbers that a seed brings back.
private struct SplitMix: RandomNumberGenerator {
  private var state: UInt64

  init(_ seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}
