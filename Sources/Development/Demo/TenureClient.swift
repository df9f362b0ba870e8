import AsyncHTTPClient
import Foundation
import struct Foundation.UUID
import NIOCore
import NIOHTTP1
import Subscriptions

/// A client of Tenure's HTTP API: an address and a key.
struct TenureClient: Sendable {
  /// The request timeout, longer than any response takes.
  private static let timeout = TimeAmount.seconds(60)
  private static let answerLimitBytes = 4 * 1024 * 1024
  /// The time between retries.
  private static let pause = Duration.milliseconds(20)

  /// The largest page that the API allows.
  private static let pageLength = 1000

  let client: HTTPClient
  let baseURL: String
  let key: String
  /// How long a request is retried that gets no response or a 503; zero: not at all.
  ///
  /// Covers the restart of a killed server and the failover of its database.
  var patience = Duration.zero

  /// An unexpected response.
  struct Failure: Error, CustomStringConvertible {
    let description: String
    var status: HTTPResponseStatus?
  }

  // MARK: App server

  /// Creates an account if needed, and returns it with its app account token.
  func account(_ id: String) async throws -> Account {
    try await send(.PUT, "/v1/accounts/\(id)")
  }

  /// Gives an account a name and an email address.
  func name(_ id: String, _ label: String, _ email: String) async throws {
    let _: Account = try await send(
      .PUT, "/v1/accounts/\(id)", body: ["label": label, "email": email])
  }

  func openOrder(of account: String, for product: ProductID) async throws -> Order {
    try await send(
      .POST, "/v1/orders",
      body: ["account_id": account, "product_id": product.rawValue])
  }

  func order(_ id: String) async throws -> Order {
    try await send(.GET, "/v1/orders/\(id)")
  }

  func submit(_ receipt: ReceiptSubmission) async throws -> Submission {
    try await send(.POST, "/v1/receipts", body: receipt)
  }

  /// Submits signed data from StoreKit 2.
  func submit(_ signed: SignedSubmission) async throws -> Submission {
    try await send(.POST, "/v1/receipts", body: signed)
  }

  func submission(_ id: String) async throws -> Submission {
    try await send(.GET, "/v1/receipts/\(id)")
  }

  /// An account's active entitlements, now or at another time.
  func entitlements(of account: String, at moment: Timestamp? = nil) async throws
    -> [Entitlement]
  {
    let query = moment.map { "&at=\($0)" } ?? ""
    let path = "/v1/accounts/\(account)/entitlements?active=true\(query)"
    return try await send(.GET, path, as: Entitlements.self).entitlements
  }

  /// All charges that an account owns.
  func transactions(of account: String) async throws -> [Transaction] {
    var transactions: [Transaction] = []
    var after = ""
    while true {
      let path = "/v1/accounts/\(account)/transactions?limit=\(Self.pageLength)\(after)"
      let page = try await send(.GET, path, as: Transactions.self)
      transactions += page.transactions
      guard let next = page.next else { return transactions }
      after = "&after=\(next)"
    }
  }

  func transaction(_ id: TransactionID) async throws -> Transaction {
    try await send(.GET, "/v1/transactions/\(id)")
  }

  func line(_ id: OriginalTransactionID) async throws -> Line {
    try await send(.GET, "/v1/original-transactions/\(id)")
  }

  /// Acknowledges a consumable's delivery; returns whether it was the first time.
  func acknowledgeDelivery(of id: TransactionID, to account: String) async throws -> Bool {
    try await send(
      .POST, "/v1/transactions/\(id)/delivery", body: ["account_id": account], as: Delivery.self
    ).isFirst
  }

  /// A page of the event feed after a cursor; nil: from its beginning.
  func events(after cursor: String?) async throws -> FeedPage {
    let place = cursor.map { "&after=\($0)" } ?? ""
    return try await send(.GET, "/v1/events?limit=\(Self.pageLength)\(place)")
  }

  // MARK: Administrator

  func describe(_ product: ProductID, as description: ProductDescription) async throws {
    _ = try await send(.PUT, "/v1/products/\(product)", body: description, as: Described.self)
  }

  // MARK: Notifications

  var notificationURL: String { baseURL + "/v1/appstore/notifications" }

  /// Posts a notification's body without an API key, and returns the response's status.
  func postNotification(_ body: String) async throws -> UInt {
    var request = HTTPClientRequest(url: notificationURL)
    request.method = .POST
    request.body = .bytes(ByteBuffer(string: body))
    return try await client.execute(request, timeout: Self.timeout).status.code
  }

  // MARK: Requests

  private func send<Answer: Decodable>(
    _ method: HTTPMethod, _ path: String, body: (any Encodable)? = nil,
    as type: Answer.Type = Answer.self
  ) async throws -> Answer {
    var request = HTTPClientRequest(url: baseURL + path)
    request.method = method
    request.headers.add(name: "Authorization", value: "Bearer \(key)")
    if let body {
      request.headers.add(name: "Content-Type", value: "application/json")
      request.body = .bytes(ByteBuffer(bytes: try JSONEncoder().encode(body)))
    }
    let (status, answer) = try await repeatedly(request)
    guard (200..<300).contains(status.code) else {
      throw Failure(
        description: "\(method) \(path) was answered with \(status.code): "
          + String(decoding: answer, as: UTF8.self), status: status)
    }
    return try JSONDecoder().decode(Answer.self, from: answer)
  }

  /// Retries a request until it is answered: one without a response may have been processed.
  private func repeatedly(_ request: HTTPClientRequest) async throws
    -> (HTTPResponseStatus, Data)
  {
    let end = ContinuousClock.now + patience
    while true {
      do {
        let response = try await client.execute(request, timeout: Self.timeout)
        let body = try await response.body.collect(upTo: Self.answerLimitBytes)
        guard response.status == .serviceUnavailable, ContinuousClock.now < end else {
          return (response.status, Data(body.readableBytesView))
        }
        try await Task.sleep(for: Self.pause)
      } catch {
        guard ContinuousClock.now < end else { throw error }
        try await Task.sleep(for: Self.pause)
      }
    }
  }
}

/// The request and response members that the story uses.
extension TenureClient {
  struct ReceiptSubmission: Encodable, Sendable {
    var accountID: String
    var receiptData: String
    var transactionID: String?
    var orderID: String?
    var restore = false

    enum CodingKeys: String, CodingKey {
      case accountID = "account_id"
      case receiptData = "receipt_data"
      case transactionID = "transaction_id"
      case orderID = "order_id"
      case restore
    }
  }

  struct SignedSubmission: Encodable, Sendable {
    var accountID: String
    var signedTransactions: [String]
    var signedRenewalInfo: [String]?
    var orderID: String?
    var restore = false

    enum CodingKeys: String, CodingKey {
      case accountID = "account_id"
      case signedTransactions = "signed_transactions"
      case signedRenewalInfo = "signed_renewal_info"
      case orderID = "order_id"
      case restore
    }
  }

  struct Account: Decodable, Sendable {
    var appAccountToken: UUID

    enum CodingKeys: String, CodingKey {
      case appAccountToken = "app_account_token"
    }
  }

  struct ProductDescription: Encodable {
    var type: ProductType
    var entitlements: [String]
    var group: String?
    var level: Int?
    var period: String?
    var priceMilliunits: Int64
    var currency: String

    enum CodingKeys: String, CodingKey {
      case type, entitlements, level, period, currency
      case group = "subscription_group"
      case priceMilliunits = "price_milliunits"
    }
  }

  struct Submission: Decodable, Sendable {
    var id: String
    var status: String
    var transactions: [Transaction]?
    var order: Order?
    var warnings: [String]?

    enum CodingKeys: String, CodingKey {
      case id = "submission_id"
      case status, transactions, order, warnings
    }

    var isPending: Bool { status == "pending" }
    var newlyOwned: [Transaction] { (transactions ?? []).filter(\.isNewlyOwned) }
  }

  struct Transaction: Decodable, Sendable {
    struct Decision: Decodable, Sendable {
      var rule: Subscriptions.Decision.Rule
      var because: String
      var correctedAt: String?

      enum CodingKeys: String, CodingKey {
        case rule, because
        case correctedAt = "corrected_at"
      }
    }

    var id: TransactionID
    var productID: ProductID
    var owner: String?
    var decision: Decision
    var isNewlyOwned: Bool
    var revokedAt: String?
    var aliases: [TransactionID]
    /// The ledger's entries on it; nil in responses to submissions.
    var history: [HistoryItem]?

    enum CodingKeys: String, CodingKey {
      case id = "transaction_id"
      case productID = "product_id"
      case owner = "owner_account_id"
      case isNewlyOwned = "newly_owned"
      case revokedAt = "revoked_at"
      case decision, aliases, history
    }
  }

  struct HistoryItem: Decodable, Sendable {
    var number: Int
  }

  struct Order: Decodable, Sendable {
    var id: String
    var status: PurchaseOrder.Status
    var transactionID: TransactionID?

    enum CodingKeys: String, CodingKey {
      case id = "order_id"
      case transactionID = "transaction_id"
      case status
    }
  }

  struct Entitlement: Decodable, Sendable {
    var name: String
    /// Nil for an entitlement without a purchase.
    var productID: ProductID?
    var expiresAt: String?
    /// Later than `expiresAt` during a grace period.
    var accessEndsAt: String?

    enum CodingKeys: String, CodingKey {
      case name = "entitlement"
      case productID = "product_id"
      case expiresAt = "expires_at"
      case accessEndsAt = "access_ends_at"
    }
  }

  struct FeedPage: Decodable {
    var events: [Event]
    var next: String
  }

  struct Event: Decodable {
    struct Details: Decodable {
      var entitlement: Entitlement?
    }

    var id: String
    var type: String
    var account: String?
    var data: Details

    enum CodingKeys: String, CodingKey {
      case account = "account_id"
      case id, type, data
    }
  }

  struct Entitlements: Decodable {
    var entitlements: [Entitlement]
  }

  struct Transactions: Decodable {
    var transactions: [Transaction]
    var next: String?
  }

  struct Line: Decodable, Sendable {
    var account: String?
    var isAutoRenewing: Bool

    enum CodingKeys: String, CodingKey {
      case account = "account_id"
      case isAutoRenewing = "auto_renewing"
    }
  }

  struct Delivery: Decodable {
    var isFirst: Bool

    enum CodingKeys: String, CodingKey {
      case isFirst = "first"
    }
  }

  struct Described: Decodable {}
}
