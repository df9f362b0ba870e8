import AppStoreSimulator
import Logging
import NIOCore
import Postgres
import ServiceLifecycle
import Subscriptions
import Testing

@testable import HTTPAPI

/// The real assembly behind a real socket.
struct LiveAPI: Sendable {
  let api: API
  let port: Int
  let log: RecordedLog
  let group: ServiceGroup

  /// The routes that the router has answered.
  var routed: [String] { log.lines.compactMap { $0.metadata["http.route"] } }

  /// Runs a body with a server, and shuts the server down.
  ///
  /// The level is that of the server's log when it is put together. Afterwards everything is
  /// logged, so that the log shows the requests that the router answered.
  static func run<Value: Sendable>(
    on database: ConnectionPool, level: Logger.Level = .info,
    limits: ConnectionLimits = ConnectionLimits(), _ body: (LiveAPI) async throws -> Value
  ) async throws -> Value {
    let log = RecordedLog()
    log.level = level
    let (api, _, _, _) = try await TestAPI.assemble(database, logger: log.logger)
    let (ports, port) = AsyncStream.makeStream(of: Int.self)
    let application = api.application(host: "127.0.0.1", port: 0, limits: limits) {
      port.yield($0)
    }
    log.level = .trace
    let group = ServiceGroup(services: [application], logger: quietLogger)
    async let running: Void = group.run()
    let live = LiveAPI(
      api: api, port: try #require(await ports.first { _ in true }), log: log, group: group)
    do {
      let value = try await body(live)
      await group.triggerGracefulShutdown()
      try await running
      return value
    } catch {
      await group.triggerGracefulShutdown()
      try await running
      throw error
    }
  }

  /// Sends a request on a separate connection.
  func exchange(_ text: String) async throws -> RawConnection.Answer? {
    try await RawConnection.to(port) { connection in
      try await connection.send(text)
      return try await connection.answer()
    }
  }
}

extension ConnectionPool {
  /// Runs a body while holdings can't be read.
  func whileHoldingsAreLocked<Value: Sendable>(
    _ body: (Connection) async throws -> Value
  ) async throws -> Value {
    try await withConnection { connection in
      try await connection.runScript("BEGIN; LOCK TABLE tenure.holding")
      do {
        let value = try await body(connection)
        try await connection.runScript("ROLLBACK")
        return value
      } catch {
        try await connection.runScript("ROLLBACK")
        throw error
      }
    }
  }
}

extension Connection {
  /// Returns when a statement waits for a lock of this database.
  func untilWaiting() async throws {
    guard try await !isReadWaiting(within: .seconds(240)) else { return }
    Issue.record("No statement waits for a lock.")
  }

  /// Waits until a statement waits for a lock of this database; false if none does in time.
  func isReadWaiting(within patience: Duration) async throws -> Bool {
    let end = ContinuousClock.now + patience
    repeat {
      let waiting = try await query(
        """
        SELECT count(*) FROM pg_locks WHERE NOT granted AND database =
          (SELECT oid FROM pg_database WHERE datname = current_database())
        """
      ).decodeOnly(Int.self)
      if waiting > 0 { return true }
      try await Task.sleep(for: .milliseconds(5))
    } while ContinuousClock.now < end
    return false
  }
}
