import Foundation
import Intake
import LedgerStorage
import Postgres
import Subscriptions

/// A customer of the benchmarks, with a subscription of his own.
///
/// Everything that is his has his number in its name, so that his rows can be copied for others.
struct SampleCustomer: Sendable {
  /// The smallest number; none of ``SampleAccounts`` or ``SampleSubmission``.
  private static let first = 6_000_000_000
  /// The beginning of UUIDs that end with a number.
  private static let accountMark = "00000000-0000-4000-8000-00"
  private static let tokenMark = "00000000-0000-4000-8001-00"
  private static let submissionMark = "00000000-0000-4000-8002-00"
  private static let orderMark = "00000000-0000-4000-8003-00"
  private static let secondAccountMark = "00000000-0000-4000-8004-00"
  private static let secondTokenMark = "00000000-0000-4000-8005-00"

  /// Of ten digits.
  let number: Int

  /// - Parameter index: From 0 on.
  init(_ index: Int) {
    number = Self.first + index
  }

  /// - Parameter number: The customer's, if it is one's.
  init?(number: Int) {
    guard number >= Self.first else { return nil }
    self.number = number
  }

  static func numbers(_ indices: ClosedRange<Int>) -> ClosedRange<Int> {
    first + indices.lowerBound...first + indices.upperBound
  }

  var accountID: String { String(number) }
  /// Another account that the same person has.
  var secondAccountID: String { accountID + "-2" }
  var originalTransactionID: OriginalTransactionID { .init(rawValue: "30000\(number)") }
  var line: LineID { LineID(.production, originalTransactionID) }

  /// Makes the customer's account.
  ///
  /// - Parameters:
  ///   - isSecond: Whether it is the other one.
  ///   - database: Where.
  ///   - moment: Since when it is there.
  /// - Throws: `PostgresError`.
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
    ])
  }

  /// Buys and submits what StoreKit has signed; the account is made before that.
  ///
  /// - Parameters:
  ///   - appStore: Where it is bought.
  ///   - intake: Where it is submitted.
  ///   - database: Behind the intake.
  /// - Returns: Where the customer's number stands in the rows that are written.
  /// - Throws: ``BenchError/wrongAnswer(_:)``, or what the database says.
  func subscribe(
    at appStore: SampleAppStore, with intake: SubmissionIntake, in database: ConnectionPool
  ) async throws -> [CopiedRows.Mark] {
    try await insertAccount(in: database)
    let answer = try await intake.submit(
      SubmissionRequest(
        accountID: accountID,
        payload: .signedData(
          transactions: [appStore.transaction(of: self, period: 0)],
          renewalInfo: [appStore.renewalInfo(of: self, period: 0)])))
    guard case .verified(let verified) = answer, verified.transactions.first?.isNewlyOwned == true
    else { throw BenchError.wrongAnswer("customer \(number): \(answer)") }
    return [
      CopiedRows.Mark(text: accountID),
      CopiedRows.Mark(
        text: verified.id.uuidString.lowercased(), prefix: Self.submissionMark),
    ]
  }

  /// Opens an order; the account is made before that.
  ///
  /// - Parameters:
  ///   - ledger: Where.
  ///   - now: When.
  ///   - database: Behind the ledger.
  /// - Returns: Where the customer's number stands in the rows that are written.
  /// - Throws: What the database says.
  func openOrder(
    in ledger: Ledger, at now: Timestamp, in database: ConnectionPool
  ) async throws -> [CopiedRows.Mark] {
    try await insertAccount(in: database)
    let order = try await ledger.openOrder(
      accountID: accountID, productID: SampleAccounts.productID, at: now)
    return [
      CopiedRows.Mark(text: accountID),
      CopiedRows.Mark(
        text: order.order.id.uuidString.lowercased(), prefix: Self.orderMark),
    ]
  }
}
