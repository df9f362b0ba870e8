import BackgroundJobs
import LedgerStorage
import Logging
import Postgres
import Reports
import Secrets
import Subscriptions

/// Whether the database can be reached, is one that Tenure works with, and how the work stands.
extension Doctor {
  /// The versions that Tenure is tested with.
  private static let testedVersions = 15...18
  /// After so long somebody should have taken up what is due.
  private static let lateAfter: Duration = .minutes(5)
  private static let membership =
    "Make it a member: GRANT tenure_program TO the role that DATABASE_URL names. Where there is no "
    + "tenure_program, `tenure migrate` makes it, or says who has to."

  func databaseFindings() async -> [DoctorFinding] {
    guard let url = settings.databaseURL else { return [] }
    var findings: [DoctorFinding] = []
    for host in DatabaseHost.hosts(in: url) { findings.append(await reach(host)) }
    findings += await withPool(url) { pool in
      do {
        var findings = try await examine(pool)
        let schema = try await schema(pool)
        findings += schema
        if !schema.contains(where: { $0.verdict == .fault }) {
          findings += try await work(pool)
        }
        return findings
      } catch let error as PostgresError where error.sqlState == .insufficientPrivilege {
        return [forbidden(error)]
      } catch {
        return [unreachable("database", error)]
      }
    }
    if let url = settings.readDatabaseURL { findings.append(await replica(url)) }
    if let url = settings.listenDatabaseURL { findings.append(await listener(url)) }
    if let url = settings.migrationDatabaseURL { findings.append(await owner(url)) }
    return findings
  }

  /// Whether news can be heard where it is listened for.
  private func listener(_ url: Secret<String>) async -> DoctorFinding {
    let check = "database.listen"
    return await withPool(url) { pool in
      do {
        let server = try await DatabaseExamination(pool)
        guard !server.isStandby else {
          return .warning(
            check, "TENURE_LISTEN_DATABASE_URL leads to a standby, where no news is told.",
            remedy: "Name the primary in it.")
        }
        let isPooled = try await DatabaseExamination.sharesSessions(pool)
        guard !isPooled else {
          return .warning(
            check, "TENURE_LISTEN_DATABASE_URL leads through a PgBouncer, where no news is heard.",
            remedy: "Name PostgreSQL's own address in it.")
        }
        return .ok(check, "News is listened for at the server itself.")
      } catch {
        return .warning(
          check, "No news can be heard, it is found seconds later: \(error).",
          remedy: "See whether TENURE_LISTEN_DATABASE_URL names PostgreSQL's own address.")
      }
    }
  }

  /// Whether the schema's owner can be reached as such.
  private func owner(_ url: Secret<String>) async -> DoctorFinding {
    let check = "database.owner"
    return await withPool(url) { pool in
      do {
        guard try await SchemaMigrator(database: pool, logger: logger).roleOwnsSchema() else {
          return .warning(
            check, "The role that TENURE_MIGRATION_DATABASE_URL names does not own the schema.",
            remedy: "Name its owner there: `tenure migrate` can change nothing otherwise.")
        }
        return .ok(check, "The schema's owner can be reached.")
      } catch {
        return .warning(
          check, "The schema's owner can't be reached: \(error).",
          remedy: "See whether TENURE_MIGRATION_DATABASE_URL is right; `tenure migrate` uses it.")
      }
    }
  }

  /// Whether what is to answer reads can.
  private func replica(_ url: Secret<String>) async -> DoctorFinding {
    let check = "database.replica"
    return await withPool(url) { pool in
      do {
        guard try await DatabaseExamination(pool).isStandby else {
          return .warning(
            check, "TENURE_READ_DATABASE_URL leads to a primary, and the reads go to DATABASE_URL.",
            remedy: "Name a standby in it, or unset it.")
        }
        return .ok(check, "A standby answers reads.")
      } catch {
        return .warning(
          check, "The replica can't be asked, and the reads go to DATABASE_URL: \(error).",
          remedy: "See whether it runs, and whether TENURE_READ_DATABASE_URL names it.")
      }
    }
  }

  private func withPool<Value>(
    _ uri: Secret<String>, _ body: (ConnectionPool) async -> Value
  ) async -> Value {
    var configuration = ConnectionPool.Configuration(uri: uri)
    configuration.usesPreparedStatements = settings.usesPreparedStatements
    // Two to be compared, and one that is never given away.
    configuration.connectionLimit = 3
    let pool = ConnectionPool(configuration: configuration, logger: logger)
    let value = await body(pool)
    await pool.close()
    return value
  }

  private func unreachable(_ check: String, _ error: any Error) -> DoctorFinding {
    .fault(
      check, "\(error).",
      remedy: "See whether it runs, whether DATABASE_URL names its host, port, role and database, "
        + "and whether pg_hba.conf lets this machine in.")
  }

  private func forbidden(_ error: PostgresError) -> DoctorFinding {
    .fault(
      "database.role", "The role may not do what the programs do: \(error.message).",
      remedy: Self.membership)
  }

  private func remedy(_ error: LedgerError) -> String {
    if case .schemaVersion(let found?, let needed) = error, found > needed {
      return "Update Tenure: another one has brought the schema further."
    }
    return "Run `tenure migrate`, with the schema's owner in TENURE_MIGRATION_DATABASE_URL."
  }

  /// Whether one of several hosts answers, whatever its part.
  private func reach(_ host: DatabaseHost) async -> DoctorFinding {
    let check = "database.host"
    return await withPool(host.uri) { pool in
      do {
        let isStandby = try await DatabaseExamination(pool).isStandby
        return .ok(check, "\(host.name) answers, as a \(isStandby ? "standby" : "primary").")
      } catch {
        return .warning(
          check, "\(host.name) does not answer: \(error).",
          remedy: "Mend it, or take it out of DATABASE_URL: a failover would find nobody there.")
      }
    }
  }

  // MARK: The server

  private func examine(_ pool: ConnectionPool) async throws -> [DoctorFinding] {
    // Warm: connecting would count as skew.
    let sharesSessions = try await DatabaseExamination.sharesSessions(pool)
    let (before, start) = (Timestamp.now, ContinuousClock.now)
    let server = try await DatabaseExamination(pool)
    let took = ContinuousClock.now - start
    let skew = server.time - (before + took / 2)
    return [
      version(server),
      Doctor.clockFinding("database.clock", of: "PostgreSQL", skew: skew, precision: took / 2),
      durability(server), autovacuum(server), compiling(server),
    ] + pooling(server, sharesSessions: sharesSessions) + standby(server)
  }

  private func version(_ server: DatabaseExamination) -> DoctorFinding {
    let (check, found) = ("database.version", "PostgreSQL \(server.version).")
    let major = server.versionNumber / 10_000
    if major < Self.testedVersions.lowerBound {
      return .fault(
        check, found,
        remedy: "Upgrade to PostgreSQL \(Self.testedVersions.upperBound): what is "
          + "older than \(Self.testedVersions.lowerBound) lacks what the schema needs.")
    }
    if major > Self.testedVersions.upperBound {
      return .warning(
        check, found,
        remedy: "It is newer than this version of Tenure was tested with: update Tenure.")
    }
    return .ok(check, found)
  }

  private func pooling(_ server: DatabaseExamination, sharesSessions: Bool) -> [DoctorFinding] {
    let check = "database.prepared_statements"
    let off = "TENURE_DATABASE_PREPARED_STATEMENTS=off"
    switch (settings.usesPreparedStatements, server.isPooled) {
    case (true, _) where sharesSessions:
      return [
        .fault(
          check,
          "A PgBouncer that pools transactions stands between, and prepared statements are on.",
          remedy: "Set \(off): no program starts with them.")
      ]
    case (true, true):
      return [
        .warning(
          check, "A PgBouncer stands between, and prepared statements are on.",
          remedy: "Set \(off) if it pools transactions; if it pools sessions, all is well.")
      ]
    case (false, true):
      return [.ok(check, "A PgBouncer stands between, and prepared statements are off.")]
        + notListening()
    case (false, false):
      return [
        .warning(
          check, "Prepared statements are off, and no PgBouncer stands between.",
          remedy: "Unset TENURE_DATABASE_PREPARED_STATEMENTS: every statement is planned anew.")
      ]
    case (true, false): return [.ok(check, "Prepared statements are on.")]
    }
  }

  private func notListening() -> [DoctorFinding] {
    guard settings.listenDatabaseURL == nil else { return [] }
    return [
      .warning(
        "database.listen",
        "Through a PgBouncer no news is heard: it is looked for, and found seconds later.",
        remedy: "Set TENURE_LISTEN_DATABASE_URL to PostgreSQL's own address.")
    ]
  }

  private func durability(_ server: DatabaseExamination) -> DoctorFinding {
    let check = "database.durability"
    let off = server.durability.filter { $0.value == "off" }.map { "\($0.setting) is off" }
    guard off.isEmpty else {
      return .warning(
        check, "A crash can lose what was confirmed: \(off.joined(separator: ", ")).",
        remedy: "Reset each in the server's configuration and for the role, then reload.")
    }
    return .ok(check, "What is confirmed outlasts a crash.")
  }

  private func autovacuum(_ server: DatabaseExamination) -> DoctorFinding {
    let check = "database.autovacuum"
    guard server.hasAutovacuum else {
      return .fault(
        check, "Autovacuum is off.",
        remedy: "Set autovacuum = on: the queue is a table that is updated all the time.")
    }
    return .ok(check, "Autovacuum is on.")
  }

  private func compiling(_ server: DatabaseExamination) -> DoctorFinding {
    let check = "database.jit"
    guard !server.compilesStatements else {
      return .warning(
        check, "PostgreSQL compiles statements that it takes for dear (jit = on).",
        remedy: "Set jit = off for the database: Tenure's statements run for less time than "
          + "compiling one takes.")
    }
    return .ok(check, "Statements are not compiled.")
  }

  private func standby(_ server: DatabaseExamination) -> [DoctorFinding] {
    guard server.isStandby else { return [] }
    return [
      .fault(
        "database.standby", "The database is a standby, which takes no writes.",
        remedy: "Name the primary in DATABASE_URL, or all hosts with "
          + "target_session_attrs=read-write.")
    ]
  }

  // MARK: The schema

  private func schema(_ pool: ConnectionPool) async throws -> [DoctorFinding] {
    let migrator = SchemaMigrator(
      database: pool, reports: ReportSQL(Report.sql), logger: logger)
    let standing: SchemaStanding
    do {
      standing = try await migrator.check()
    } catch let error as LedgerError {
      return [
        .fault("database.schema", "\(error)", remedy: remedy(error))
      ]
    }
    return [finding(on: standing)]
      + (standing == .current ? [try await reports(migrator)] : [])
      + [try await role(migrator), try await distribution(pool)]
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
        check,
        "The role can't read or add to \(outOfReach.prefix(3).joined(separator: ", "))\(others).",
        remedy: Self.membership)
    }
    guard try await !migrator.roleCanRewriteLedger() else {
      return .warning(
        check, "The role could change or delete entries of the ledger.",
        remedy: "Give the programs a login of their own, IN ROLE tenure_program, and the owner's "
          + "URL to TENURE_MIGRATION_DATABASE_URL.")
    }
    return .ok(check, "The role can append to the ledger, and change nothing in it.")
  }

  private func finding(on standing: SchemaStanding) -> DoctorFinding {
    let check = "database.schema"
    return switch standing {
    case .current: .ok(check, "The schema is of version \(SchemaMigrator.currentVersion).")
    case .ahead(let version):
      .warning(
        check, SchemaStanding.sentence(on: version),
        remedy: "Restart `tenure serve` and `tenure work` with the new Tenure.")
    }
  }

  private func distribution(_ pool: ConnectionPool) async throws -> DoctorFinding {
    let check = "database.distribution"
    do {
      let tables = try await SchemaDistributor(database: pool, logger: logger).check()
      return .ok(
        check,
        tables == 0
          ? "The tables are on one server." : "All \(tables) tables are distributed with Citus.")
    } catch let error as DistributionError {
      return .fault(check, "\(error)", remedy: "Run `tenure migrate --distributed`.")
    }
  }

  // MARK: The work

  private func work(_ pool: ConnectionPool) async throws -> [DoctorFinding] {
    let ledger = Ledger(database: pool)
    let now = settings.clock.now()
    let reading = try await ledger.reading(at: now)
    return [heartbeat(reading, now), backlog(reading, now), parked(reading)]
      + webhookLag(reading, now)
      + [try await notifications(ledger, now), try await bloat(ledger)]
  }

  private func heartbeat(_ reading: LedgerReading, _ now: Timestamp) -> DoctorFinding {
    let check = "work.server"
    guard let last = reading.lastHeartbeat, now - last < Heartbeat.longestPause else {
      return .warning(
        check,
        reading.lastHeartbeat.map { "The last server was alive at \($0)." }
          ?? "No server has ever run.",
        remedy: "Start `tenure serve`: Apple's notifications find nobody.")
    }
    return .ok(check, "A server was alive at \(last).")
  }

  private func backlog(_ reading: LedgerReading, _ now: Timestamp) -> DoctorFinding {
    let check = "work.backlog"
    let late = reading.backlogs.compactMapValues(\.since).filter { now - $0.value > Self.lateAfter }
    guard let (lane, since) = late.min(by: { $0.value < $1.value }) else {
      return .ok(check, "What is due is taken up in time.")
    }
    return .warning(
      check, "Jobs of the lane \(lane.rawValue) are due since \(since), and nobody does them.",
      remedy:
        "See that a `tenure work` runs, with the same settings; `tenure jobs` shows the queue.")
  }

  private func parked(_ reading: LedgerReading) -> DoctorFinding {
    let check = "work.parked"
    guard !reading.parkedJobs.isEmpty else { return .ok(check, "No job was given up.") }
    let kinds = reading.parkedJobs.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }
    return .warning(
      check, "Jobs were given up: \(kinds.joined(separator: ", ")).",
      remedy: "`tenure jobs` says why; `tenure jobs retry` starts them again.")
  }

  private func webhookLag(_ reading: LedgerReading, _ now: Timestamp) -> [DoctorFinding] {
    guard settings.webhook != nil else { return [] }
    let check = "work.webhook"
    if let since = reading.waitingDeliveriesSince, now - since > Self.lateAfter {
      return [
        .warning(
          check, "Events wait for the webhook since \(since).",
          remedy: "`tenure webhooks` says what the receiver answers.")
      ]
    }
    guard reading.parkedDeliveries == 0 else {
      return [
        .warning(
          check, "Events that were given up: \(reading.parkedDeliveries).",
          remedy: "Mend the receiver, then `tenure webhooks redeliver`.")
      ]
    }
    return [.ok(check, "Events reach the webhook in time.")]
  }

  private func notifications(_ ledger: Ledger, _ now: Timestamp) async throws -> DoctorFinding {
    let check = "work.notifications"
    let examination = try await ledger.examineNotifications(at: now)
    guard let last = examination.lastArrival else {
      return .warning(
        check, "No notification of Apple's has ever arrived.",
        remedy: "Name this server's /v1/appstore/notifications in App Store Connect, for both "
          + "environments; `tenure app-store test-notification --wait` proves it.")
    }
    guard examination.missed == 0 else {
      return .warning(
        check,
        "Notifications of the last seven days that did not arrive: \(examination.missed). They "
          + "were taken from Apple's history.",
        remedy: "See what is between Apple and `tenure serve`; `tenure report intake` has each.")
    }
    let compared =
      examination.lastComparison.map { "Apple's history was compared at \($0)" }
      ?? "Apple's history was never compared"
    return .ok(check, "The last notification arrived at \(last). \(compared).")
  }

  private func bloat(_ ledger: Ledger) async throws -> DoctorFinding {
    let check = "database.vacuum"
    let tables = try await ledger.bloatedTables()
    guard tables.isEmpty else {
      return .warning(
        check, "Half of these tables and more is dead rows: \(tables.joined(separator: ", ")).",
        remedy: "VACUUM them, and look for transactions that stay open: they hold vacuum back.")
    }
    return .ok(check, "Vacuum keeps up.")
  }
}
