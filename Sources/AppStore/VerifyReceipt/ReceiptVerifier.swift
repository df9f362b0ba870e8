package import CoreMetrics
import Foundation
package import Logging
package import Secrets
package import Subscriptions

/// Verifies receipts with Apple's verifyReceipt endpoint.
///
/// ```swift
/// let verifier = ReceiptVerifier(
///   transport: transport, apps: apps, timeout: .seconds(30), logger: logger, now: now)
/// let verification = await verifier.verify(receiptData, bundleID: "com.example.app")
/// if case .verified(let receipt) = verification.verdict { record(receipt.evidence) }
/// ```
/// It is stateless and knows nothing of accounts. Logs contain no receipt, secret or token.
package struct ReceiptVerifier: Sendable {
  private let transport: any AppStoreTransport
  private let endpoints: VerifyReceiptEndpoints
  private let apps: AppStoreApps
  private let timeout: Duration
  private let logger: Logger
  private let requests: AppleMetrics
  private let statuses: ReceiptStatusMetrics
  private let now: @Sendable () -> Timestamp

  /// Apple's name of the endpoint.
  private static let call = "verifyReceipt"

  /// `timeout` applies to each request; a verification nearly always takes one or two.
  package init(
    transport: any AppStoreTransport, endpoints: VerifyReceiptEndpoints = .apple,
    apps: AppStoreApps, timeout: Duration, logger: Logger,
    metrics: any MetricsFactory = MetricsSystem.factory,
    now: @escaping @Sendable () -> Timestamp
  ) {
    requests = AppleMetrics(api: "verify_receipt", calls: [Self.call], metrics)
    statuses = ReceiptStatusMetrics(metrics)
    self.transport = transport
    self.endpoints = endpoints
    self.apps = apps
    self.timeout = timeout
    self.logger = logger
    self.now = now
  }

  /// The worst case: each distinct secret at each visit to an endpoint, with a response at the last
  /// moment.
  package var longestVerification: Duration {
    timeout * (EndpointState.visitLimit * apps.secrets(likeliest: nil).count)
  }

  /// Verifies a receipt; every outcome is a verdict.
  ///
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
    let (startedAt, start) = (now(), ContinuousClock.now)
    var exchange = Exchange(
      endpoint: endpoint, url: endpoints[endpoint], startedAt: startedAt, duration: .zero)
    var verdict: ReceiptVerdict?
    let outcome: AppleMetrics.Outcome
    do {
      let response = try await transport.send(try request(exchange.url, body))
      exchange.response = response
      outcome = AppleMetrics.Outcome(httpStatus: response.status)
      if let status = ReceiptResponse.status(of: response.body) { statuses.count(status) }
    } catch let error as AppStoreTransportError {
      outcome = AppleMetrics.Outcome(error)
      exchange.response = error.partial
      exchange.fault = error.description
      verdict =
        error.kind == .invalidURL
        ? .misconfigured(ReceiptMisconfiguration(reason: error.description))
        : .retry(ReceiptRetry(reason: error.description))
    } catch {
      outcome = AppleMetrics.Outcome(error)
      let reason =
        error is CancellationError
        ? "The verification was interrupted: the program is stopping."
        : "The request to Apple failed: \(error)."
      exchange.fault = reason
      verdict = .retry(ReceiptRetry(reason: reason))
    }
    exchange.duration = ContinuousClock.now - start
    requests.count(Self.call, in: endpoint, outcome, after: exchange.duration)
    log(exchange)
    return (exchange, verdict)
  }

  private func request(_ url: String, _ body: VerifyReceiptRequest) throws -> AppStoreRequest {
    let encoder = JSONEncoder()
    // Receipts contain many slashes; sorted keys make equal requests byte-identical.
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return AppStoreRequest(
      method: "POST", url: url, headers: [HTTPHeader("Content-Type", "application/json")],
      body: Array(try encoder.encode(body)), timeout: timeout)
  }

  private func log(_ exchange: Exchange) {
    logger.debug(
      "Asked Apple about a receipt",
      metadata: [
        "appstore.endpoint": "\(exchange.endpoint.rawValue)",
        "appstore.http_status": "\(exchange.httpStatus.map(String.init) ?? "none")",
        "appstore.bytes": "\(exchange.answer.count)",
        "appstore.milliseconds": "\(exchange.duration.inMilliseconds)",
        "appstore.fault": "\(exchange.fault ?? "none")",
      ])
  }
}

/// The body of a verifyReceipt request.
///
/// See https://developer.apple.com/documentation/appstorereceipts/requestbody.
package struct VerifyReceiptRequest: Encodable, Sendable, CustomStringConvertible {
  /// The receipt in base64, as sent by the app.
  package var receiptData: String
  /// The shared secret; required for receipts with subscriptions.
  package var password: Secret<String>?

  package init(receiptData: String, password: Secret<String>?) {
    self.receiptData = receiptData
    self.password = password
  }

  private enum CodingKeys: String, CodingKey {
    case receiptData = "receipt-data"
    case password
  }

  /// Encodes the body including the secret.
  package func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(receiptData, forKey: .receiptData)
    try container.encodeIfPresent(password?.revealed, forKey: .password)
  }

  package var description: String { "verifyReceipt of \(receiptData.utf8.count) bytes" }
}
