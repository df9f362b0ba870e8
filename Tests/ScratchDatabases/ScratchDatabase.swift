import Foundation
import LedgerStorage
import Logging
package import Postgres
import PrivatePostgres

/// Runs a test on a database of its own: a clone of a template that was made from `schema.sql`.
///
/// All tests of a process share one server, which is forgetful and fast; cloning takes a few
/// milliseconds, so tests run beside each other and see nothing of one another.
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
  let uri = try await ScratchServer.shared.cloneTemplate()
  var configuration = ConnectionPool.Configuration(uri: uri)
  // Hundreds of tests share two cores: waiting for one's turn is no failure here.
  configuration.acquireTimeout = .seconds(120)
  configuration.statementDeadline = .seconds(120)
  configuration.lockTimeout = .seconds(120)
  configuration.idleTransactionTimeout = .seconds(120)
  configure(&configuration)
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

private let quiet = Logger(label: "scratch", factory: { _ in SwiftLogNoOpLogHandler() })

/// The server that the tests of a process share.
private actor ScratchServer {
  static let shared = ScratchServer()

  private static let template = "tenure_template"
  private static let connectionLimit = 300
  /// How many tests have a database at once, each with a pool or two; the others wait their turn.
  private static let placeLimit = 40

  private var starting: Task<PrivatePostgres, any Error>?
  private var clones = 0
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

  /// Makes a database like the template.
  ///
  /// - Returns: Its connection URI.
  func cloneTemplate() async throws -> String {
    let server = try await server()
    clones += 1
    let name = "scratch_\(clones)"
    let pool = ConnectionPool(
      configuration: ConnectionPool.Configuration(uri: await server.uri()), logger: quiet)
    do {
      try await pool.runScript(
        """
        CREATE DATABASE \(name) TEMPLATE \(Self.template)
        """)
      // Settings of a database are not cloned.
      try await pool.runScript(
        "ALTER DATABASE \(name) SET search_path TO \"$user\", public, tenure")
    } catch {
      await pool.close()
      throw error
    }
    await pool.close()
    return await server.uri(database: name)
  }

  private func server() async throws -> PrivatePostgres {
    if let starting { return try await starting.value }
    let task = Task { try await Self.start() }
    starting = task
    return try await task.value
  }

  /// Starts a server with a template; it ends and is removed with this process.
  private static func start() async throws -> PrivatePostgres {
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-tests-\(ProcessInfo.processInfo.processIdentifier)")
    var options = PrivatePostgres.Options.temporary
    options.settings["max_connections"] = "\(connectionLimit)"
    let server = try await PrivatePostgres.start(in: directory, options: options)
    let maintenance = ConnectionPool(
      configuration: ConnectionPool.Configuration(uri: await server.uri()), logger: quiet)
    try await maintenance.runScript("CREATE DATABASE \(template)")
    await maintenance.close()
    let pool = ConnectionPool(
      configuration: ConnectionPool.Configuration(uri: await server.uri(database: template)),
      logger: quiet)
    _ = try await SchemaMigrator(database: pool, logger: quiet).migrate()
    await pool.close()
    return server
  }
}
