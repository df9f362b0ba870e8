import Logging
import Postgres

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// A small ledger of the benchmarks' submissions, made through the real intake.
struct SampleLedger: Sendable {
  private static let firstNumber = 5_000_000_000
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  let samples: [SampleSubmission]

  /// Takes submissions of new customers, of whom every other one has opened an order.
  ///
  /// - Parameters:
  ///   - count: How many.
  ///   - database: With a schema, and nothing else.
  /// - Throws: The error of a refused submission.
  init(submissions count: Int, in database: ConnectionPool) async throws {
    samples = try await Self.prepare(count, in: database)
    let settings = try Settings(
      await SettingSource(
        flags: ["TENURE_BUNDLE_IDS": SampleSubmission.bundleID], environment: [:]))
    let intake = try await Assembly(
      database: database, settings: settings, transport: PreparedAppStore(), logger: Self.quiet
    ).intake
    for sample in samples { _ = try await intake.submit(sample.request) }
  }

  /// Describes the product and opens the orders: everything but the submissions themselves.
  ///
  /// - Parameters:
  ///   - count: How many submissions there will be.
  ///   - database: With a schema, and nothing else.
  /// - Returns: The submissions to make.
  /// - Throws: `PostgresError`.
  static func prepare(_ count: Int, in database: ConnectionPool) async throws
    -> [SampleSubmission]
  {
    try await SampleAccounts.describeProduct(in: database)
    return try await SampleSubmission.prepare(
      firstNumber..<firstNumber + count, in: database)
  }
}
