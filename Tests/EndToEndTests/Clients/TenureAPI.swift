import AsyncHTTPClient
import Crypto
import Foundation
import NIOCore
import NIOHTTP1
@testable import HTTPAPI

/// A Tenure client to copy into your app server, with AsyncHTTPClient and swift-crypto.
///
/// Calls without a response, or with status 429 or 5xx, are retried with exponential backoff. This
/// is safe: each call identifies its subject, so a retry finds the result of the first attempt.
struct TenureAPI: Sendable {
  private static let attempts = 6
  /// Doubled after each attempt.
  private static let firstPause = Duration.milliseconds(200)
  private static let longestPause = Duration.seconds(10)
  /// How long the feed waits for new events.
  private static let wait = Duration.seconds(20)
  /// Far above the largest response.
  private static let mostBytes = 16 << 20

  let url: String
  let key: String
  /// The timeout of one attempt; Tenure waits up to 10 seconds for Apple.
  var timeout = Duration.seconds(15)
  var client = HTTPClient.shared

  /// A rejected request; retrying it does not help.
  struct Problem: Error, Decodable {
    var status: Int
    var code: String
    var detail: String?
    var requestId: String?
  }

  /// No response after all attempts; the request may have taken effect.
  struct Unavailable: Error {
    var reason: String
  }

  // MARK: Before a purchase

  struct Account: Decodable, Sendable {
    var accountId: String
    /// Pass it to StoreKit with every purchase.
    var appAccountToken: UUID
  }

  /// Returns the account, creating it if necessary.
  func account(_ account: String) async throws -> Account {
    try await call(.PUT, "/v1/accounts/\(Self.quoted(account))")
  }

  struct Order: Decodable, Sendable {
    var orderId: String
    var status: String
  }

  /// Opens an order; if the response is lost, a retry opens another one, and the first expires.
  func openOrder(of account: String, for product: String) async throws -> Order {
    try await call(.POST, "/v1/orders", ["account_id": account, "product_id": product])
  }

  // MARK: After a purchase

  /// A submission: either `signedTransactions` or `receiptData`.
  struct Purchase: Encodable, Sendable {
    var accountId: String
    /// In StoreKit 2's JWS representation.
    var signedTransactions: [String]?
    var receiptData: String?
    var orderId: String?
    var transactionId: String?
    var restore: Bool?
  }

  struct Submission: Decodable, Sendable {
    var submissionId: String
    /// `verified`, or `pending` if Apple is unavailable.
    var status: String
    var transactions: [Transaction]?
    var order: Order?
    var warnings: [String]?

    /// The transactions to deliver, unless your database has their transaction ID already.
    ///
    /// Don't rely on `newly_owned`: only one response has it set, and that one may be lost.
    func owned(by account: String) -> [Transaction] {
      (transactions ?? []).filter { $0.ownerAccountId == account && $0.revokedAt == nil }
    }
  }

  struct Transaction: Decodable, Sendable {
    var transactionId: String
    var productId: String
    var ownerAccountId: String?
    var revokedAt: String?
  }

  func submit(_ purchase: Purchase) async throws -> Submission {
    try await call(.POST, "/v1/receipts", purchase)
  }

  /// Waits until a pending submission is decided; for background jobs only.
  func settled(
    _ submission: Submission, within patience: Duration = .seconds(60)
  ) async throws -> Submission {
    var submission = submission
    let end = ContinuousClock.now + patience
    var pause = Self.firstPause
    while submission.status == "pending", ContinuousClock.now < end {
      try await Task.sleep(for: pause)
      pause = min(pause * 2, Self.longestPause)
      submission = try await call(.GET, "/v1/receipts/\(submission.submissionId)")
    }
    return submission
  }

  private struct Delivery: Decodable {
    var first: Bool
  }

  /// Acknowledges the delivery of a transaction, and returns whether this is the first time.
  func acknowledge(_ transaction: String, of account: String) async throws -> Bool {
    let path = "/v1/transactions/\(Self.quoted(transaction))/delivery"
    return try await call(.POST, path, ["account_id": account], as: Delivery.self).first
  }

  // MARK: At any time

  struct Entitlement: Decodable, Sendable {
    var entitlement: String
    var accessEndsAt: String?
  }

  private struct Entitlements: Decodable {
    var entitlements: [Entitlement]
  }

  /// Returns the active entitlements; cache for minutes, and never beyond `accessEndsAt`.
  func entitlements(of account: String) async throws -> [Entitlement] {
    let path = "/v1/accounts/\(Self.quoted(account))/entitlements?active=true"
    return try await call(.GET, path, as: Entitlements.self).entitlements
  }

  /// Add the fields you need of its data.
  struct Event: Decodable, Sendable {
    var id: String
    var type: String
    var accountId: String?
  }

  private struct Page: Decodable {
    var events: [Event]
    var next: String
  }

  /// Reads all events after a cursor (nil: from the oldest), until `apply` returns false.
  ///
  /// `apply` must store the cursor in the database transaction that applies the events, so that
  /// none is skipped or applied twice. On a `cursor_expired` problem (unread events were deleted)
  /// or `cursor_unknown` (the server was restored from a backup), read all entitlements and follow
  /// from nil.
  func follow(
    after cursor: String?, apply: (_ events: [Event], _ next: String) async throws -> Bool
  ) async throws {
    var cursor = cursor
    while true {
      let after = cursor.map { "&after=\(Self.quoted($0))" } ?? ""
      let path = "/v1/events?limit=500&wait=\(Self.wait.components.seconds)\(after)"
      let page = try await call(.GET, path, timeout: timeout + Self.wait, as: Page.self)
      cursor = page.next
      guard try await apply(page.events, page.next) else { return }
    }
  }

  /// Returns whether Tenure sent this webhook within the last five minutes (`Tenure-Signature`).
  static func isGenuine(
    _ header: String, body: Data, secret: String, now: Date = Date()
  ) -> Bool {
    let fields = header.split(separator: ",").map { $0.split(separator: "=", maxSplits: 1) }
    func values(_ name: String) -> [Substring] {
      fields.filter { $0.count == 2 && $0[0] == name }.map { $0[1] }
    }
    guard let sent = values("t").first, let second = TimeInterval(sent),
      abs(now.timeIntervalSince1970 - second) <= 300
    else { return false }
    let key = SymmetricKey(data: Data(secret.utf8))
    return values("v1").contains { hex in
      let code = stride(from: 0, to: min(hex.count, 64), by: 2).compactMap {
        UInt8(hex.dropFirst($0).prefix(2), radix: 16)
      }
      return HMAC<SHA256>.isValidAuthenticationCode(
        code, authenticating: Data("\(sent).".utf8) + body, using: key)
    }
  }

  // MARK: The call itself

  private struct Nothing: Encodable {}

  private func call<Answer: Decodable>(
    _ method: HTTPMethod, _ path: String, _ body: (some Encodable)? = Nothing?.none,
    timeout: Duration? = nil, as: Answer.Type = Answer.self
  ) async throws -> Answer {
    var request = HTTPClientRequest(url: url + path)
    request.method = method
    request.headers = [
      "Authorization": "Bearer \(key)", "Content-Type": "application/json",
      // The same for all attempts, to find them together in Tenure's log.
      "X-Request-ID": UUID().uuidString,
    ]
    if let body {
      let encoder = JSONEncoder()
      encoder.keyEncodingStrategy = .convertToSnakeCase
      request.body = .bytes(ByteBuffer(bytes: try encoder.encode(body)))
    }
    let limit = TimeAmount(timeout ?? self.timeout)
    var pause = Self.firstPause
    for attempt in 1... {
      let reason: String
      var later = Duration.zero
      do {
        let answer = try await client.execute(request, timeout: limit)
        let bytes = try await answer.body.collect(upTo: Self.mostBytes)
        if (200..<300).contains(answer.status.code) {
          return try Self.decoder.decode(Answer.self, from: Data(bytes.readableBytesView))
        }
        if answer.status != .tooManyRequests, answer.status.code < 500 {
          throw (try? Self.decoder.decode(Problem.self, from: Data(bytes.readableBytesView)))
            ?? Problem(status: Int(answer.status.code), code: "unknown")
        }
        reason = "status \(answer.status.code)"
        let seconds = answer.headers.first(name: "Retry-After").flatMap { Int($0) }
        later = .seconds(seconds ?? 0)
      } catch let problem as Problem {
        throw problem
      } catch is CancellationError {
        throw CancellationError()
      } catch {
        reason = "\(error)"
      }
      guard attempt < Self.attempts else {
        throw Unavailable(reason: "\(method) \(path): \(reason)")
      }
      // With 50% jitter, so that servers that failed together don't retry together.
      let chosen = pause * Double.random(in: 0.5...1)
      try await Task.sleep(for: max(min(later, Self.longestPause), chosen))
      pause = min(pause * 2, Self.longestPause)
    }
    preconditionFailure("The last attempt returns or throws.")
  }

  private static var decoder: JSONDecoder {
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    return decoder
  }

  private static func quoted(_ name: String) -> String {
    let unreserved = CharacterSet(
      charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
    return name.addingPercentEncoding(withAllowedCharacters: unreserved) ?? name
  }
}
