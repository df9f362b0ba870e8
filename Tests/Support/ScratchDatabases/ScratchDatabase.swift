import Foundation
import LedgerStorage
import Logging
package import Postgres
import PrivatePostgres
import Reports
import Secrets

/// Runs a test on a separate database: a clone of a template with the schema and
/// the reports.
///
/// All tests of a process share one server, which is fast and not durable; cloning takes a few
/// milliseconds, so tests run concurrently and isolated from each other. With
/// `TENURE_TEST_DATABASE_URL` or `TENURE_TEST_CITUS_URL` it is the server there: see
/// ``ScratchPlace``.
///
/// - Parameters:
///   - configure: Changes the pool's configuration before it is opened.
///   - body: The test.
/// - Returns: The body's result.
/// - Throws: Errors of the body and of the server.
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

/// Runs a test on an empty database of the Citus that is to be tried.
///
/// - Parameter body: The test, with the pool of the schema's future owner.
/// - Throws: Errors of the body and of the server.
package func withEmptyCitus(
  _ body: @Sendable (ConnectionPool) async throws -> Void
) async throws {
  await ScratchServer.shared.takePlace()
  do {
    let uri = try await ScratchServer.shared.makeEmptyDatabase()
    do {
      try await withPool(uri, body)
      await ScratchServer.shared.removeDatabase(uri)
    } catch {
      await ScratchServer.shared.removeDatabase(uri)
      throw error
    }
    await ScratchServer.shared.leavePlace()
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

let quiet = Logger(label: "scratch", factory: { _ in SwiftLogNoOpLogHandler() })

/// The server that the tests of a process share.
private actor ScratchServer {
  static let shared = ScratchServer()

  private static let connectionLimit = 300

  private let place = ScratchPlace.environment
  private var starting: Task<(server: Server, own: PrivatePostgres?), any Error>?
  private var databases = 0
  /// How many more tests may have a database now, each with a pool or two; others wait their turn.
  ///
  /// On a Citus each of their connections has several to the nodes.
  private var freePlaces = ScratchPlace.environment.isDistributed ? 6 : 40
  private var waiting: [CheckedContinuation<Void, Never>] = []

  private enum Server {
    case plain(uri: String)
    case citus(ScratchCitus)
  }

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

  /// Makes a database like the template.
  ///
  /// - Returns: Its connection URI.
  func makeDatabase() async throws -> String {
    let server = try await server()
    databases += 1
    let name = "\(place.prefix)\(databases)"
    switch server {
    case .plain(let uri):
      // Copying the files takes a third of the time of copying them through the log. Settings of a
      // database are not cloned.
      try await run(
        [
          "CREATE DATABASE \(name) TEMPLATE \(place.template) STRATEGY FILE_COPY",
          "ALTER DATABASE \(name) SET search_path TO \"$user\", public, tenure",
        ], on: uri)
      return ScratchPlace.uri(uri, database: name)
    case .citus(let citus): return try await citus.clone(place.template, as: name)
    }
  }

  /// Makes an empty database on the Citus.
  ///
  /// - Returns: Its owner's connection URI.
  func makeEmptyDatabase() async throws -> String {
    guard case .citus(let citus) = try await server() else {
      preconditionFailure("Only a Citus has empty databases: see `TENURE_TEST_CITUS_URL`.")
    }
    databases += 1
    return try await citus.make("\(place.prefix)\(databases)")
  }

  func removeDatabase(_ uri: String) async {
    guard let name = ScratchPlace.database(of: uri), let server = try? await server() else {
      return
    }
    // The next run uses other names, so a database that can't be removed does no harm.
    switch server {
    case .plain(let uri): try? await run(["DROP DATABASE IF EXISTS \(name) WITH (FORCE)"], on: uri)
    case .citus(let citus): try? await citus.remove(name)
    }
  }

  private func server() async throws -> Server {
    if let starting { return try await starting.value.server }
    let task = Task { [place] in try await Self.start(place) }
    starting = task
    return try await task.value.server
  }

  /// Starts a server with a template, which ends and is removed with this process; or makes one on
  /// the server that exists.
  private static func start(
    _ place: ScratchPlace
  ) async throws -> (server: Server, own: PrivatePostgres?) {
    if let coordinator = place.server, place.isDistributed {
      let citus = try await ScratchCitus(coordinator: coordinator)
      try await citus.makeTemplate(place.template)
      return (.citus(citus), nil)
    }
    let own = place.server == nil ? try await startPrivate() : nil
    let uri = if let own { await own.uri() } else { place.server ?? "" }
    try await run(["CREATE DATABASE \(place.template)"], on: uri)
    try await withPool(ScratchPlace.uri(uri, database: place.template)) { pool in
      _ = try await SchemaMigrator(
        database: pool, reports: ReportSQL(Report.sql), logger: quiet
      ).migrate()
    }
    return (.plain(uri: uri), own)
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
}

func run(_ scripts: [String], on uri: String) async throws {
  try await withPool(uri) { pool in
    for script in scripts { try await pool.runScript(script) }
  }
}

func withPool<Value: Sendable>(
  _ uri: String, _ body: (ConnectionPool) async throws -> Value
) async throws -> Value {
  var configuration = ConnectionPool.Configuration(uri: Secret(uri))
  configuration.statementDeadline = .seconds(120)
  let pool = ConnectionPool(configuration: configuration, logger: quiet)
  do {
    let value = try await body(pool)
    await pool.close()
    return value
  } catch {
    await pool.close()
    throw error
  }
}

extension ConnectionPool {
  /// The database's address, for a test that gives it to a program.
  package var uri: String { configuration.uri.revealed }

  /// Runs a script on this database of the Citus as a superuser.
  ///
  /// - Parameters:
  ///   - script: The statements.
  ///   - node: The URI of a database of the node; nil: the coordinator's.
  /// - Throws: Database errors.
  package func runAsSuperuser(_ script: String, onNode node: String? = nil) async throws {
    let node = node ?? ScratchPlace.environment.server ?? ""
    try await run(
      [script], on: ScratchPlace.uri(node, database: ScratchPlace.database(of: uri) ?? ""))
  }
}
