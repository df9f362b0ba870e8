import AppStore
import AppStoreSimulator
import Bootstrap
import Crypto
import Foundation
import Intake
import JSONText
import LedgerStorage
import Postgres
import Secrets
import Subscriptions
import Synchronization

/// A sample submission: a new customer with their own Apple ID submits the receipt of a new
/// subscription.
struct SampleSubmission: Sendable {
  static let bundleID = "com.example.tenure"

  /// Unique, with ten digits.
  let number: Int
  /// The order opened before the purchase; nil for a customer without an account.
  let orderID: UUID?
  /// The account's key, where the account exists before the submission.
  let accountKey = UUID()
  let appAccountToken = UUID()

  var accountID: String { String(number) }
  var originalTransactionID: String { "30000\(number)" }
  var transactionID: String { "40000\(number)" }
  var webOrderLineItemID: String { "50000\(number)" }
  var receiptData: String { Self.receiptHead + String(number) + Self.receiptRest }

  /// The head of PKCS#7 signed data without a length, in base64.
  static let receiptHead = "MIAGCSqGSIb3DQEHAqCA"

  /// The rest of a receipt: as long as one with a single purchase, and as incompressible.
  private static let receiptRest: String = {
    let bytes = (0..<3000).map { _ in UInt8.random(in: .min ... .max) }
    return "00" + Data(bytes).base64EncodedString()
  }()

  var request: SubmissionRequest {
    SubmissionRequest(accountID: accountID, payload: .receipt(receiptData), orderID: orderID)
  }

  /// Makes samples for unused numbers, half of them with an order that is opened in the database.
  static func prepare(_ numbers: Range<Int>, in database: ConnectionPool) async throws
    -> [SampleSubmission]
  {
    let samples = numbers.map {
      SampleSubmission(number: $0, orderID: $0.isMultiple(of: 2) ? UUID() : nil)
    }
    try await openOrders(of: samples.filter { $0.orderID != nil }, in: database)
    return samples
  }

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
      "SELECT count(tenure.seal(key, 'account')) FROM unnest(\(keys)) AS new (key)",
      """
      SELECT count(tenure.seal(key, 'purchase_order', id::text))
      FROM unnest(\(keys), \(orders)) AS new (key, id)
      """,
    ])
  }
}

/// A verifyReceipt endpoint with prepared responses for sample receipts.
struct PreparedAppStore: AppStoreTransport {
  /// The start of the receipt in a request's body.
  private static let receiptKey = Array(#""receipt-data":"\#(SampleSubmission.receiptHead)"#.utf8)
  /// The digits of a sample's number, which follow its receipt's head.
  private static let numberLength = 10

  private let purchasedAt: Timestamp

  init() {
    // Shortly before the receipt is submitted.
    purchasedAt = .now - .seconds(10)
  }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    guard let key = request.body.firstRange(of: Self.receiptKey),
      let number = Int(
        String(
          decoding: request.body[key.upperBound...].prefix(Self.numberLength), as: UTF8.self))
    else { throw AppStoreTransportError(.connectionFailed, detail: "not a sample receipt") }
    return AppStoreResponse(
      status: 200, headers: [HTTPHeader("Content-Type", "application/json")],
      body: answer(about: SampleSubmission(number: number, orderID: nil)))
  }

  /// Apple's response about a sample's receipt, with all fields.
  func answer(about sample: SampleSubmission) -> [UInt8] {
    let product = SampleAccounts.productID
    let item = """
      {"quantity":"1","product_id":"\(product)","transaction_id":"\(sample.transactionID)",\
      "original_transaction_id":"\(sample.originalTransactionID)",\
      \(date("purchase_date", purchasedAt)),\(date("original_purchase_date", purchasedAt)),\
      \(date("expires_date", purchasedAt + .days(30))),\
      "web_order_line_item_id":"\(sample.webOrderLineItemID)","is_trial_period":"false",\
      "is_in_intro_offer_period":"false","in_app_ownership_type":"PURCHASED",\
      "subscription_group_identifier":"20500001"}
      """
    let answer = """
      {"environment":"Production","receipt":{"receipt_type":"Production","adam_id":1234567890,\
      "app_item_id":1234567890,"bundle_id":"\(SampleSubmission.bundleID)",\
      "application_version":"1","download_id":500000000000000000,\
      "version_external_identifier":850000000,\(date("receipt_creation_date", purchasedAt)),\
      \(date("request_date", .now)),\(date("original_purchase_date", purchasedAt)),\
      "original_application_version":"1","in_app":[\(item)]},\
      "latest_receipt_info":[\(item)],"latest_receipt":"\(sample.receiptData)",\
      "pending_renewal_info":[{"auto_renew_product_id":"\(product)","product_id":"\(product)",\
      "original_transaction_id":"\(sample.originalTransactionID)","auto_renew_status":"1"}],\
      "status":0}
      """
    return Array(answer.utf8)
  }

  /// A date in Apple's three formats; the Pacific one is never read and has the time in UTC.
  private func date(_ name: String, _ moment: Timestamp) -> String {
    let text = moment.description.prefix(19).replacing("T", with: " ")
    return """
      "\(name)":"\(text) Etc/GMT","\(name)_ms":"\(moment.milliseconds)",\
      "\(name)_pst":"\(text) America/Los_Angeles"
      """
  }
}

/// A stateless App Store Server API for ``SampleCustomer``s, whose subscriptions renew forever.
///
/// Responses are computed and signed on request, so a million customers need no memory.
struct SampleAppStore: AppStoreTransport {
  private static let period: Duration = .days(30)
  private static let appAppleID: JSONValue = 1_234_567_890
  private static let group = "20345678"

  let boughtAt: Timestamp
  let key: ServerAPIKey
  let trustedRoots: TrustedRoots
  private let signer: SimulatedSigner
  private let counter = Counter()
  private let now: @Sendable () -> Timestamp

  init(boughtAt: Timestamp, now: @escaping @Sendable () -> Timestamp) throws {
    self.boughtAt = boughtAt
    self.now = now
    signer = try SimulatedSigner()
    trustedRoots = try TrustedRoots(pem: signer.rootCertificatePEM)
    key = try ServerAPIKey(
      issuerID: "57246542-96fe-1a63-e053-0824d011072a", keyID: "2X9R4HXF34",
      privateKey: Secret(P256.Signing.PrivateKey().pemRepresentation))
  }

  /// The number of subscription status requests: one for each poll.
  var polls: Int { counter.count.withLock { $0.polls } }
  /// The bytes of all responses.
  var bytesSent: Int { counter.count.withLock { $0.bytes } }

  private final class Counter: Sendable {
    let count = Mutex((polls: 0, bytes: 0))
  }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    let parts = request.url.split(separator: "?")[0].split(separator: "/")
    guard let customer = parts.last.flatMap({ Int($0.suffix(10)) }).flatMap(SampleCustomer.init)
    else { throw AppStoreTransportError(.connectionFailed, detail: "not a sample customer") }
    let answer: JSONValue =
      switch parts.dropLast().last {
      case "history": history(of: customer)
      case "subscriptions": statuses(of: customer)
      default:
        throw AppStoreTransportError(.connectionFailed, detail: "not a simulated endpoint")
      }
    let body = answer.bytes
    counter.count.withLock {
      if parts.dropLast().last == "subscriptions" { $0.polls += 1 }
      $0.bytes += body.count
    }
    return AppStoreResponse(
      status: 200, headers: [HTTPHeader("Content-Type", "application/json")], body: body)
  }

  // MARK: Answers

  private var renewals: Int {
    max(0, Int((now() - boughtAt) / Self.period))
  }

  private func history(of customer: SampleCustomer) -> JSONValue {
    [
      "appAppleId": Self.appAppleID, "bundleId": .string(SampleSubmission.bundleID),
      "environment": "Production", "hasMore": false,
      "revision": .string("\(now().milliseconds)_\(customer.number)"),
      "signedTransactions": .array([.string(transaction(of: customer, period: renewals))]),
    ]
  }

  private func statuses(of customer: SampleCustomer) -> JSONValue {
    [
      "appAppleId": Self.appAppleID, "bundleId": .string(SampleSubmission.bundleID),
      "environment": "Production",
      "data": [
        [
          "subscriptionGroupIdentifier": .string(Self.group),
          "lastTransactions": [
            [
              "originalTransactionId": .string(customer.originalTransactionID.rawValue),
              "status": 1,
              "signedTransactionInfo": .string(transaction(of: customer, period: renewals)),
              "signedRenewalInfo": .string(renewalInfo(of: customer, period: renewals)),
            ]
          ],
        ]
      ],
    ]
  }

  /// A signed transaction: the purchase if `period` is 0, otherwise a renewal.
  func transaction(of customer: SampleCustomer, period: Int) -> String {
    let start = boughtAt + Self.period * period
    return signer.sign([
      "transactionId": .string("\(40_000 + period)\(customer.number)"),
      "originalTransactionId": .string(customer.originalTransactionID.rawValue),
      "webOrderLineItemId": .string("\(50_000 + period)\(customer.number)"),
      "bundleId": .string(SampleSubmission.bundleID),
      "productId": .string(SampleAccounts.productID.rawValue),
      "subscriptionGroupIdentifier": .string(Self.group),
      "purchaseDate": milliseconds(start),
      "originalPurchaseDate": milliseconds(boughtAt),
      "expiresDate": milliseconds(start + Self.period), "quantity": 1,
      "type": "Auto-Renewable Subscription", "inAppOwnershipType": "PURCHASED",
      "signedDate": milliseconds(now()), "environment": "Production",
      "transactionReason": period == 0 ? "PURCHASE" : "RENEWAL", "storefront": "USA",
      "storefrontId": "143441", "price": 9990, "currency": "USD",
    ])
  }

  /// The body of a notification of version 2 about a renewal.
  func notification(of customer: SampleCustomer, period: Int) -> [UInt8] {
    let payload = signer.sign([
      "notificationType": "DID_RENEW",
      "notificationUUID": .string(UUID().text),
      "data": [
        "appAppleId": Self.appAppleID, "bundleId": .string(SampleSubmission.bundleID),
        "bundleVersion": "1.2.3", "environment": "Production",
        "signedTransactionInfo": .string(transaction(of: customer, period: period)),
        "signedRenewalInfo": .string(renewalInfo(of: customer, period: period)), "status": 1,
      ],
      "version": "2.0", "signedDate": milliseconds(now()),
    ])
    return (["signedPayload": .string(payload)] as JSONValue).bytes
  }

  func renewalInfo(of customer: SampleCustomer, period: Int) -> String {
    let product = JSONValue.string(SampleAccounts.productID.rawValue)
    return signer.sign([
      "originalTransactionId": .string(customer.originalTransactionID.rawValue),
      "autoRenewProductId": product, "productId": product, "autoRenewStatus": 1,
      "renewalPrice": 9990, "currency": "USD", "signedDate": milliseconds(now()),
      "environment": "Production",
      "recentSubscriptionStartDate": milliseconds(boughtAt),
      "renewalDate": milliseconds(boughtAt + Self.period * (period + 1)),
    ])
  }

  private func milliseconds(_ moment: Timestamp) -> JSONValue {
    .integer(moment.milliseconds)
  }
}
