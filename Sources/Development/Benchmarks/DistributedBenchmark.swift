import Bootstrap
import Foundation
import Intake
import LedgerStorage
import Logging
import Postgres

/// Submissions and entitlement reads on a Citus, one after another, compared with the same on a
/// plain PostgreSQL, each with its own server.
///
/// One after another, a rate is the inverse of a latency.
struct DistributedBenchmark: Sendable {
  private enum Operation: CaseIterable {
    case submission, read, batch

    var name: String {
      switch self {
      case .submission: "submissions on Citus"
      case .read: "entitlement reads on Citus"
      case .batch: "entitlement reads of \(batchSize) accounts on Citus"
      }
    }

    var goal: Double { self == .batch ? 1.0 / 4 : 1.0 / 3 }
  }

  private static let limitName = "the same on a plain PostgreSQL, one after another"
  private static let batchSize = 20
  /// Samples' numbers, distinct from those of the other benchmarks.
  private static let firstNumber = 5_500_000_000

  let citus: BenchDatabase
  let plain: BenchDatabase
  let seconds: Int
  let rounds: Int
  let directory: URL
  let logger: Logger
  /// Operations of each kind on either side before measuring, and at least in a round.
  var warmUp = 100
  var executable = Bundle.main.executableURL

  func run() async throws -> [BenchResult] {
    logger.notice("Distributing the tables")
    try await citus.withPool {
      _ = try await SchemaDistributor(database: $0, logger: logger).distribute()
    }
    return try await withSide(citus) { citus in
      try await withSide(plain) { plain in try await measure(citus, plain) }
    }
  }

  private func withSide<Value>(
    _ database: BenchDatabase, _ body: (Side) async throws -> Value
  ) async throws -> Value {
    try await database.withPool { pool in
      try await SampleAccounts.describeProduct(in: pool)
      let intake = try await Assembly(
        database: pool, settings: try await DecisionBenchmark.settings(),
        transport: PreparedAppStore(), logger: logger
      ).intake
      // A Citus has no answers in memory.
      return try await ServeProcess.run(
        executable, databaseURL: database.url, environment: ["TENURE_READ_CACHE": "0"],
        in: directory
      ) {
        try await body(Side(pool: pool, intake: intake, server: $0, accounts: warmUp))
      }
    }
  }

  private func measure(_ citus: Side, _ plain: Side) async throws -> [BenchResult] {
    var (citus, plain) = (citus, plain)
    var counts: [Operation: (citus: Int, plain: Int)] = [:]
    for operation in Operation.allCases {
      counts[operation] = (
        count(after: try await citus.perform(operation, times: warmUp)),
        count(after: try await plain.perform(operation, times: warmUp))
      )
    }
    var figures: [Operation: [(measured: Measurement, limit: Measurement)]] = [:]
    for round in 1...rounds {
      logger.notice("Distributed", metadata: ["round": "\(round) of \(rounds)"])
      for (operation, counts) in counts {
        let limit = try await plain.perform(operation, times: counts.plain)
        let measured = try await citus.perform(operation, times: counts.citus)
        figures[operation, default: []].append((measured, limit))
      }
    }
    return Operation.allCases.map {
      BenchResult(
        name: $0.name, limitName: Self.limitName, goal: $0.goal, rounds: figures[$0] ?? [])
    }
  }

  /// The number of operations that fills a round at a measured rate.
  private func count(after measurement: Measurement) -> Int {
    max(warmUp, Int(measurement.rate * Double(seconds)))
  }

  /// A database and its server.
  private struct Side {
    let pool: ConnectionPool
    let intake: SubmissionIntake
    let server: ServeProcess
    /// The number of accounts that are read, which are the first ones to submit something.
    let accounts: Int
    var next = DistributedBenchmark.firstNumber

    mutating func perform(_ operation: Operation, times: Int) async throws -> Measurement {
      if operation == .submission { return try await submit(times) }
      return try await Load.measure(Array(0..<times), concurrency: 1) { [server, accounts] _ in
        let first = DistributedBenchmark.firstNumber
        let answer =
          if operation == .read {
            try await server.get(
              "/v1/accounts/\(Int.random(in: first..<first + accounts))/entitlements")
          } else {
            try await server.post(
              Self.query((first..<first + accounts).shuffled()), to: "/v1/entitlements/query")
          }
        let found = answer.body.split(separator: "\"active\":true").count - 1
        guard answer.status == 200, found == (operation == .read ? 1 : batchSize) else {
          throw BenchError.wrongAnswer("\(answer.status) \(answer.body)")
        }
      }
    }

    private mutating func submit(_ times: Int) async throws -> Measurement {
      let samples = try await SampleSubmission.prepare(next..<next + times, in: pool)
      next += times
      return try await Load.measure(samples, concurrency: 1) { [intake] in
        try DecisionBenchmark.check(try await intake.submit($0.request), of: $0)
      }
    }

    private static func query(_ accounts: [Int]) -> String {
      let ids = accounts.prefix(batchSize).map { "\"\($0)\"" }
      return "{\"account_ids\":[\(ids.joined(separator: ","))]}"
    }
  }
}
