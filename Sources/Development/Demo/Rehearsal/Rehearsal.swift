import AppStore
import AppStoreSimulator
import AsyncHTTPClient
import Bootstrap
package import Foundation
import LedgerStorage
package import Logging
import Postgres
import Secrets
import Subscriptions

/// `tenure rehearse`: the day of a migration and the week after it, with incidents.
///
/// Notifications are enabled, owners of active subscriptions are imported and confirmed by Apple,
/// and the old backend's answers are compared. Then a week passes on a fast clock: Apple renews,
/// owners cancel or are refunded, new customers buy, the schema is upgraded without downtime, the
/// database fails over to a standby, and a worker is killed. At the end every account's
/// entitlements are compared with the truth.
package struct Rehearsal {
  let plan: RehearsalPlan
  let executable: URL
  let logger: Logger
  private let printer = StoryPrinter()

  package init(_ plan: RehearsalPlan, executable: URL, logger: Logger) {
    self.plan = plan
    self.executable = executable
    self.logger = logger
  }

  /// A command or an incident that failed.
  package struct Failure: Error, CustomStringConvertible {
    package let description: String

    package init(description: String) { self.description = description }
  }

  /// - Returns: Whether every outcome was as expected.
  package func run() async throws -> Bool {
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-rehearsal-\(ProcessInfo.processInfo.processIdentifier)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    let result: Result<Bool, any Error>
    do {
      result = .success(try await run(in: directory))
    } catch {
      result = .failure(error)
    }
    // In its own task because a cancelled task removes no files.
    _ = await Task { try? FileManager.default.removeItem(at: directory) }.value
    return try result.get()
  }

  private func run(in directory: URL) async throws -> Bool {
    let servers = try await RehearsalServers.start(in: directory, logger: logger)
    do {
      let result = try await run(on: servers, in: directory)
      await servers.stop()
      return result
    } catch {
      // In its own task because a cancelled task would not wait for the servers.
      await Task { await servers.stop() }.value
      throw error
    }
  }

  private func run(on servers: RehearsalServers, in directory: URL) async throws -> Bool {
    printer.heading("1. Before the migration: \(plan.owners) customers of another backend")
    let simulation = try AppStoreSimulation(
      configuration: .init(
        seed: plan.seed, start: plan.past, speed: 0, apps: [DemoCatalogue.app]))
    let owners = try RehearsalOwners(plan, in: simulation)
    printer.event(
      simulation.now,
      "Each made a purchase in the last months, which Apple has renewed or which has ended.")
    let appStore = AppStoreSimulatorServer(simulation: simulation, logger: logger)
    return try await withServices([appStore], logger: logger) {
      let hand = ClockHand(in: directory)
      try hand.move(to: simulation.now)
      let environment = try DemoSettings(
        in: directory, simulation: simulation, port: try await appStore.port
      ).values.merging([
        "DATABASE_URL": servers.url, "TENURE_CLOCK_FILE": hand.path,
        "TENURE_LOG_LEVEL": "error",
      ]) { $1 }
      let migration = try await ChildProcess.run(
        executable, ["migrate"], environment: environment, in: directory)
      try Self.check(migration, "tenure migrate")
      let programs = try await RehearsalPrograms(
        executable, environment: environment, in: directory)
      do {
        let result = try await play(
          Stage(
            simulation: simulation, owners: owners, servers: servers, programs: programs,
            hand: hand, directory: directory))
        await programs.stop()
        return result
      } catch {
        await programs.stop()
        throw error
      }
    }
  }

  private struct Stage {
    let simulation: AppStoreSimulation
    let owners: RehearsalOwners
    let servers: RehearsalServers
    let programs: RehearsalPrograms
    let hand: ClockHand
    let directory: URL
  }

  private func play(_ stage: Stage) async throws -> Bool {
    var configuration = ConnectionPool.Configuration(uri: Secret(stage.servers.url))
    // The rehearsal's own connections have to survive the failover.
    configuration.outageTimeout = .seconds(60)
    configuration.acquireTimeout = .seconds(60)
    let pool = ConnectionPool(configuration: configuration, logger: logger)
    return try await Database(pool: pool, server: nil).use { database in
      let ledger = Ledger(database: database)
      return try await withHTTPClient { client in
        var tenure = TenureClient(
          client: client, baseURL: stage.programs.url, key: stage.programs.secret)
        tenure.patience = .seconds(120)
        try await DemoCatalogue.describe(to: tenure)
        try await stage.programs.startWorkers()
        let sender = NotificationSender(
          simulation: stage.simulation, transport: HTTPClientTransport(client: client))
        // Enabled before the import: Apple may charge renewals right after confirming an owner.
        try stage.simulation.setNotificationTargets(
          [NotificationTarget(.v2, url: tenure.notificationURL)])
        try await moveIn(stage, ledger, sender)
        printer.heading("3. The week after the migration, on a fast clock")
        let week = try Year(
          plan.week.beginning(at: stage.simulation.now), simulation: stage.simulation,
          tenure: tenure, sender: sender, ledger: ledger, clockHand: stage.hand.move,
          leaseStep: .minutes(1), residents: stage.owners.residents)
        try await compareWithOldBackend(stage, week)
        return try await live(week, stage, tenure, ledger, database)
      }
    }
  }

  // MARK: Migration

  private func moveIn(
    _ stage: Stage, _ ledger: Ledger, _ sender: NotificationSender
  ) async throws {
    printer.heading("2. Monday: the migration")
    let file = stage.directory.appending(path: "owners.csv")
    try stage.owners.writeOwners(of: stage.simulation, to: file)
    let path = file.path(percentEncoded: false)
    let asOf = ["--as-of", "\(stage.simulation.now)"]
    try Self.check(
      await stage.programs.run(["import", path, "--dry-run"] + asOf), "tenure import --dry-run")
    var begin = ContinuousClock.now
    let outcome = try await stage.programs.run(["import", path] + asOf)
    try Self.check(outcome, "tenure import")
    printer.event(
      stage.simulation.now,
      "tenure import finished: \(plan.owners) owners in \(Self.seconds(since: begin)) seconds.")
    begin = ContinuousClock.now
    try await waitForApple(stage, ledger, sender)
    try Self.check(await stage.programs.run(["import", "--status"]), "tenure import --status")
    printer.event(
      stage.simulation.now,
      "Apple has confirmed all owners within its rate limit: in "
        + "\((stage.simulation.now - plan.switchDay) / .minutes(1)) simulated minutes, "
        + "\(Self.seconds(since: begin)) seconds in reality.")
  }

  /// Waits until Apple has confirmed every owner, and delivers its notifications.
  ///
  /// The clock advances by what the budget allows for the confirmations seen, so that the workers
  /// confirm as fast as they can and the simulated time is the time it would take with Apple.
  private func waitForApple(
    _ stage: Stage, _ ledger: Ledger, _ sender: NotificationSender
  ) async throws {
    var (waiting, end) = (plan.owners, ContinuousClock.now + Self.confirmationLimit)
    var progressLine = RehearsalProgress(total: plan.owners)
    while true {
      _ = try await sender.deliverDueNotifications()
      let progress = try await ledger.exports.importProgress()
      let isOver = progress.waiting == 0
      if isOver, try await !ledger.jobs.hasBacklog(at: stage.simulation.now) { return }
      guard ContinuousClock.now < end else {
        throw Failure(
          description: isOver
            ? "The jobs of Apple's notifications are not finished."
            : "Apple is not asked about \(progress.waiting) imported original transactions.")
      }
      if let line = progressLine.line(waiting: progress.waiting, at: .now) {
        printer.remark(line)
      }
      if !isOver {
        let confirmed = max(0, waiting - progress.waiting)
        stage.simulation.advance(
          by: confirmed > 0
            ? .hours(1) * (Double(confirmed) / Double(Self.pollsPerHour)) : Self.clockStep)
        try stage.hand.move(to: stage.simulation.now)
        if confirmed == 0 { ledger.notifier.notify(.jobs) }
      }
      if progress.waiting < waiting {
        (waiting, end) = (progress.waiting, .now + Self.confirmationLimit)
      }
      try await Task.sleep(for: Self.confirmationPause)
    }
  }

  /// The default of `TENURE_POLLS_PER_HOUR`.
  private static let pollsPerHour = 144_000
  /// The clock's advance when nothing was confirmed, after which failed requests are due again.
  private static let clockStep: Duration = .seconds(15)
  /// The time between two counts, each of which reads every imported row.
  private static let confirmationPause: Duration = .milliseconds(500)
  /// The real time for which the number of unconfirmed owners may stay the same.
  private static let confirmationLimit: Duration = .seconds(120)

  /// Compares every account's entitlements with the old backend's.
  private func compareWithOldBackend(_ stage: Stage, _ week: Year) async throws {
    week.oracle.receive()
    let file = stage.directory.appending(path: "answers.csv")
    let truth = week.oracle.accounts(
      of: week.residents.map(\.appleID), at: stage.simulation.now)
    try stage.owners.writeAnswers(truth, to: file)
    let outcome = try await stage.programs.run([
      "compare", file.path(percentEncoded: false), "--format", "csv",
    ])
    try Self.check(outcome, "tenure compare")
    printer.check(
      true, "tenure compare finds no difference from the old backend.")
  }

  // MARK: The week

  private func live(
    _ week: Year, _ stage: Stage, _ tenure: TenureClient, _ ledger: Ledger,
    _ database: ConnectionPool
  ) async throws -> Bool {
    let probe = RehearsalProbe(tenure, owners: stage.owners, seed: plan.seed)
    let probing = Task { await probe.ask() }
    defer { probing.cancel() }
    let incidents = RehearsalIncidents(
      plan, servers: stage.servers, programs: stage.programs, tenure: tenure, database: database,
      printer: printer, logger: logger)
    let diary = YearDiary(printer: printer)
    var random = SplitMix64(seed: plan.seed &+ 1)
    var changes = 0
    do {
      try await week.live { week in
        if week.now < week.plan.rest { changes += stage.owners.act(in: stage.simulation, &random) }
        try await incidents.begin(at: week.now)
      }
    } catch {
      try? await incidents.end()
      throw error
    }
    try await incidents.end()
    probing.cancel()
    await probing.value
    let comparison = try await week.compare(with: ledger)
    printer.heading("4. Results")
    let faults = await probe.faults
    printer.check(
      faults.isEmpty,
      "\(await probe.answers) entitlement reads of accounts without changes throughout "
        + "the week: \(faults.count) wrong answers. The longest took "
        + "\(await probe.longestWait.inMilliseconds) ms.")
    for fault in faults.prefix(Self.reportedFaults) { printer.remark("✗ \(fault)") }
    let isComplete = await incidents.isComplete
    printer.remark(
      "\(changes) of the owners turned auto-renew off or were refunded.")
    printer.check(
      isComplete, "The schema was upgraded, the database failed over, and a worker was killed.")
    diary.close(comparison)
    return comparison.isClean && faults.isEmpty && isComplete
  }

  private static let reportedFaults = 20

  /// - Throws: ``Failure`` with the program's output if it did not succeed.
  private static func check(_ outcome: ChildProcess.Outcome, _ what: String) throws {
    guard outcome.status != 0 else { return }
    throw Failure(
      description: "\(what) ended with \(outcome.status): \(outcome.errors.suffix(2000))"
        + "\(outcome.output.suffix(2000))")
  }

  private static func seconds(since begin: ContinuousClock.Instant) -> Int64 {
    (ContinuousClock.now - begin).components.seconds
  }
}

extension YearPlan {
  fileprivate func beginning(at moment: Timestamp) -> YearPlan {
    var plan = self
    plan.start = moment
    return plan
  }
}

/// The size of a rehearsal and the times of its incidents.
package struct RehearsalPlan: Sendable {
  /// The same seed gives the same customers.
  var seed: UInt64
  /// The number of customers of the old backend.
  var owners: Int
  /// The number of customers who join in the week after the migration.
  var newcomers: Int

  /// A Monday, in the morning.
  let switchDay = Timestamp(CalendarDate(year: 2025, month: 1, day: 6)) + .hours(8)

  package init(seed: UInt64, owners: Int, newcomers: Int) {
    self.seed = seed
    self.owners = owners
    self.newcomers = newcomers
  }
  /// The time of the owners' first purchases.
  var past: Timestamp { switchDay - .days(100) }

  /// Wednesday: the schema is upgraded without downtime.
  var upgrade: Timestamp { switchDay + .days(2) }
  /// Thursday: the database fails over.
  var failover: Timestamp { switchDay + .days(3) }
  /// Friday: a worker is killed.
  var murder: Timestamp { switchDay + .days(4) }

  /// The week, and the time after it in which late notifications arrive.
  var week: YearPlan {
    var plan = YearPlan(seed: seed, customers: newcomers, start: switchDay)
    plan.length = CalendarPeriod(days: 7 + Int(YearPlan.restLength / .days(1)))
    // After a lost response the app opens another order, and the first one stays open.
    plan.opensOrders = false
    plan.firstVisits = .days(5)
    plan.hoursBetweenVisits = 6...72
    plan.hasBadDays = false
    return plan
  }
}

/// The week's incidents, each begun while the programs have work to do.
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

  var isComplete: Bool { coming.isEmpty && current == nil }

  /// Starts the next incident if it is due, without waiting for it.
  ///
  /// - Throws: The error of the previous incident.
  func begin(at moment: Timestamp) async throws {
    try await end()
    guard let next = coming.first, next.at <= moment else { return }
    coming.removeFirst()
    current = Task { try await happen(next.what, at: moment) }
  }

  /// Waits until the current incident is over.
  func end() async throws {
    try await current?.value
    current = nil
  }

  /// A schema step that is compatible with programs of the current version.
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
        "The schema was upgraded in \(upgraded) ms while the programs were running; then they were "
          + "restarted one by one.")
    case .failover:
      try await servers.failOver()
      let promoted = Self.milliseconds(since: begin)
      // The first acknowledged write.
      _ = try await tenure.account("witness")
      printer.event(
        moment,
        "The database was killed; its standby took over after \(promoted) ms, and the first write "
          + "was acknowledged \(Self.milliseconds(since: begin)) ms after the loss.")
    case .murder:
      try await programs.killWorker()
      printer.event(moment, "A worker was killed in the middle of its work and replaced.")
    }
  }

  private static func milliseconds(since begin: ContinuousClock.Instant) -> Int64 {
    (ContinuousClock.now - begin).inMilliseconds
  }
}

/// Reads entitlements continuously, of accounts that always have some and of some that never do.
actor RehearsalProbe {
  private static let pause: Duration = .milliseconds(5)

  private let tenure: TenureClient
  private let owners: RehearsalOwners
  private var random: SplitMix64
  private(set) var answers = 0
  /// One sentence for each wrong answer.
  private(set) var faults: [String] = []
  private(set) var longestWait: Duration = .zero

  init(_ tenure: TenureClient, owners: RehearsalOwners, seed: UInt64) {
    self.tenure = tenure
    self.owners = owners
    random = SplitMix64(seed: seed)
  }

  func ask() async {
    while !Task.isCancelled {
      let isSteady = random.chance(0.7)
      guard let account = random.choice(of: isSteady ? owners.steady : owners.former) else {
        return
      }
      let begin = ContinuousClock.now
      do {
        let found = try await tenure.entitlements(of: account)
        longestWait = max(longestWait, ContinuousClock.now - begin)
        answers += 1
        if found.isEmpty == isSteady {
          faults.append("\(account) \(isSteady ? "lost" : "gained") access for a moment")
        }
      } catch {
        guard !Task.isCancelled else { return }
        faults.append("\(account) got no answer: \(error)")
      }
      try? await Task.sleep(for: Self.pause)
    }
  }
}
