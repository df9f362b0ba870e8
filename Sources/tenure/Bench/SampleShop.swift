import AppStore
import BackgroundJobs
import LedgerStorage
import Logging
import Postgres
import ServiceLifecycle
import Subscriptions

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
  ///   - slots: How many jobs of which lanes it does at once.
  ///   - isSo: Asked again and again.
  /// - Returns: How long it took from the worker's start.
  /// - Throws: ``BenchError/wrongAnswer(_:)`` if it never is, or what `isSo` throws.
  func work(
    _ slots: [Job.Lane: Int] = Worker.slots, until isSo: () async throws -> Bool
  ) async throws -> Duration {
    let (moment, instant) = (now(), ContinuousClock.now)
    let worker = Worker(
      tools: assembly.jobTools, name: "bench", slots: slots, logger: logger,
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
