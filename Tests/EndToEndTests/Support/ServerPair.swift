import Foundation
import LedgerStorage
import Logging
import Postgres
import PrivatePostgres
import Reports
import Secrets

/// A primary, and a standby that has every commit before it is confirmed.
actor ServerPair {
  private static let database = "tenure"
  /// Waiting for a turn on a busy machine is not a failure.
  private static let patience: Duration = .seconds(120)
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  /// Leads to the one of the two that takes writes.
  let uri: String
  /// Leads to the standby alone.
  let standbyURI: String
  /// Leads to the first primary alone.
  let primaryURI: String
  private let primary: PrivatePostgres
  private let standby: PrivatePostgres
  /// The frozen processes, the server's first process first.
  private var frozen: [Int32] = []

  /// Starts both, with Tenure's schema.
  static func start(in directory: URL) async throws -> ServerPair {
    var options = PrivatePostgres.Options.temporary
    options.settings = ["synchronous_commit": "on", "max_connections": "60"]
    let standbyOptions = options
    options.settings["synchronous_standby_names"] = "*"
    let primary = try await PrivatePostgres.start(
      in: directory.appending(path: "primary"), options: options)
    do {
      let standby = try await primary.startStandby(
        in: directory.appending(path: "standby"), options: standbyOptions)
      let pair = ServerPair(
        primary, standby, uri: await primary.uri(database: database, orOf: standby),
        primaryURI: await primary.uri(database: database),
        standbyURI: await standby.uri(database: database))
      try await pair.createDatabase()
      return pair
    } catch {
      await primary.stop()
      throw error
    }
  }

  private init(
    _ primary: PrivatePostgres, _ standby: PrivatePostgres, uri: String, primaryURI: String,
    standbyURI: String
  ) {
    (self.primary, self.standby) = (primary, standby)
    (self.uri, self.primaryURI, self.standbyURI) = (uri, primaryURI, standbyURI)
  }

  private func createDatabase() async throws {
    try await Self.withPool(await primary.uri()) {
      try await SchemaMigrator.createDatabase(Self.database, on: $0)
    }
    try await Self.withPool(primaryURI) {
      _ = try await SchemaMigrator(
        database: $0, reports: ReportSQL(Report.sql), logger: Self.quiet
      ).migrate()
    }
  }

  /// Works on one of the servers, with patience.
  static func withPool<Value>(
    _ uri: String, connections: Int = 1, _ body: (ConnectionPool) async throws -> Value
  ) async throws -> Value {
    var configuration = ConnectionPool.Configuration(uri: Secret(uri))
    configuration.connectionLimit = connections
    configuration.statementDeadline = patience
    configuration.acquireTimeout = patience
    configuration.outageTimeout = patience
    let pool = ConnectionPool(configuration: configuration, logger: quiet)
    do {
      let value = try await body(pool)
      await pool.close()
      return value
    } catch {
      await pool.close(within: .zero)
      throw error
    }
  }

  /// Ends the primary without a word, as `kill -9` does.
  func killPrimary() async {
    if let process = await primary.processID { kill(process, SIGKILL) }
  }

  /// Lets the primary stand still: it keeps its connections and takes new ones, and says nothing.
  func freezePrimary() async throws {
    guard let first = await primary.processID else { return }
    try await Self.withPool(primaryURI) { pool in
      _ = try await pool.query("SELECT 1")
      // From here on it has no new children.
      self.freeze(first)
      for process in try await pool.query("SELECT pid FROM pg_stat_activity").decode(Int32.self) {
        self.freeze(process)
      }
    }
  }

  private func freeze(_ process: Int32) {
    kill(process, SIGSTOP)
    frozen.append(process)
  }

  /// Lets the standby receive the log and apply none of it; or apply it again.
  func pauseStandby(_ pauses: Bool) async throws {
    try await Self.withPool(standbyURI) { pool in
      _ = try await pool.query(
        pauses ? "SELECT pg_wal_replay_pause()" : "SELECT pg_wal_replay_resume()")
      let wanted = pauses ? "paused" : "not paused"
      let end = ContinuousClock.now + Self.patience
      while try await pool.query("SELECT pg_get_wal_replay_pause_state()")
        .decodeOnly(String.self) != wanted, ContinuousClock.now < end
      {
        try await Task.sleep(for: .milliseconds(10))
      }
    }
  }

  /// Ends the standby without a word.
  func killStandby() async {
    if let process = await standby.processID { kill(process, SIGKILL) }
  }

  /// Makes the standby the primary; the old one is to be fenced.
  func promoteStandby() async throws {
    try await standby.promote()
  }

  /// Kills the frozen processes.
  func fence() {
    for process in frozen { kill(process, SIGKILL) }
    frozen = []
  }

  func stop() async {
    fence()
    await standby.stop()
    await primary.stop()
  }
}
