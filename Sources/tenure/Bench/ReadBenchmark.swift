import Foundation
import Logging

/// How many entitlements a second `tenure serve` answers over HTTP, beside what PostgreSQL answers
/// to the same question asked directly.
struct ReadBenchmark: Sendable {
  private static let name = "entitlement reads over HTTP"
  private static let routerName = "entitlement reads through the router"
  private static let limitName =
    "pgbench, 8 clients, the prepared select of one account's holdings on the same table"
  private static let goal = 1.0
  private static let routerGoal = 0.45
  /// Asks for the same answer in a way that only the router understands.
  private static let routerQuery = "?active=false"
  /// Keep-alive connections, each with one request under way.
  private static let connections = 64
  /// Few connections saturate PostgreSQL; more are slower.
  private static let clients = 8
  /// How long the server runs before it counts, until caches are warm and statements prepared.
  private static let warmUpSeconds = 2
  /// And how often each of pgbench's clients does.
  private static let warmUpTimes = 10_000

  let database: BenchDatabase
  let accounts: SampleAccounts
  let seconds: Int
  let rounds: Int
  let directory: URL
  let logger: Logger

  func run() async throws -> [BenchResult] {
    let pgbench = try Pgbench(databaseURL: database.url, directory: directory)
    let wrk = try Wrk(directory: directory)
    guard let executable = Bundle.main.executableURL else {
      throw BenchError.serverDidNotStart(log: "The path of this program is unknown.")
    }
    let server = try await ServeProcess.start(
      executable, databaseURL: database.url, in: directory)
    do {
      let results = try await run(pgbench, wrk, server)
      await server.stop()
      return results
    } catch {
      await server.stop()
      throw error
    }
  }

  private func run(_ pgbench: Pgbench, _ wrk: Wrk, _ server: ServeProcess) async throws
    -> [BenchResult]
  {
    try await checkAnswer(of: server)
    let warmUp = try await limit(pgbench, times: Self.warmUpTimes)
    let times = max(1, Int(warmUp.rate * Double(seconds)) / Self.clients)
    for query in ["", Self.routerQuery] {
      _ = try await measured(wrk, server, query, seconds: Self.warmUpSeconds)
    }
    var figures: [(measured: Measurement, limit: Measurement)] = []
    var routerFigures: [(measured: Measurement, limit: Measurement)] = []
    for round in 1...rounds {
      logger.notice("Reads", metadata: ["round": "\(round) of \(rounds)"])
      let limit = try await limit(pgbench, times: times)
      figures.append((try await measured(wrk, server, "", seconds: seconds), limit))
      routerFigures.append(
        (try await measured(wrk, server, Self.routerQuery, seconds: seconds), limit))
    }
    return [
      BenchResult(
        name: Self.name, limitName: Self.limitName, goal: Self.goal, rounds: figures,
        memory: server.peakMemory),
      BenchResult(
        name: Self.routerName, limitName: Self.limitName, goal: Self.routerGoal,
        rounds: routerFigures),
    ]
  }

  private func limit(_ pgbench: Pgbench, times: Int) async throws -> Measurement {
    try await pgbench.run(
      """
      \\set account random(\(accounts.numbers.lowerBound), \(accounts.numbers.upperBound))
      SELECT account_id, environment, original_transaction_id, transaction_id, product_id, \
      family_id, product_type, period_type, starts_at, ends_at, revoked_at, superseded_at, \
      auto_renews, phase, grace_ends_at FROM tenure.holding WHERE account_id = :account;
      """, clients: Self.clients, times: times)
  }

  private func measured(
    _ wrk: Wrk, _ server: ServeProcess, _ query: String, seconds: Int
  ) async throws -> Measurement {
    try await wrk.readEntitlements(
      from: server, accounts: accounts.numbers, query: query, connections: Self.connections,
      seconds: seconds)
  }

  /// Makes sure that what is counted are answers, and the right ones.
  private func checkAnswer(of server: ServeProcess) async throws {
    let account = accounts.numbers.upperBound
    let (status, body) = try await server.get("/v1/accounts/\(account)/entitlements")
    guard status == 200, body.contains("\"\(SampleAccounts.entitlement)\""),
      body.contains("\"active\":true")
    else { throw BenchError.wrongAnswer("\(status) \(body)") }
  }
}
