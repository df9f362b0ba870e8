import Bootstrap
import Foundation
import Intake
import LedgerStorage
import Logging
import Postgres
import Subscriptions

/// Submissions decided a second with Apple's response at hand, compared with the bare SQL of one
/// submission.
struct SubmissionBenchmark: Sendable {
  private static let name = "submissions decided"
  private static let limitName =
    "the same statements in three pipelined batches (store; load; write and answer), with no logic"
  private static let goal = 0.4
  private static let concurrency = 32
  /// Submissions on either side before measuring.
  private static let warmUp = 500
  /// Samples' numbers have ten digits and are distinct from those of ``SampleAccounts``.
  private static let firstNumber = 5_000_000_000

  let database: BenchDatabase
  let seconds: Int
  let rounds: Int
  let logger: Logger

  func run() async throws -> BenchResult {
    try await database.withPool { pool in
      let appStore = PreparedAppStore()
      let intake = try await Assembly(
        database: pool, settings: try await Self.settings(), transport: appStore, logger: logger
      ).intake
      let bare = BaselineSubmission(database: pool, appStore: appStore)
      var samples = Samples(database: pool, next: Self.firstNumber)

      func measured(_ count: Int) async throws -> Measurement {
        try await Load.measure(try await samples.take(count), concurrency: Self.concurrency) {
          try Self.check(try await intake.submit($0.request), of: $0)
        }
      }
      func limit(_ count: Int) async throws -> Measurement {
        try await Load.measure(
          try await samples.take(count), concurrency: Self.concurrency, bare.perform)
      }

      let (limitCount, count) = (
        self.count(after: try await limit(Self.warmUp)),
        self.count(after: try await measured(Self.warmUp))
      )
      var figures: [(measured: Measurement, limit: Measurement)] = []
      for round in 1...rounds {
        logger.notice("Submissions", metadata: ["round": "\(round) of \(rounds)"])
        let limit = try await limit(limitCount)
        figures.append((try await measured(count), limit))
      }
      return BenchResult(
        name: Self.name, limitName: Self.limitName, goal: Self.goal, rounds: figures)
    }
  }

  /// Samples with unused numbers.
  private struct Samples {
    let database: ConnectionPool
    var next: Int

    mutating func take(_ count: Int) async throws -> [SampleSubmission] {
      defer { next += count }
      return try await SampleSubmission.prepare(next..<next + count, in: database)
    }
  }

  /// The number of submissions that fills a round at a measured rate.
  private func count(after measurement: Measurement) -> Int {
    max(Self.warmUp, Int(measurement.rate * Double(seconds)))
  }

  static func settings() async throws -> Settings {
    try Settings(
      await SettingSource(
        flags: [
          "TENURE_BUNDLE_IDS": SampleSubmission.bundleID,
          "TENURE_APPSTORE_SHARED_SECRET": "0123456789abcdef0123456789abcdef",
        ], environment: [:]))
  }

  /// Checks that the submission was decided as expected.
  static func check(_ answer: SubmissionAnswer, of sample: SampleSubmission) throws {
    guard case .verified(let verified) = answer, verified.transactions.count == 1,
      verified.transactions[0].isNewlyOwned,
      verified.order?.order.id == sample.orderID, verified.order?.order.status != .open,
      verified.entitlements.contains(where: { $0.isActive })
    else { throw BenchError.wrongAnswer("submission \(sample.number): \(answer)") }
  }
}

/// The limit of ``SubmissionBenchmark``: the statements of one submission with generated values, in
/// as few round trips as possible.
///
/// A test compares the rows that it writes with those of a real submission.
struct BaselineSubmission: Sendable {
  let database: ConnectionPool
  let appStore: PreparedAppStore

  /// - Throws: `PostgresError`.
  @Sendable
  func perform(_ sample: SampleSubmission) async throws {
    let statements = BaselineStatements(
      sample, answer: appStore.answer(about: sample), at: .now)
    try await database.batch(statements.store)
    try await database.withTransaction { transaction in
      try await transaction.batch(statements.load)
      try await transaction.commit(with: statements.write + statements.answer)
    }
  }
}
