import Foundation
import Logging
import PrivatePostgres
import Secrets
import Synchronization

@testable import Postgres

/// The PostgreSQL of this test process; its watchdog removes it when the process ends.
enum TestServer {
  private static let shared = Task { try await start() }

  static func start(settings: [String: String] = [:]) async throws -> PrivatePostgres {
    let name = "tenure-tests-\(UInt32.random(in: 0 ... .max))"
    var options = PrivatePostgres.Options.temporary
    // Each test has its pools, and all tests run at once.
    options.settings = ["max_connections": "400"].merging(settings) { $1 }
    return try await PrivatePostgres.start(
      in: FileManager.default.temporaryDirectory.appending(path: name), options: options)
  }

  static func uri() async throws -> String {
    try await shared.value.uri()
  }

  /// Runs a body with a pool on the shared server, or on another.
  ///
  /// Hundreds of tests share the processors: waiting for one's turn is no failure, so the pool is
  /// more patient than a program's.
  static func withPool<Value>(
    uri: String? = nil, logger: Logger = silent,
    _ configure: (inout ConnectionPool.Configuration) -> Void = { _ in },
    _ body: (ConnectionPool) async throws -> Value
  ) async throws -> Value {
    let address = if let uri { uri } else { try await Self.uri() }
    var configuration = ConnectionPool.Configuration(uri: Secret(address))
    configuration.acquireTimeout = patience
    configuration.outageTimeout = patience
    configuration.statementDeadline = patience
    configuration.lockTimeout = patience
    configuration.idleTransactionTimeout = patience
    configure(&configuration)
    let pool = ConnectionPool(configuration: configuration, logger: logger)
    do {
      let value = try await body(pool)
      await pool.close(within: .seconds(1))
      return value
    } catch {
      await pool.close(within: .seconds(1))
      throw error
    }
  }

  /// How long a test waits for an expected event: longer than any busy machine takes.
  static let patience = Duration.seconds(120)

  static let silent = Logger(label: "tests", factory: { _ in SwiftLogNoOpLogHandler() })
}

/// The PostgreSQL error that a body throws, or nil.
func postgresError(_ body: () async throws -> Void) async -> PostgresError? {
  do {
    try await body()
    return nil
  } catch {
    return error as? PostgresError
  }
}

/// Waits until a condition holds, two minutes at most.
func eventually(_ condition: () async throws -> Bool) async throws -> Bool {
  let end = ContinuousClock.now + TestServer.patience
  repeat {
    if try await condition() { return true }
    try await Task.sleep(for: .milliseconds(10))
  } while ContinuousClock.now < end
  return try await condition()
}

/// Counts from tasks.
actor Counter {
  private(set) var count = 0

  func next() -> Int {
    count += 1
    return count
  }
}

/// The outcomes of requests that were handed to a pool in one turn of the loop, and so are in
/// flight together, in their order.
@PostgresLoop
final class Answers {
  private var outcomes: [Int: Request.Outcome] = [:]

  init(of requests: [Request], from pool: ConnectionPool) {
    for (index, request) in requests.enumerated() {
      pool.driver.accept(request, .call { self.outcomes[index] = $0 })
    }
  }

  /// Waits for an answer, two minutes at most; nil if there is none.
  func rows(of index: Int) async throws -> [Rows]? {
    _ = try await eventually { self.outcomes[index] != nil }
    return try outcomes[index]?.get()
  }

  func error(of index: Int) async -> PostgresError? {
    await postgresError { _ = try await self.rows(of: index) }
  }
}

/// Records all messages.
final class RecordedLog: Sendable {
  private let recorded = Mutex<[String]>([])

  var lines: [String] { recorded.withLock { $0 } }
  var logger: Logger { Logger(label: "test") { _ in Handler(log: self) } }

  private struct Handler: LogHandler {
    let log: RecordedLog
    var logLevel = Logger.Level.trace
    var metadata: Logger.Metadata = [:]

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      log.recorded.withLock { $0.append("\(event.level) \(event.message)") }
    }
  }
}
