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
  /// Few connections saturate PostgreSQL; more are slower.
  private static let clients = 8
  /// How often each of pgbench's clients asks before it counts.
  private static let warmUpTimes = 10_000

  let database: BenchDatabase
  let accounts: SampleAccounts
  let seconds: Int
  let rounds: Int
  let directory: URL
  let logger: Logger
  /// The program `tenure`.
  var executable = Bundle.main.executableURL

  func run() async throws -> [BenchResult] {
    let pgbench = try Pgbench(databaseURL: database.url, directory: directory)
    return try await EntitlementReads.run(
      of: accounts, in: database, by: executable, in: directory
    ) { try await run(pgbench, $0) }
  }

  private func run(_ pgbench: Pgbench, _ reads: EntitlementReads) async throws -> [BenchResult] {
    let warmUp = try await limit(pgbench, times: Self.warmUpTimes)
    let times = max(1, Int(warmUp.rate * Double(seconds)) / Self.clients)
    var figures: [(measured: Measurement, limit: Measurement)] = []
    var routerFigures: [(measured: Measurement, limit: Measurement)] = []
    for round in 1...rounds {
      logger.notice("Reads", metadata: ["round": "\(round) of \(rounds)"])
      let limit = try await limit(pgbench, times: times)
      figures.append((try await reads.measure(seconds: seconds), limit))
      let query = EntitlementReads.routerQuery
      routerFigures.append((try await reads.measure(query: query, seconds: seconds), limit))
    }
    return [
      BenchResult(
        name: Self.name, limitName: Self.limitName, goal: Self.goal, rounds: figures,
        memory: reads.server.peakMemory),
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
}
