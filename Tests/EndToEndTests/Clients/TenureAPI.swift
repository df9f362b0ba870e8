import AsyncHTTPClient
import Crypto
import Foundation
import NIOCore
import NIOHTTP1

@testable import HTTPAPI

/// Calls Tenure from an app's server, with AsyncHTTPClient and swift-crypto; to be copied.
///
/// A call that gets no answer, or one that says "later", is sent again with pauses that double.
/// That is harmless: each call names what it is about, so the second one finds what the first did.
struct TenureAPI: Sendable {
  private static let attempts = 6
  /// Before the second attempt; doubled before each further one.
  private static let firstPause = Duration.milliseconds(200)
  private static let longestPause = Duration.seconds(10)
  /// How long the feed holds a question to which there is no answer yet.
  private static let wait = Duration.seconds(20)
  /// Far above the largest answer.
  private static let mostBytes = 16 << 20

  let url: String
  let key: String
  /// Of one attempt: Apple is given 10 seconds of it.
  var timeout = Duration.seconds(15)
  var client = HTTPClient.shared

  /// What Tenure refuses: sending it again would change nothing.
  struct Problem: Error, Decodable {
    var status: Int
    var code: String
    var detail: String?
    var requestId: String?
  }

  /// No answer after all attempts; what was sent may have been done.
  struct Unavailable: Error {
    var reason: String
  }

  // MARK: Before a purchase

  struct Account: Decodable, Sendable {
    var accountId: String
    /// To pass to StoreKit with every purchase.
    var appAccountToken: UUID
  }

  /// The account; created if it is new.
  func account(_ account: String) async throws -> Account {
    try await call(.PUT, "/v1/accounts/\(Self.quoted(account))")
  }

  struct Order: Decodable, Sendable {
    var orderId: String
    var status: String
  }

  /// Opens an order; one whose answer is lost is opened twice, and the other one expires, unpaid.
  func openOrder(of account: String, for product: String) async throws -> Order {
    try await call(.POST, "/v1/orders", ["account_id": account, "product_id": product])
  }

  // MARK: After a purchase

  /// What an app sends; either the one or the other.
  struct Purchase: Encodable, Sendable {
    var accountId: String
    /// As StoreKit 2 signed them.
    var signedTransactions: [String]?
    var receiptData: String?
    var orderId: String?
    var transactionId: String?
    var restore: Bool?
  }

  struct Submission: Decodable, Sendable {
    var submissionId: String
    /// `verified`; or `pending`, if Apple can't be asked just now.
    var status: String
    var transactions: [Transaction]?
    var order: Order?
    var warnings: [String]?

    /// What to deliver, unless your database says that it was: remember each transaction id.
    ///
    /// `newly_owned` says it in one answer only, and that one may be lost.
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

  /// Submits what was bought.
  func submit(_ purchase: Purchase) async throws -> Submission {
    try await call(.POST, "/v1/receipts", purchase)
  }

  /// Waits until a pending submission is decided: for jobs, not while a customer waits.
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

  /// Says that a transaction was delivered; whether nobody had said so before.
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

  /// What the account may use now; keep it for minutes, and never beyond `accessEndsAt`.
  func entitlements(of account: String) async throws -> [Entitlement] {
    let path = "/v1/accounts/\(Self.quoted(account))/entitlements?active=true"
    return try await call(.GET, path, as: Entitlements.self).entitlements
  }

  /// Add what you need of its data.
  struct Event: Decodable, Sendable {
    var id: String
    var type: String
    var accountId: String?
  }

  private struct Page: Decodable {
    var events: [Event]
    var next: String
  }

  /// Reads every change from a cursor on (nil: the oldest kept), until `apply` returns false.
  ///
  /// `apply` stores the cursor in the transaction in which it applies the events: then none is
  /// skipped, and none is applied twice. Problem `cursor_expired` means that events were deleted
  /// before they were read, `cursor_unknown` that the server was set back: in both cases ask for
  /// all entitlements, and follow from nil.
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

  /// Whether Tenure sent a webhook with this `Tenure-Signature` within the last five minutes.
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
      // The same of all attempts: Tenure's log has them together.
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
      // Half of it left to chance, so that servers that failed together don't return together.
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
