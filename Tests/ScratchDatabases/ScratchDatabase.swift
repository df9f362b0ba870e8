import Foundation
import LedgerStorage
import Logging
package import Postgres
import PrivatePostgres
import Secrets

/// Runs a test on a database of its own: a clone of a template that was made from `schema.sql`.
///
/// All tests of a process share one server, which is forgetful and fast; cloning takes a few
/// milliseconds, so tests run beside each other and see nothing of one another. With
/// `TENURE_TEST_DATABASE_URL` it is the server there: see ``ScratchPlace``.
///
/// - Parameters:
///   - configure: Changes the pool's configuration before it is opened.
///   - body: The test.
/// - Returns: What the body returns.
/// - Throws: What the body or the server throws.
package func withScratchDatabase<Value: Sendable>(
  configure: @Sendable (inout ConnectionPool.Configuration) -> Void = { _ in },
  _ body: @Sendable (ConnectionPool) async throws -> Value
) async throws -> Value {
  await ScratchServer.shared.takePlace()
  do {
    let value = try await withClone(configure: configure, body)
    await ScratchServer.shared.leavePlace()
    return value
  } catch {
    await ScratchServer.shared.leavePlace()
    throw error
  }
}

private func withClone<Value: Sendable>(
  configure: @Sendable (inout ConnectionPool.Configuration) -> Void,
  _ body: @Sendable (ConnectionPool) async throws -> Value
) async throws -> Value {
  let uri = try await ScratchServer.shared.makeDatabase()
  var configuration = ConnectionPool.Configuration(uri: Secret(uri))
  // Hundreds of tests share two cores: waiting for one's turn is no failure here.
  configuration.acquireTimeout = .seconds(120)
  configuration.outageTimeout = .seconds(120)
  configuration.statementDeadline = .seconds(120)
  configuration.lockTimeout = .seconds(120)
  configuration.idleTransactionTimeout = .seconds(120)
  configure(&configuration)
  let pool = ConnectionPool(configuration: configuration, logger: quiet)
  do {
    let value = try await body(pool)
    await pool.close()
    await ScratchServer.shared.removeDatabase(uri)
    return value
  } catch {
    await pool.close()
    await ScratchServer.shared.removeDatabase(uri)
    throw error
  }
}

private let quiet = Logger(label: "scratch", factory: { _ in SwiftLogNoOpLogHandler() })

/// The server that the tests of a process share.
private actor ScratchServer {
  static let shared = ScratchServer()

  private static let connectionLimit = 300
  /// How many tests have a database at once, each with a pool or two; the others wait their turn.
  private static let placeLimit = 40

  private let place = ScratchPlace.environment
  private var starting: Task<(uri: String, own: PrivatePostgres?), any Error>?
  private var databases = 0
  private var freePlaces = placeLimit
  private var waiting: [CheckedContinuation<Void, Never>] = []

  func takePlace() async {
    guard freePlaces == 0 else {
      freePlaces -= 1
      return
    }
    await withCheckedContinuation { waiting.append($0) }
  }

  func leavePlace() {
    if waiting.isEmpty {
      freePlaces += 1
    } else {
      waiting.removeFirst().resume()
    }
  }

  /// Makes a database like the template; on a Citus, which can't clone its databases, like it from
  /// the ground up.
  ///
  /// - Returns: Its connection URI.
  func makeDatabase() async throws -> String {
    let server = try await server()
    databases += 1
    let name = "\(place.prefix)\(databases)"
    let uri = ScratchPlace.uri(server, database: name)
    if place.distribution == .citus {
      try await Self.run(["CREATE DATABASE \(name)"], on: server)
      try await Self.prepare(uri, distribution: place.distribution)
    } else {
      // Settings of a database are not cloned.
      try await Self.run(
        [
          "CREATE DATABASE \(name) TEMPLATE \(place.template)",
          "ALTER DATABASE \(name) SET search_path TO \"$user\", public, tenure",
        ], on: server)
    }
    return uri
  }

  /// Removes a database from a server that goes on without us.
  func removeDatabase(_ uri: String) async {
    guard let server = place.server, let name = ScratchPlace.database(of: uri) else { return }
    // Whatever keeps it: the next run has other names.
    try? await Self.run(["DROP DATABASE IF EXISTS \(name) WITH (FORCE)"], on: server)
  }

  private func server() async throws -> String {
    if let starting { return try await starting.value.uri }
    let task = Task { [place] in try await Self.start(place) }
    starting = task
    return try await task.value.uri
  }

  /// Starts a server with a template, which ends and is removed with this process; or makes one on
  /// the server that is there.
  ///
  private static func start(
    _ place: ScratchPlace
  ) async throws -> (uri: String, own: PrivatePostgres?) {
    let own = place.server == nil ? try await startPrivate() : nil
    let uri = if let own { await own.uri() } else { place.server ?? "" }
    guard place.distribution != .citus else { return (uri, own) }
    try await run(["CREATE DATABASE \(place.template)"], on: uri)
    try await prepare(
      ScratchPlace.uri(uri, database: place.template), distribution: place.distribution)
    return (uri, own)
  }

  private static func startPrivate() async throws -> PrivatePostgres {
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-tests-\(ProcessInfo.processInfo.processIdentifier)")
    var options = PrivatePostgres.Options.temporary
    options.settings["max_connections"] = "\(connectionLimit)"
    // Autovacuum visits each database once in this time: hundreds of them keep it busy otherwise.
    options.settings["autovacuum_naptime"] = "1h"
    return try await PrivatePostgres.start(in: directory, options: options)
  }

  private static func prepare(
    _ uri: String, distribution: ScratchPlace.Distribution
  ) async throws {
    try await withPool(uri) { pool in
      switch distribution {
      case .none: break
      // Each shard of each table is a table, in hundreds of databases.
      case .citus:
        try await pool.runScript("CREATE EXTENSION citus")
        try await pool.runScript(
          """
          DO $$ BEGIN
            EXECUTE format('ALTER DATABASE %I SET citus.shard_count = 2', current_database());
          END $$
          """)
      case .standIn: try await CitusStandIn.install(in: pool)
      }
    }
    try await withPool(uri) { pool in
      _ = try await SchemaMigrator(database: pool, logger: quiet).migrate()
      guard distribution != .none else { return }
      _ = try await SchemaDistributor(database: pool, logger: quiet).distribute()
    }
  }

  private static func run(_ scripts: [String], on uri: String) async throws {
    try await withPool(uri) { pool in
      for script in scripts { try await pool.runScript(script) }
    }
  }

  private static func withPool(
    _ uri: String, _ body: (ConnectionPool) async throws -> Void
  ) async throws {
    let pool = ConnectionPool(
      configuration: ConnectionPool.Configuration(uri: Secret(uri)), logger: quiet)
    do {
      try await body(pool)
      await pool.close()
    } catch {
      await pool.close()
      throw error
    }
  }
}

extension ConnectionPool {
  /// The database's address, for a test that gives it to a program.
  package var uri: String { configuration.uri.revealed }
}
