import Foundation
import Logging
import Postgres
import PrivatePostgres

/// The PostgreSQL of this test process; its watchdog removes it when the process ends.
enum TestServer {
  private static let shared = Task { try await start() }

  static func start() async throws -> PrivatePostgres {
    let name = "tenure-tests-\(UInt32.random(in: 0 ... .max))"
    return try await PrivatePostgres.start(
      in: FileManager.default.temporaryDirectory.appending(path: name), options: .temporary)
  }

  static func uri() async throws -> String {
    try await shared.value.uri()
  }

  /// Runs a body with a pool on the shared server, or on another.
  static func withPool<Value>(
    uri: String? = nil, _ configure: (inout ConnectionPool.Configuration) -> Void = { _ in },
    _ body: (ConnectionPool) async throws -> Value
  ) async throws -> Value {
    let address = if let uri { uri } else { try await Self.uri() }
    var configuration = ConnectionPool.Configuration(uri: address)
    configure(&configuration)
    let pool = ConnectionPool(configuration: configuration, logger: silent)
    do {
      let value = try await body(pool)
      await pool.close(within: .seconds(1))
      return value
    } catch {
      await pool.close(within: .seconds(1))
      throw error
    }
  }

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

/// Waits until a condition holds, 5 seconds at most.
func eventually(_ condition: () async throws -> Bool) async throws -> Bool {
  for _ in 0..<500 {
    if try await condition() { return true }
    try await Task.sleep(for: .milliseconds(10))
  }
  return false
}

/// Counts from tasks.
actor Counter {
  private(set) var count = 0

  func next() -> Int {
    count += 1
    return count
  }
}
