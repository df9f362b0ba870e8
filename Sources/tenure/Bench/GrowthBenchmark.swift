import Foundation
import Logging

/// What it costs to have many accounts: entitlement reads where there are many, beside the same
/// reads where there is a hundredth of them, each with a database and a server of its own.
struct GrowthBenchmark: Sendable {
  /// A database with its accounts.
  struct Population: Sendable {
    let database: BenchDatabase
    let accounts: SampleAccounts
  }

  /// How many accounts there are, unless told otherwise.
  static let accounts = 10_000_000
  /// Of so many there is one where there are few.
  static let growth = 100
  private static let goal = 0.85

  let many: Population
  let few: Population
  let seconds: Int
  let rounds: Int
  let directory: URL
  let logger: Logger
  /// The program `tenure`.
  var executable = Bundle.main.executableURL

  func run() async throws -> [BenchResult] {
    try await withReads(of: many) { many in
      try await withReads(of: few) { few in
        try await run(many, few)
      }
    }
  }

  private func withReads<Value>(
    of population: Population, _ body: (EntitlementReads) async throws -> Value
  ) async throws -> Value {
    try await population.accounts.fill(population.database, logger: logger)
    return try await EntitlementReads.run(
      of: population.accounts, in: population.database, by: executable, in: directory, body)
  }

  private func run(_ many: EntitlementReads, _ few: EntitlementReads) async throws
    -> [BenchResult]
  {
    var figures: [(measured: Measurement, limit: Measurement)] = []
    var routerFigures: [(measured: Measurement, limit: Measurement)] = []
    for round in 1...rounds {
      logger.notice("Reads", metadata: ["round": "\(round) of \(rounds)"])
      let limit = try await few.measure(seconds: seconds)
      figures.append((try await many.measure(seconds: seconds), limit))
      let query = EntitlementReads.routerQuery
      let routerLimit = try await few.measure(query: query, seconds: seconds)
      routerFigures.append(
        (try await many.measure(query: query, seconds: seconds), routerLimit))
    }
    let accounts = "\(self.many.accounts.count) accounts"
    let limitName = "the same reads where there are \(self.few.accounts.count)"
    return [
      BenchResult(
        name: "entitlement reads, \(accounts)", limitName: limitName, goal: Self.goal,
        rounds: figures, memory: many.server.peakMemory),
      BenchResult(
        name: "entitlement reads through the router, \(accounts)", limitName: limitName,
        goal: Self.goal, rounds: routerFigures),
    ]
  }
}
