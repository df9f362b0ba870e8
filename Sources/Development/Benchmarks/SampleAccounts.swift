import Bootstrap
import Foundation
import Intake
import JSONText
import LedgerStorage
import Logging
import Postgres
import Subscriptions

/// Accounts in a benchmark's database, each with one active subscription.
struct SampleAccounts: Sendable {
  /// The accounts' product, which benchmarks also buy.
  static let productID: ProductID = "bench.monthly"
  static let entitlement = "premium"
  static let usualCount = 1_000_000
  /// Account IDs are numbers of ten digits, so that pgbench can generate them.
  private static let first = 1_000_000_000
  /// Filling takes about ten seconds per million accounts, several times that on a slow disk.
  private static let deadline: Duration = .seconds(1800)

  let count: Int

  var numbers: ClosedRange<Int> { Self.first...(Self.first + count - 1) }

  /// Fills the tables that reads and submissions use; there are no ledger entries.
  func fill(_ database: BenchDatabase, logger: Logger) async throws {
    logger.notice("Filling the database", metadata: ["accounts": "\(count)"])
    try await database.withPool { try await insert(into: $0) }
  }

  private func insert(into database: ConnectionPool) async throws {
    try await Self.describeProduct(in: database)
    // No server runs that would have to know of millions of changes.
    try await database.runScript("ALTER TABLE tenure.holding DISABLE TRIGGER USER")
    for statement in statements {
      _ = try await database.execute(statement, deadline: Self.deadline)
    }
    try await database.runScript(
      """
      ALTER TABLE tenure.holding ENABLE ALWAYS TRIGGER account_change;
      ALTER TABLE tenure.holding ENABLE ALWAYS TRIGGER account_change_of_all;
      """)
    let tables = "account, tenure.account_by_key, tenure.account_by_token, tenure.holding"
    try await database.runScript(
      "VACUUM (ANALYZE) tenure.\(tables), tenure.account_grant", deadline: Self.deadline)
    try await database.runScript("CHECKPOINT", deadline: Self.deadline)
  }

  static func describeProduct(in database: ConnectionPool) async throws {
    _ = try await Ledger(database: database).products.describe(
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

/// A sample customer with a subscription.
///
/// All identifiers contain the customer's number, so that the rows can be copied for others.
struct SampleCustomer: Sendable {
  /// The smallest number, distinct from those of ``SampleAccounts`` and ``SampleSubmission``.
  private static let first = 6_000_000_000
  /// Prefixes of UUIDs that end with the number.
  private static let accountMark = "00000000-0000-4000-8000-00"
  private static let tokenMark = "00000000-0000-4000-8001-00"
  private static let submissionMark = "00000000-0000-4000-8002-00"
  private static let orderMark = "00000000-0000-4000-8003-00"
  private static let secondAccountMark = "00000000-0000-4000-8004-00"
  private static let secondTokenMark = "00000000-0000-4000-8005-00"

  /// Ten digits.
  let number: Int

  init(_ index: Int) {
    number = Self.first + index
  }

  /// Returns nil if the number is not a customer's.
  init?(number: Int) {
    guard number >= Self.first else { return nil }
    self.number = number
  }

  static func numbers(_ indices: ClosedRange<Int>) -> ClosedRange<Int> {
    first + indices.lowerBound...first + indices.upperBound
  }

  var accountID: String { String(number) }
  /// Another account of the same person.
  var secondAccountID: String { accountID + "-2" }
  var originalTransactionID: OriginalTransactionID { .init(rawValue: "30000\(number)") }
  var line: OriginalTransactionKey { OriginalTransactionKey(.production, originalTransactionID) }

  func insertAccount(
    isSecond: Bool = false, in database: ConnectionPool, at moment: Timestamp = .now
  ) async throws {
    let accountID = isSecond ? secondAccountID : self.accountID
    let key = (isSecond ? Self.secondAccountMark : Self.accountMark) + String(number)
    let token = (isSecond ? Self.secondTokenMark : Self.tokenMark) + String(number)
    try await database.batch([
      """
      INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at)
      VALUES (\(accountID), \(key)::uuid, \(token)::uuid, \(moment))
      """,
      """
      INSERT INTO tenure.account_by_key (account_key, account_id, app_account_token)
      SELECT account_key, account_id, app_account_token FROM tenure.account
      WHERE account_id = \(accountID)
      """,
      """
      INSERT INTO tenure.account_by_token (app_account_token, account_key)
      SELECT app_account_token, account_key FROM tenure.account WHERE account_id = \(accountID)
      """,
      "SELECT tenure.seal(\(key)::uuid, 'account')",
    ])
  }

  /// Creates the account, buys, submits the signed data, and returns the marks of the number.
  ///
  /// - Throws: ``BenchError/wrongAnswer(_:)``, or a database error.
  func subscribe(
    at appStore: SampleAppStore, with intake: SubmissionIntake, in database: ConnectionPool
  ) async throws -> [CopiedRows.Mark] {
    try await insertAccount(in: database)
    let answer = try await intake.submit(request(at: appStore))
    guard case .verified(let verified) = answer, verified.transactions.first?.isNewlyOwned == true
    else { throw BenchError.wrongAnswer("customer \(number): \(answer)") }
    return [
      CopiedRows.Mark(text: accountID),
      CopiedRows.Mark(
        text: verified.id.text, prefix: Self.submissionMark),
    ]
  }

  /// Submits the signed data of the purchase, or of a renewal.
  func request(at appStore: SampleAppStore, period: Int = 0) -> SubmissionRequest {
    SubmissionRequest(
      accountID: accountID,
      payload: .signedData(
        transactions: [appStore.transaction(of: self, period: period)],
        renewalInfo: [appStore.renewalInfo(of: self, period: period)]))
  }

  /// Creates the account, opens an order, and returns the marks of the number.
  func openOrder(
    in ledger: Ledger, at now: Timestamp, in database: ConnectionPool
  ) async throws -> [CopiedRows.Mark] {
    try await insertAccount(in: database)
    let order = try await ledger.orders.openOrder(
      accountID: accountID, productID: SampleAccounts.productID, at: now)
    return [
      CopiedRows.Mark(text: accountID),
      CopiedRows.Mark(
        text: order.order.id.text, prefix: Self.orderMark),
    ]
  }
}
