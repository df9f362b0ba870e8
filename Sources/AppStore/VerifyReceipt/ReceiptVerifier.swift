import JSONText
package import Logging
package import Secrets
package import Subscriptions

/// Verifies receipts with Apple's verifyReceipt endpoint; see <doc:VerifyingReceipts>.
///
/// ```swift
/// let verifier = ReceiptVerifier(
///   transport: transport, apps: apps, timeout: .seconds(30), logger: logger, now: now)
/// let verification = await verifier.verify(receiptData, bundleID: "com.example.app")
/// if case .verified(let receipt) = verification.verdict { record(receipt.evidence) }
/// ```
///
/// It is stateless and knows nothing of accounts. Logs contain no receipt, secret or token.
package struct ReceiptVerifier: Sendable {
  private let endpoints: AppleURLs
  private let apps: AppStoreApps
  private let timeout: Duration
  private let logger: Logger
  private let requests: AppleRequests
  private let statuses = CounterTable(
    "tenure_apple_receipt_statuses_total", by: "status",
    of: (knownStatuses + ["other"]).map { [$0] })
  private let now: @Sendable () -> Timestamp

  /// Apple's statuses; others are counted as `other`, because they may come from any server.
  private static let knownStatuses = ([0] + Array(21_000...21_010)).map(String.init)

  private static let call = "verifyReceipt"

  /// `timeout` applies to each request; a verification nearly always takes one or two.
  package init(
    transport: any AppStoreTransport, endpoints: AppleURLs = .verifyReceipt,
    apps: AppStoreApps, timeout: Duration, logger: Logger, now: @escaping @Sendable () -> Timestamp
  ) {
    requests = AppleRequests(
      transport: transport, metrics: AppleMetrics(api: "verify_receipt"), logger: logger,
      message: "Asked Apple about a receipt")
    self.endpoints = endpoints
    self.apps = apps
    self.timeout = timeout
    self.logger = logger
    self.now = now
  }

  /// The worst case: each distinct secret at each visit, with a response at the last moment.
  package var longestVerification: Duration {
    timeout * (EndpointState.visitLimit * apps.secrets(likeliest: nil).count)
  }

  /// - Parameter bundleID: If not nil, only this app's receipts are accepted.
  package func verify(_ receiptData: String, bundleID: String? = nil) async -> ReceiptVerification {
    if let bundleID, apps[bundleID] == nil {
      let rejection = ReceiptRejection(
        code: .wrongBundleID, reason: "The app \(bundleID) is not configured.")
      return ReceiptVerification(verdict: .rejected(rejection), exchanges: [])
    }
    var judge = ReceiptStateMachine(apps: apps, namedBundleID: bundleID, logger: logger)
    var exchanges: [Exchange] = []
    while true {
      let request = VerifyReceiptRequest(receiptData: receiptData, password: judge.secret)
      let (exchange, failure) = await ask(judge.route.endpoint, request)
      exchanges.append(exchange)
      if let verdict = failure ?? judge.verdict(on: exchange) {
        return ReceiptVerification(verdict: verdict, exchanges: exchanges)
      }
    }
  }

  /// Sends one request; the verdict is nil if a complete response arrived.
  private func ask(
    _ endpoint: Environment, _ body: VerifyReceiptRequest
  ) async -> (Exchange, ReceiptVerdict?) {
    var exchange = Exchange(
      endpoint: endpoint, url: endpoints[endpoint], startedAt: now(), duration: .zero)
    let request = AppStoreRequest(
      method: "POST", url: exchange.url, headers: [HTTPHeader("Content-Type", "application/json")],
      body: body.json.bytes, timeout: timeout)
    let (outcome, duration) = await requests.send(request, Self.call, to: endpoint)
    exchange.duration = duration
    switch outcome {
    case .success(let response):
      exchange.response = response
      if let status = ReceiptResponse.status(of: response.body).map(String.init) {
        statuses.increment(Self.knownStatuses.contains(status) ? status : "other")
      }
      return (exchange, nil)
    case .failure(let error as AppStoreTransportError):
      exchange.response = error.partial
      exchange.fault = error.description
      return (
        exchange,
        error.kind == .invalidURL
          ? .misconfigured(reason: error.description)
          : .retry(ReceiptRetry(reason: error.description))
      )
    case .failure(let error):
      let reason =
        error is CancellationError
        ? "The verification was interrupted: the program is stopping."
        : "The request to Apple failed: \(error)."
      exchange.fault = reason
      return (exchange, .retry(ReceiptRetry(reason: reason)))
    }
  }
}

package struct VerifyReceiptRequest: Sendable, CustomStringConvertible {
  package var receiptData: String
  /// The shared secret; required for receipts with subscriptions.
  package var password: Secret<String>?

  package init(receiptData: String, password: Secret<String>?) {
    (self.receiptData, self.password) = (receiptData, password)
  }

  /// The body including the secret; equal requests have equal bytes.
  var json: JSONValue {
    let secret = password.map { [JSONValue.Member(key: "password", value: .string($0.revealed))] }
    let receipt = JSONValue.Member(key: "receipt-data", value: .string(receiptData))
    return .object((secret ?? []) + [receipt])
  }

  package var description: String { "verifyReceipt of \(receiptData.utf8.count) bytes" }
}

package struct ReceiptVerification: Sendable {
  package var verdict: ReceiptVerdict
  /// In order; empty if no request was needed.
  package var exchanges: [Exchange]
}

package enum ReceiptVerdict: Hashable, Sendable {
  /// Verified by Apple; its records show whether it grants anything now.
  case verified(VerifiedReceipt)
  case rejected(ReceiptRejection)
  /// Undecided; verify again later. Never a reason to revoke access.
  case retry(ReceiptRetry)
  /// Impossible by the configuration: alert the operator, keep the receipt and revoke nothing.
  /// The reason is a sentence for the operator, without secrets.
  case misconfigured(reason: String, appleStatus: Int? = nil)
}

package struct ReceiptRejection: Hashable, Sendable {
  /// The API's problem codes.
  package enum Code: String, Sendable {
    case receiptRejected = "receipt_rejected"
    case wrongBundleID = "wrong_bundle_id"
  }

  package var code: Code
  /// One sentence for the sender of the receipt.
  package var reason: String
  /// Nil if the rejection was not Apple's.
  package var appleStatus: Int?
}

package struct ReceiptRetry: Hashable, Sendable {
  /// When to accept a status that may be Apple's error.
  ///
  /// Apple has returned 21002 for good receipts, once for a day (2023-02-07, SwiftyStoreKit issue
  /// 687), which a paid receipt must survive: only responses with this status count, and many are
  /// required over more than a day; other failures in between say nothing about the receipt.
  package struct Limit: Hashable, Sendable {
    /// Verifications that must have ended with the status, including the current one.
    package static let attempts = 12
    /// Minimum age of the first of them.
    package static let time: Duration = .days(1)

    package var status: Int
    /// The verdict once the limit is reached.
    package var rejection: ReceiptRejection

    /// Whether the verification that ended `now` reaches the limit, given the earlier responses.
    package func isReached(
      after earlier: [(askedAt: Timestamp, answer: [UInt8])], now: Timestamp
    ) -> Bool {
      let alike = earlier.filter { ReceiptResponse.status(of: $0.answer) == status }
      guard let first = alike.map(\.askedAt).min() else { return false }
      return alike.count + 1 >= Self.attempts && now - first > Self.time
    }
  }

  package var reason: String
  package var appleStatus: Int?
  /// The time before which Apple asked not to retry.
  package var notBefore: Timestamp?
  /// Nil: retried until the retry window ends.
  package var limit: Limit?
}
