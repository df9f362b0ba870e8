import BackgroundJobs
import HTTPAPI
import LedgerStorage
import Logging
import Postgres
import Reports
import Secrets
import Subscriptions

/// Checks the database's connectivity, configuration and schema, and the backlog of work.
extension Doctor {
  private static let testedVersions = 15...18
  /// The age of due work from which it counts as late.
  private static let lateAfter: Duration = .minutes(5)
  private static let membership =
    "GRANT tenure_program TO the role in DATABASE_URL. If tenure_program does not exist, "
    + "`tenure migrate` creates it or says how."

  func databaseFindings() async -> [DoctorFinding] {
    guard let url = settings.databaseURL else {
      guard let ledger else { return [] }
      return await privateFindings(ledger)
    }
    var findings: [DoctorFinding] = []
    for host in DatabaseHost.hosts(in: url) { findings.append(await reach(host)) }
    findings += await withPool(url) { pool in
      do {
        var findings = try await examine(pool)
        let schema = try await schema(pool)
        findings += schema
        if !schema.contains(where: { $0.verdict == .fault }) {
          findings += try await work(Ledger(database: pool))
        }
        return findings
      } catch let error as PostgresError where error.sqlState == .insufficientPrivilege {
        return [
          .fault(
            "database.role", "The role lacks a privilege: \(error.message).",
            remedy: Self.membership)
        ]
      } catch {
        return [
          .fault(
            "database", "\(error).",
            remedy: "Check that it runs, that DATABASE_URL has the right host, port, role and "
              + "database, and that pg_hba.conf allows this machine.")
        ]
      }
    }
    if let url = settings.readDatabaseURL { findings.append(await replica(url)) }
    if let url = settings.listenDatabaseURL { findings.append(await listener(url)) }
    if let url = settings.migrationDatabaseURL { findings.append(await owner(url)) }
    return findings
  }

  /// Checks that NOTIFY arrives at the address for LISTEN.
  private func listener(_ url: Secret<String>) async -> DoctorFinding {
    let check = "database.listen"
    return await connect(
      to: url, check, failing: "LISTEN does not work, so changes are noticed seconds later",
      remedy: "Set TENURE_LISTEN_DATABASE_URL to PostgreSQL's own address."
    ) { pool in
      guard try await !DatabaseCheck(pool).isStandby else {
        return .warning(
          check, "TENURE_LISTEN_DATABASE_URL names a standby, where LISTEN does not work.",
          remedy: "Set it to the primary.")
      }
      guard try await !DatabaseCheck.sharesSessions(pool) else {
        return .warning(
          check, "TENURE_LISTEN_DATABASE_URL names a PgBouncer, where LISTEN does not work.",
          remedy: "Set it to PostgreSQL's own address.")
      }
      return .ok(check, "LISTEN uses a direct connection.")
    }
  }

  private func owner(_ url: Secret<String>) async -> DoctorFinding {
    let check = "database.owner"
    return await connect(
      to: url, check, failing: "The schema's owner can't connect",
      remedy: "Check TENURE_MIGRATION_DATABASE_URL, which `tenure migrate` uses."
    ) { pool in
      try await SchemaMigrator(database: pool, logger: logger).roleOwnsSchema()
        ? .ok(check, "The schema's owner can connect.")
        : .warning(
          check, "The role in TENURE_MIGRATION_DATABASE_URL does not own the schema.",
          remedy: "Set it to the owner: otherwise `tenure migrate` can't change anything.")
    }
  }

  private func replica(_ url: Secret<String>) async -> DoctorFinding {
    let check = "database.replica"
    return await connect(
      to: url, check, failing: "The replica is unreachable, so DATABASE_URL answers reads",
      remedy: "Check that it runs and that TENURE_READ_DATABASE_URL names it."
    ) { pool in
      try await DatabaseCheck(pool).isStandby
        ? .ok(check, "A standby answers reads.")
        : .warning(
          check, "TENURE_READ_DATABASE_URL names a primary, so DATABASE_URL answers reads.",
          remedy: "Set it to a standby, or unset it.")
    }
  }

  private func reach(_ host: DatabaseHost) async -> DoctorFinding {
    let check = "database.host"
    return await connect(
      to: host.uri, check, failing: "\(host.name) is unreachable",
      remedy: "Fix it or remove it from DATABASE_URL: a failover to it would fail."
    ) { pool in
      let role = try await DatabaseCheck(pool).isStandby ? "standby" : "primary"
      return .ok(check, "\(host.name) is reachable (\(role)).")
    }
  }

  /// Runs a check on a database; an error is a warning.
  private func connect(
    to uri: Secret<String>, _ check: String, failing found: String, remedy: String,
    _ body: (ConnectionPool) async throws -> DoctorFinding
  ) async -> DoctorFinding {
    await withPool(uri) { pool in
      do {
        return try await body(pool)
      } catch {
        return .warning(check, "\(found): \(error).", remedy: remedy)
      }
    }
  }

  private func withPool<Value>(
    _ uri: Secret<String>, _ body: (ConnectionPool) async -> Value
  ) async -> Value {
    var configuration = ConnectionPool.Configuration(uri: uri)
    configuration.usesPreparedStatements = settings.usesPreparedStatements
    // Two to compare sessions, and one that the pool reserves.
    configuration.connectionLimit = 3
    let pool = ConnectionPool(configuration: configuration, logger: logger)
    let value = await body(pool)
    await pool.close()
    return value
  }

  private func remedy(_ error: LedgerError) -> String {
    if case .schemaVersion(let found?, let needed) = error, found > needed {
      return "Update Tenure: a newer version has upgraded the schema."
    }
    return "Run `tenure migrate` with the schema's owner in TENURE_MIGRATION_DATABASE_URL."
  }

  // MARK: The server

  private func examine(_ pool: ConnectionPool) async throws -> [DoctorFinding] {
    // Connects first, so that the time to connect does not count as skew.
    let sharesSessions = try await DatabaseCheck.sharesSessions(pool)
    let (before, start) = (Timestamp.now, ContinuousClock.now)
    let server = try await DatabaseCheck(pool)
    let took = ContinuousClock.now - start
    let skew = server.time - (before + took / 2)
    var findings = [
      version(server),
      Doctor.clockFinding("database.clock", of: "PostgreSQL", skew: skew, precision: took / 2),
      durability(server), autovacuum(server), compiling(server),
      pooling(server, sharesSessions: sharesSessions),
    ]
    if server.isPooled, !settings.usesPreparedStatements, settings.listenDatabaseURL == nil {
      findings.append(
        .warning(
          "database.listen",
          "LISTEN does not work through a PgBouncer, so changes are noticed seconds later.",
          remedy: "Set TENURE_LISTEN_DATABASE_URL to PostgreSQL's own address."))
    }
    if server.isStandby {
      findings.append(
        .fault(
          "database.standby", "The database is a read-only standby.",
          remedy: "Set DATABASE_URL to the primary, or to all hosts with "
            + "target_session_attrs=read-write."))
    }
    return findings
  }

  private func version(_ server: DatabaseCheck) -> DoctorFinding {
    let (check, found) = ("database.version", "PostgreSQL \(server.version).")
    let major = server.versionNumber / 10_000
    if major < Self.testedVersions.lowerBound {
      return .fault(
        check, found,
        remedy: "Upgrade to PostgreSQL \(Self.testedVersions.upperBound). The schema requires "
          + "\(Self.testedVersions.lowerBound) or later.")
    }
    if major > Self.testedVersions.upperBound {
      return .warning(check, found, remedy: "Update Tenure: this version was not tested with it.")
    }
    return .ok(check, found)
  }

  private func pooling(_ server: DatabaseCheck, sharesSessions: Bool) -> DoctorFinding {
    let check = "database.prepared_statements"
    let off = "TENURE_DATABASE_PREPARED_STATEMENTS=off"
    return switch (settings.usesPreparedStatements, server.isPooled) {
    case (true, _) where sharesSessions:
      .fault(
        check, "Prepared statements are on, behind a PgBouncer in transaction mode.",
        remedy: "Set \(off): no program starts otherwise.")
    case (true, true):
      .warning(
        check, "Prepared statements are on, behind a PgBouncer.",
        remedy: "Set \(off) if it runs in transaction mode; session mode is fine.")
    case (false, true): .ok(check, "Prepared statements are off, behind a PgBouncer.")
    case (false, false):
      .warning(
        check, "Prepared statements are off, without a PgBouncer.",
        remedy: "Unset TENURE_DATABASE_PREPARED_STATEMENTS: every execution is planned again.")
    case (true, false): .ok(check, "Prepared statements are on.")
    }
  }

  private func durability(_ server: DatabaseCheck) -> DoctorFinding {
    let check = "database.durability"
    let off = server.durability.filter { $0.value == "off" }.map { "\($0.setting) is off" }
    return off.isEmpty
      ? .ok(check, "Committed data survives a crash.")
      : .warning(
        check, "A crash can lose committed data: \(off.joined(separator: ", ")).",
        remedy: "Reset these in the server's configuration and for the role, then reload.")
  }

  private func autovacuum(_ server: DatabaseCheck) -> DoctorFinding {
    server.hasAutovacuum
      ? .ok("database.autovacuum", "Autovacuum is on.")
      : .fault(
        "database.autovacuum", "Autovacuum is off.",
        remedy: "Set autovacuum = on: the job table is updated constantly.")
  }

  private func compiling(_ server: DatabaseCheck) -> DoctorFinding {
    server.compilesStatements
      ? .warning(
        "database.jit", "JIT compilation is on.",
        remedy: "Set jit = off for the database: Tenure's statements take less time than compiling "
          + "them.")
      : .ok("database.jit", "JIT compilation is off.")
  }

  // MARK: The schema

  private func schema(_ pool: ConnectionPool) async throws -> [DoctorFinding] {
    let migrator = SchemaMigrator(database: pool, reports: ReportSQL(Report.sql), logger: logger)
    var findings: [DoctorFinding]
    do {
      switch try await migrator.check() {
      case .current:
        findings = [
          .ok("database.schema", "The schema has version \(SchemaMigrator.currentVersion)."),
          try await reports(migrator),
        ]
      case .ahead(let version):
        findings = [
          .warning(
            "database.schema", SchemaStatus.sentence(on: version),
            remedy: "Restart `tenure serve` and `tenure work` with the new version of Tenure.")
        ]
      }
    } catch let error as LedgerError {
      return [.fault("database.schema", "\(error)", remedy: remedy(error))]
    }
    findings += [try await role(migrator), try await distribution(pool)]
    return findings
  }

  private func reports(_ migrator: SchemaMigrator) async throws -> DoctorFinding {
    let check = "database.reports"
    return try await migrator.hasCurrentReports()
      ? .ok(check, "The reports are those of this program.")
      : .warning(
        check, "The reports in the database are not those of this program.",
        remedy: "Run `tenure migrate`.")
  }

  private func role(_ migrator: SchemaMigrator) async throws -> DoctorFinding {
    let check = "database.role"
    let outOfReach = try await migrator.tablesOutOfReach()
    guard outOfReach.isEmpty else {
      let others = outOfReach.count > 3 ? " and \(outOfReach.count - 3) more tables" : ""
      return .fault(
        check, "The role lacks access to \(outOfReach.prefix(3).joined(separator: ", "))\(others).",
        remedy: Self.membership)
    }
    guard try await !migrator.roleCanRewriteLedger() else {
      return .warning(
        check, "The role can change or delete ledger entries.",
        remedy: "Use a login IN ROLE tenure_program in DATABASE_URL, and the owner in "
          + "TENURE_MIGRATION_DATABASE_URL.")
    }
    return .ok(check, "The role can append to the ledger but not change it.")
  }

  private func distribution(_ pool: ConnectionPool) async throws -> DoctorFinding {
    let check = "database.distribution"
    let distributor = SchemaDistributor(database: pool, logger: logger)
    do {
      let tables = try await distributor.check()
      guard tables > 0 else { return .ok(check, "The tables are on one server.") }
      let refused = try await distributor.tryStatements(at: settings.clock.now())
      guard refused.isEmpty else {
        let messages = refused.sorted { $0.key < $1.key }.map { "\($0.key) (\($0.value))" }
        return .fault(
          check, "This Citus refuses \(messages.joined(separator: ", ")).",
          remedy: "Run `tenure migrate --distributed`. If it lists them, too, use the version of "
            + "Citus that the article on growing names.")
      }
      return .ok(
        check,
        "All \(tables) tables are distributed with Citus, which answers all reports and claims "
          + "jobs.")
    } catch let error as DistributionError {
      return .fault(check, "\(error)", remedy: "Run `tenure migrate --distributed`.")
    }
  }

  // MARK: The work

  private func privateFindings(_ ledger: Ledger) async -> [DoctorFinding] {
    do {
      return try await work(ledger)
    } catch {
      return [
        .fault(
          "database", "\(error).",
          remedy: "Restart `tenure serve`, which runs the private database.")
      ]
    }
  }

  private func work(_ ledger: Ledger) async throws -> [DoctorFinding] {
    let now = settings.clock.now()
    let reading = try await ledger.maintenance.reading(at: now)
    return [
      // The server of a private database is the one that asks.
      settings.databaseURL == nil ? nil : heartbeat(reading, now), backlog(reading, now),
      parked(reading), webhookLag(reading, now),
      try await notifications(ledger, now), try await bloat(ledger),
    ].compactMap(\.self)
  }

  private func heartbeat(_ reading: LedgerReading, _ now: Timestamp) -> DoctorFinding {
    let check = "work.server"
    guard let last = reading.lastHeartbeat, now - last < Heartbeat.longestPause else {
      return .warning(
        check,
        reading.lastHeartbeat.map { "No server is running; the last heartbeat was at \($0)." }
          ?? "No server has ever run.",
        remedy: "Start `tenure serve`: Apple's notifications are not received.")
    }
    return .ok(check, "The last server heartbeat was at \(last).")
  }

  private func backlog(_ reading: LedgerReading, _ now: Timestamp) -> DoctorFinding {
    let check = "work.backlog"
    let late = reading.backlogs.compactMapValues(\.since).filter { now - $0.value > Self.lateAfter }
    guard let (queue, since) = late.min(by: { $0.value < $1.value }) else {
      return .ok(check, "Due jobs start in time.")
    }
    return .warning(
      check, "Jobs (\(queue.rawValue.replacing("_", with: " "))) have been due since \(since).",
      remedy: "Check that `tenure work` runs with the same settings; `tenure jobs` lists jobs.")
  }

  private func parked(_ reading: LedgerReading) -> DoctorFinding {
    let check = "work.parked"
    guard let since = reading.discardedJobs.values.compactMap(\.since).min() else {
      return .ok(check, "No parked jobs.")
    }
    let kinds = reading.discardedJobs.map { "\($0.value.count) \($0.key)" }.sorted()
    return .warning(
      check, "Parked jobs, since \(since): \(kinds.joined(separator: ", ")).",
      remedy: "`tenure jobs` shows the reasons; `tenure jobs retry` retries them.")
  }

  private func webhookLag(_ reading: LedgerReading, _ now: Timestamp) -> DoctorFinding? {
    guard settings.webhook != nil else { return nil }
    let check = "work.webhook"
    if let since = reading.waitingDeliveries.since, now - since > Self.lateAfter {
      return .warning(
        check, "Webhook deliveries have been pending since \(since).",
        remedy: "`tenure webhooks` shows the receiver's responses.")
    }
    guard let since = reading.parkedDeliveries.since else {
      return .ok(check, "Webhook deliveries are on time.")
    }
    return .warning(
      check, "Parked webhook deliveries, since \(since): \(reading.parkedDeliveries.count).",
      remedy: "Fix the receiver, then run `tenure webhooks redeliver --parked`.")
  }

  private func notifications(_ ledger: Ledger, _ now: Timestamp) async throws -> DoctorFinding {
    let check = "work.notifications"
    let examination = try await ledger.maintenance.examineNotifications(at: now)
    guard let last = examination.lastArrival else {
      return .warning(
        check, "No notification from Apple has ever arrived.",
        remedy: "Enter this server's /v1/appstore/notifications in App Store Connect for both "
          + "environments, then run `tenure app-store test-notification --wait`.")
    }
    guard examination.missed == 0 else {
      return .warning(
        check,
        "Notifications missed in the last seven days: \(examination.missed). They were recovered "
          + "from Apple's history.",
        remedy: "Check the path from Apple to `tenure serve`; `tenure report intake --items` "
          + "lists them.")
    }
    guard let compared = examination.lastComparison else {
      if settings.serverAPIKey != nil,
        try await ledger.maintenance.schemaChangedAt() + .days(1) > now
      {
        return .ok(
          check,
          "The last notification arrived at \(last). Apple's history is compared within a day of "
            + "the installation.")
      }
      return .warning(
        check,
        "The last notification arrived at \(last). Apple's history was never compared, so missed "
          + "ones are unknown.",
        remedy: settings.serverAPIKey == nil
          ? "Set the key for the App Store Server API."
          : "The worker compares it every day: check that `tenure work` runs with the key for the "
            + "App Store Server API; `tenure jobs` lists its jobs.")
    }
    return .ok(
      check,
      "The last notification arrived at \(last). Apple's history was compared at \(compared).")
  }

  private func bloat(_ ledger: Ledger) async throws -> DoctorFinding {
    let check = "database.vacuum"
    let tables = try await ledger.maintenance.bloatedTables()
    return tables.isEmpty
      ? .ok(check, "PostgreSQL removes deleted rows in time.")
      : .warning(
        check, "Deleted rows are not removed from: \(tables.joined(separator: ", ")).",
        remedy: "VACUUM them, and look for long-running transactions, which block vacuum.")
  }
}
