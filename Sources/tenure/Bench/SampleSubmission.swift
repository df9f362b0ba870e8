import Foundation
import Intake
import LedgerStorage
import Postgres
import Subscriptions

/// One submission of a benchmark: a new customer, with an Apple ID of his own, sends the receipt of
/// the subscription that he has just bought.
struct SampleSubmission: Sendable {
  static let bundleID = "com.example.tenure"

  /// Unlike any other's, with ten digits.
  let number: Int
  /// The order that was opened before the purchase; nil for a customer who is seen for the first
  /// time.
  let orderID: UUID?
  /// What the account is known by where it exists before the submission.
  let accountKey = UUID()
  let appAccountToken = UUID()

  var accountID: String { String(number) }
  var originalTransactionID: String { "30000\(number)" }
  var transactionID: String { "40000\(number)" }
  var webOrderLineItemID: String { "50000\(number)" }
  var receiptData: String { String(number) + Self.receiptRest }

  /// What an app's receipt consists of beside its number: as long as one with a single purchase,
  /// and like that nothing that could be compressed.
  private static let receiptRest: String = {
    let bytes = (0..<3000).map { _ in UInt8.random(in: .min ... .max) }
    return "00" + Data(bytes).base64EncodedString()
  }()

  var request: SubmissionRequest {
    SubmissionRequest(accountID: accountID, payload: .receipt(receiptData), orderID: orderID)
  }

  /// Makes samples, for half of which an order has been opened.
  ///
  /// - Parameters:
  ///   - numbers: Never used before.
  ///   - database: Where the orders are opened.
  /// - Returns: A sample for each number.
  /// - Throws: `PostgresError`.
  static func prepare(_ numbers: Range<Int>, in database: ConnectionPool) async throws
    -> [SampleSubmission]
  {
    let samples = numbers.map {
      SampleSubmission(number: $0, orderID: $0.isMultiple(of: 2) ? UUID() : nil)
    }
    try await openOrders(of: samples.filter { $0.orderID != nil }, in: database)
    return samples
  }

  /// Opens the orders, with their accounts, all at once.
  private static func openOrders(of samples: [SampleSubmission], in database: ConnectionPool)
    async throws
  {
    let (ids, keys) = (samples.map(\.accountID), samples.map(\.accountKey))
    let (tokens, orders) = (samples.map(\.appAccountToken), samples.compactMap(\.orderID))
    try await database.batch([
      """
      INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at)
      SELECT id, key, token, now() FROM unnest(\(ids), \(keys), \(tokens)) AS new (id, key, token)
      """,
      """
      INSERT INTO tenure.account_by_key (account_key, account_id, app_account_token)
      SELECT key, id, token FROM unnest(\(keys), \(ids), \(tokens)) AS new (key, id, token)
      """,
      """
      INSERT INTO tenure.account_by_token (app_account_token, account_key)
      SELECT token, key FROM unnest(\(tokens), \(keys)) AS new (token, key)
      """,
      """
      INSERT INTO tenure.purchase_order (account_key, order_id, product_id, status, created_at)
      SELECT key, id, \(SampleAccounts.productID.rawValue), 'open', now()
      FROM unnest(\(keys), \(orders)) AS new (key, id)
      """,
      """
      INSERT INTO tenure.purchase_order_account (order_id, account_key)
      SELECT id, key FROM unnest(\(orders), \(keys)) AS new (id, key)
      """,
    ])
  }
}
