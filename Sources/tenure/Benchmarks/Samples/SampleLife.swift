import AppStore
import BackgroundJobs
import Foundation
import LedgerStorage
import Logging
import Postgres
import ServiceLifecycle
import Subscriptions

/// What one customer of a large ledger does and what Apple says of it, recorded as the programs
/// record it, in the past.
struct SampleLife {
  /// How much earlier or later a life may lie without being another one: what has happened stays in
  /// the past, and what is expected in the future.
  struct Leeway: Sendable {
    /// Negative.
    var earliest: Duration
    var latest: Duration
  }

  private static let administrator = Administrator(name: "ops", reason: "They asked for it.")
  /// A life is moved by no more, so that what was recorded first is written first.
  private static let mostLeeway: Duration = .days(30)

  let customer: SampleCustomer
  let database: ConnectionPool
  let ledger: Ledger
  let terms: AccessTerms
  /// What is later has not happened yet.
  let present: Timestamp
  /// Nothing is submitted and nothing is heard of Apple until the end: then a receipt lists it all.
  var isHeardOfLate = false
  /// Nobody submits anything.
  var isUnclaimed = false
  var ownership = OwnershipType.purchased
  /// The account that submits.
  var accountID: String
  /// The UUIDs that the programs have drawn, and what stands in their place.
  private(set) var names: [(made: UUID, marked: UUID)] = []
  /// When the last thing was recorded.
  private(set) var lastAt: Timestamp
  /// When the paid period is going to end; nil: nothing is expected.
  var dueAt: Timestamp?
  private var counter = 0
  private var unheard: [Evidence] = []

  init(
    of customer: SampleCustomer, from start: Timestamp, in database: ConnectionPool,
    ledger: Ledger, terms: AccessTerms, present: Timestamp
  ) {
    self.customer = customer
    self.database = database
    self.ledger = ledger
    self.terms = terms
    self.present = present
    accountID = customer.accountID
    lastAt = start
  }

  var leeway: Leeway {
    Leeway(
      earliest: max(
        dueAt.map { present - $0 + .hours(1) } ?? .zero - Self.mostLeeway, .zero - Self.mostLeeway),
      latest: min(max(present - lastAt, .zero), Self.mostLeeway))
  }

  // MARK: Names

  /// A number that nothing else of the customer has.
  private mutating func next() -> String {
    counter += 1
    return String(counter + 10_000).dropFirst() + "\(customer.number)"
  }

  /// A line of the customer's; the first one is the subscription's.
  mutating func newLine() -> LineID {
    LineID(.production, OriginalTransactionID("3\(next())"))
  }

  mutating func newKey(of product: ProductID, on line: LineID) -> TransactionKey {
    TransactionKey(line: line, transactionID: TransactionID("4\(next())"), productID: product)
  }

  mutating func newLineItem() -> WebOrderLineItemID { WebOrderLineItemID("5\(next())") }

  /// A UUID that ends with the customer's number.
  private mutating func newUUID(_ mark: String) throws -> UUID {
    counter += 1
    let text = "\(String(counter + 10_000_000).suffix(8))-0000-4000-\(mark)-00\(customer.number)"
    guard let id = UUID(uuidString: text) else {
      throw BenchError.wrongAnswer("\(text) is no UUID")
    }
    return id
  }

  // MARK: The app

  /// Submits a receipt with what Apple says, and claims some of it; what is delivered at once is
  /// acknowledged.
  mutating func submit(
    _ evidence: [Evidence], claiming keys: [TransactionKey], order: UUID? = nil,
    isDelivered: Bool = false, exchanges: [SubmissionExchange] = [], at moment: Timestamp
  ) async throws {
    let submission = try await store(order: order, at: moment)
    _ = try await ledger.record(
      Ledger.VerifiedSubmission(
        submission: submission, source: .receipt, environment: .production, evidence: evidence,
        bundleID: SampleSubmission.bundleID, selected: keys, exchanges: exchanges),
      at: moment, terms: terms)
    guard isDelivered, let key = keys.first else { return }
    _ = try await ledger.acknowledgeDelivery(
      of: key, by: submission.account, at: moment + .milliseconds(800))
  }

  private mutating func store(order: UUID?, at moment: Timestamp) async throws -> Submission {
    note(moment)
    return try await ledger.store(
      NewSubmission(
        id: try newUUID("8002"), accountID: accountID, receivedAt: moment,
        payload: .receipt("receipt"), transactionID: nil, orderID: order, isRestore: false,
        bundleID: SampleSubmission.bundleID),
      retryAt: moment + .minutes(1))
  }

  /// Submits what Apple does not vouch for.
  mutating func submitForgery(at moment: Timestamp) async throws {
    try await ledger.reject(
      try await store(order: nil, at: moment),
      because: SubmissionProblem(
        code: "receipt_rejected", detail: "Apple does not vouch for the receipt.",
        appleStatus: 21_003),
      exchanges: [], terms: terms, at: moment)
  }

  /// Submits while Apple does not answer.
  mutating func submitInVain(at moment: Timestamp) async throws {
    try await ledger.postpone(
      try await store(order: nil, at: moment), until: present + .hours(1),
      because: SubmissionProblem(code: "apple_unavailable", detail: "Apple did not answer."),
      exchanges: [Self.failure(at: moment)], worker: nil, terms: terms, at: moment)
  }

  static func failure(at moment: Timestamp) -> SubmissionExchange {
    SubmissionExchange(
      endpoint: "https://buy.itunes.apple.com/verifyReceipt", askedAt: moment,
      duration: .seconds(10), httpStatus: nil, answer: nil, fault: "timed out")
  }

  mutating func openOrder(for product: ProductID, at moment: Timestamp) async throws -> UUID {
    note(moment)
    let order = try await ledger.openOrder(
      accountID: accountID, productID: product, at: moment
    ).order.id
    names.append((order, try newUUID("8003")))
    return order
  }

  mutating func changeAccount(at moment: Timestamp) async throws {
    accountID = customer.secondAccountID
    try await customer.insertAccount(isSecond: true, in: database, at: moment)
  }

  // MARK: Apple

  /// What Apple says, as a notification of the version 2.
  mutating func notify(
    _ type: String, _ subtype: String? = nil, _ evidence: [Evidence], at moment: Timestamp,
    arrival: NotificationArrival = .delivered
  ) async throws {
    guard !isHeardOfLate else {
      unheard += evidence
      return
    }
    note(moment)
    let id = try newUUID("8006").uuidString.lowercased()
    _ = try await ledger.store(
      NewNotification(
        id: id, version: .two, receivedAt: moment, arrival: arrival, body: "eyJhbGciOiJFUzI1NiJ9",
        notificationType: type, subtype: subtype, environment: .production,
        bundleID: SampleSubmission.bundleID,
        originalTransactionID: evidence.first?.line.originalTransactionID,
        signedAt: moment - .seconds(arrival == .history ? 7200 : 1)),
      processAt: moment + .seconds(30))
    _ = try await ledger.process(
      Ledger.VerifiedNotification(
        id: id, evidence: evidence, source: LineSource(bundleID: SampleSubmission.bundleID)),
      at: moment, terms: terms)
  }

  /// A purchase: submitted, or told by Apple alone.
  mutating func buy(
    _ evidence: [Evidence], _ key: TransactionKey, order: UUID? = nil,
    exchanges: [SubmissionExchange] = [], at moment: Timestamp
  ) async throws {
    if isUnclaimed || isHeardOfLate {
      try await notify("SUBSCRIBED", "INITIAL_BUY", evidence, at: moment)
    } else {
      try await submit(
        evidence, claiming: [key], order: order, isDelivered: order != nil,
        exchanges: exchanges, at: moment)
    }
  }

  /// Submits everything that was not heard of, in one receipt.
  mutating func tellAll(at moment: Timestamp) async throws {
    let keys = unheard.compactMap { item -> TransactionKey? in
      if case .transaction(let record) = item { record.key } else { nil }
    }
    isHeardOfLate = false
    try await submit(unheard, claiming: keys.suffix(1), at: moment)
    unheard = []
  }

  // MARK: Administrators

  mutating func transfer(_ key: TransactionKey, at moment: Timestamp) async throws {
    note(moment)
    try await ledger.transfer(
      key, to: accountID, by: Self.administrator, terms: terms, at: moment)
  }

  mutating func grant(until end: Timestamp?, isRevoked: Bool, at moment: Timestamp) async throws {
    note(moment)
    let grant = try await ledger.grant(
      "gold", to: accountID, until: end, by: Self.administrator, terms: terms, at: moment
    ).grant.grant.id
    names.append((grant, try newUUID("8007")))
    guard isRevoked else { return }
    let later = min(moment + .days(5), present)
    note(later)
    _ = try await ledger.revokeGrant(grant, by: Self.administrator, terms: terms, at: later)
  }

  private mutating func note(_ moment: Timestamp) { lastAt = max(lastAt, moment) }
}

/// The programs put together for ``SampleCustomer``s, at whatever time a benchmark wants it to be.
struct SampleShop: Sendable {
  /// How often it is looked whether a worker is through.
  private static let pause: Duration = .milliseconds(10)
  /// How long a worker may take, whatever is measured.
  private static let workLimit: Duration = .seconds(6 * 3600)

  let appStore: SampleAppStore
  let assembly: Assembly
  private let database: ConnectionPool
  private let logger: Logger
  let now: @Sendable () -> Timestamp

  /// Describes the product and puts the programs together.
  ///
  /// - Parameters:
  ///   - database: With a schema.
  ///   - boughtAt: When the customers bought; nil: just now.
  ///   - logger: The programs'.
  ///   - now: The clock.
  /// - Throws: What the database says.
  init(
    database: ConnectionPool, boughtAt: Timestamp? = nil,
    logger: Logger = Logger(label: "bench", factory: { _ in SwiftLogNoOpLogHandler() }),
    now: @escaping @Sendable () -> Timestamp = { .now }
  ) async throws {
    self.database = database
    self.logger = logger
    self.now = now
    try await SampleAccounts.describeProduct(in: database)
    appStore = try SampleAppStore(boughtAt: boughtAt ?? now() - .seconds(10), now: now)
    var settings = try Settings(
      await SettingSource(
        flags: ["TENURE_BUNDLE_IDS": SampleSubmission.bundleID], environment: [:]))
    settings.trustedRoots = appStore.trustedRoots
    settings.serverAPIKey = appStore.key
    assembly = try await Assembly(
      database: database, settings: settings, transport: appStore, logger: logger,
      clock: WorkClock(now: now))
  }

  /// Lets a customer buy and submit.
  ///
  /// - Returns: Where the customer's number stands in the rows that are written.
  /// - Throws: ``BenchError/wrongAnswer(_:)``, or what the database says.
  func subscribe(_ customer: SampleCustomer) async throws -> [CopiedRows.Mark] {
    try await customer.subscribe(at: appStore, with: assembly.intake, in: database)
  }

  /// Runs a worker, which asks Apple as often as it likes, until something is so.
  ///
  /// Its own time runs as usual from the moment that it is now, however fast the shop's clock runs.
  ///
  /// - Parameters:
  ///   - concurrency: The number of jobs of each queue that run at once.
  ///   - isSo: Asked again and again.
  /// - Returns: How long it took from the worker's start.
  /// - Throws: ``BenchError/wrongAnswer(_:)`` if it never is, or what `isSo` throws.
  func work(
    _ concurrency: [Job.Queue: Int] = Worker.concurrency, until isSo: () async throws -> Bool
  ) async throws -> Duration {
    let (moment, instant) = (now(), ContinuousClock.now)
    let worker = Worker(
      tools: assembly.jobTools, name: "bench", concurrency: concurrency, logger: logger,
      clock: WorkClock { moment + (ContinuousClock.now - instant) })
    let group = ServiceGroup(services: [worker], logger: logger)
    return try await withThrowingTaskGroup(of: Void.self) { tasks in
      tasks.addTask { try await group.run() }
      let start = ContinuousClock.now
      while try await !isSo() {
        guard .now - start < Self.workLimit else {
          throw BenchError.wrongAnswer("the worker is not through after \(Self.workLimit)")
        }
        try await Task.sleep(for: Self.pause)
      }
      let elapsed = .now - start
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
      return elapsed
    }
  }
}
