import Foundation
import LedgerStorage
import Logging
import Postgres
import Subscriptions

/// The accounts that the benchmarks find in the database, each with one running subscription.
struct SampleAccounts: Sendable {
  /// The product that they hold, and the one that benchmarks buy.
  static let productID: ProductID = "bench.monthly"
  /// What it lets its owner use.
  static let entitlement = "premium"
  /// How many there are, unless told otherwise.
  static let usualCount = 1_000_000
  /// Account ids are numbers of ten digits, so that pgbench can draw them, too.
  private static let first = 1_000_000_000
  /// Filling takes about ten seconds per million accounts, and several times that on a slow disk.
  private static let deadline: Duration = .seconds(1800)

  let count: Int

  /// The account ids.
  var numbers: ClosedRange<Int> { Self.first...(Self.first + count - 1) }

  /// Fills the database.
  ///
  /// Only the tables that are read for an answer or written by a submission have a row of each
  /// account; there is no ledger behind these holdings.
  func fill(_ database: BenchDatabase, logger: Logger) async throws {
    logger.notice("Filling the database", metadata: ["accounts": "\(count)"])
    try await database.withPool { try await insert(into: $0) }
  }

  private func insert(into database: ConnectionPool) async throws {
    try await Self.describeProduct(in: database)
    for statement in statements {
      _ = try await database.execute(statement, deadline: Self.deadline)
    }
    let tables = "account, tenure.account_by_key, tenure.account_by_token, tenure.holding"
    try await database.runScript(
      "VACUUM (ANALYZE) tenure.\(tables), tenure.account_grant", deadline: Self.deadline)
    try await database.runScript("CHECKPOINT", deadline: Self.deadline)
  }

  /// Puts the product into the catalogue.
  static func describeProduct(in database: ConnectionPool) async throws {
    _ = try await Ledger(database: database).describe(
      Product(
        id: productID, validFrom: .now, type: .autoRenewable, entitlements: [entitlement],
        subscriptionGroup: "bench", level: 1, period: CalendarPeriod(months: 1)))
  }

  private var statements: [SQL] {
    [
      """
      INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at)
      SELECT number::text, gen_random_uuid(), gen_random_uuid(), now()
      FROM generate_series(\(numbers.lowerBound), \(numbers.upperBound)) AS number
      """,
      """
      INSERT INTO tenure.account_by_key (account_key, account_id, app_account_token)
      SELECT account_key, account_id, app_account_token FROM tenure.account
      """,
      """
      INSERT INTO tenure.account_by_token (app_account_token, account_key)
      SELECT app_account_token, account_key FROM tenure.account
      """,
      """
      INSERT INTO tenure.holding (account_id, environment, original_transaction_id,
        transaction_id, product_id, product_type, period_type, starts_at, ends_at, auto_renews,
        phase)
      SELECT number::text, 'production', (number + 100000000000000)::text,
        (number + 200000000000000)::text, \(Self.productID.rawValue), 'auto_renewable', 'normal',
        now() - interval '10 days', now() + interval '20 days', true, 'undisturbed'
      FROM generate_series(\(numbers.lowerBound), \(numbers.upperBound)) AS number
      """,
    ]
  }
}
