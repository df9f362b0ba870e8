import LedgerStorage
import Logging
import Postgres
import Subscriptions

/// What goes wrong in the week, each thing while the programs have work to do.
actor RehearsalIncidents {
  private enum Incident {
    case upgrade, failover, murder
  }

  private let servers: RehearsalServers
  private let programs: RehearsalPrograms
  private let tenure: TenureClient
  private let database: ConnectionPool
  private let printer: StoryPrinter
  private let logger: Logger
  private var coming: ArraySlice<(at: Timestamp, what: Incident)>
  private var current: Task<Void, any Error>?

  init(
    _ plan: RehearsalPlan, servers: RehearsalServers, programs: RehearsalPrograms,
    tenure: TenureClient, database: ConnectionPool, printer: StoryPrinter, logger: Logger
  ) {
    self.servers = servers
    self.programs = programs
    self.tenure = tenure
    self.database = database
    self.printer = printer
    self.logger = logger
    coming = [(plan.upgrade, .upgrade), (plan.failover, .failover), (plan.murder, .murder)]
  }

  /// Whether everything has gone wrong that was to go wrong.
  var isComplete: Bool { coming.isEmpty && current == nil }

  /// Begins what is due, and goes on at once.
  ///
  /// - Throws: What the one before ended with.
  func begin(at moment: Timestamp) async throws {
    try await end()
    guard let next = coming.first, next.at <= moment else { return }
    coming.removeFirst()
    current = Task { try await happen(next.what, at: moment) }
  }

  /// Waits until what has begun is over.
  func end() async throws {
    try await current?.value
    current = nil
  }

  /// A step of the schema that programs of the current version keep working with.
  private static let nextVersion = SchemaStep(
    version: SchemaMigrator.currentVersion + 1, servesSince: SchemaMigrator.currentVersion,
    sql: """
      -- part: transaction
      ALTER TABLE tenure.submission ADD COLUMN rehearsed_at timestamptz;
      -- part: index
      CREATE INDEX CONCURRENTLY IF NOT EXISTS submission_rehearsed
          ON tenure.submission (received_at) WHERE rehearsed_at IS NOT NULL;
      """)

  private func happen(_ incident: Incident, at moment: Timestamp) async throws {
    let begin = ContinuousClock.now
    switch incident {
    case .upgrade:
      let upgrade = SchemaMigrator(
        database: database, logger: logger, steps: [Self.nextVersion])
      guard try await upgrade.migrate() == SchemaMigrator.currentVersion,
        try await upgrade.version() == SchemaMigrator.currentVersion + 1
      else { throw Rehearsal.Failure(description: "The schema was not upgraded.") }
      let upgraded = Self.milliseconds(since: begin)
      try await programs.replaceAll()
      printer.event(
        moment,
        "The schema got its next version in \(upgraded) ms, while the programs went on; then they "
          + "were replaced, one after the other.")
    case .failover:
      try await servers.failOver()
      let promoted = Self.milliseconds(since: begin)
      // A write that was acknowledged.
      _ = try await tenure.account("witness")
      printer.event(
        moment,
        "The database was killed; its standby took over after \(promoted) ms, and the first write "
          + "was acknowledged \(Self.milliseconds(since: begin)) ms after the loss.")
    case .murder:
      try await programs.killWorker()
      printer.event(moment, "A worker was killed in the middle of its work; another one goes on.")
    }
  }

  private static func milliseconds(since begin: ContinuousClock.Instant) -> Int64 {
    (ContinuousClock.now - begin).inMilliseconds
  }
}
