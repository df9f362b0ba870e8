import Foundation
package import Logging
package import Subscriptions

/// Asks Apple about receipts by way of verifyReceipt.
///
/// It keeps nothing and decides nothing about accounts: a receipt in, a verdict out, with each
/// exchange for the audit trail. Logs name no receipt, secret or token.
package struct ReceiptVerifier: Sendable {
  private let transport: any AppStoreTransport
  private let endpoints: VerifyReceiptEndpoints
  private let apps: AppStoreApps
  private let timeout: Duration
  private let logger: Logger
  private let now: @Sendable () -> Timestamp

  /// `timeout` bounds each request to Apple; one verification makes up to three for each distinct
  /// shared secret, and nearly always one or two.
  package init(
    transport: any AppStoreTransport, endpoints: VerifyReceiptEndpoints = .apple,
    apps: AppStoreApps, timeout: Duration, logger: Logger,
    now: @escaping @Sendable () -> Timestamp
  ) {
    self.transport = transport
    self.endpoints = endpoints
    self.apps = apps
    self.timeout = timeout
    self.logger = logger
    self.now = now
  }

  /// Asks Apple about the receipt; never throws, for every outcome is a verdict.
  ///
  /// `bundleID` is the app that the sender named: only that app's receipts are accepted then.
  /// `excludeOldTransactions` asks for the newest transaction of each subscription only.
  package func verify(
    _ receiptData: String, bundleID: String? = nil, excludeOldTransactions: Bool = false
  ) async -> ReceiptVerification {
    if let bundleID, apps[bundleID] == nil {
      let rejection = ReceiptRejection(
        code: .wrongBundleID, reason: "\(bundleID) is not an app that is served here.")
      return ReceiptVerification(verdict: .rejected(rejection), exchanges: [])
    }
    var judge = ReceiptJudge(
      apps: apps, namedBundleID: bundleID,
      receiptHasSpaces: receiptData.contains(where: \.isWhitespace), logger: logger)
    var exchanges: [Exchange] = []
    while true {
      let secret = judge.secret
      let request = VerifyReceiptRequest(
        receiptData: receiptData, password: secret.value,
        excludeOldTransactions: excludeOldTransactions ? true : nil)
      let (exchange, failure) = await ask(judge.route.endpoint, secret, request)
      exchanges.append(exchange)
      if let verdict = failure ?? judge.verdict(on: exchange) {
        return ReceiptVerification(verdict: verdict, exchanges: exchanges)
      }
    }
  }

  /// Asks once; the verdict is that on a request that got no whole answer, and otherwise nil.
  private func ask(
    _ endpoint: Environment, _ secret: SharedSecret, _ body: VerifyReceiptRequest
  ) async -> (Exchange, ReceiptVerdict?) {
    let (startedAt, start) = (now(), ContinuousClock.now)
    var exchange = Exchange(
      endpoint: endpoint, url: endpoints[endpoint], sharedSecretOf: secret.bundleID,
      startedAt: startedAt, duration: .zero)
    var verdict: ReceiptVerdict?
    do {
      exchange.response = try await transport.send(try request(exchange.url, body))
    } catch let error as AppStoreTransportError {
      exchange.response = error.partial
      exchange.fault = error.description
      verdict =
        error.kind == .invalidURL
        ? .misconfigured(ReceiptMisconfiguration(reason: error.description))
        : .retry(ReceiptRetry(reason: error.description))
    } catch {
      let reason =
        error is CancellationError
        ? "The verification was interrupted: the program is stopping."
        : "Apple could not be asked: \(error)."
      exchange.fault = reason
      verdict = .retry(ReceiptRetry(reason: reason))
    }
    exchange.duration = ContinuousClock.now - start
    log(exchange)
    return (exchange, verdict)
  }

  private func request(_ url: String, _ body: VerifyReceiptRequest) throws -> AppStoreRequest {
    let encoder = JSONEncoder()
    // A receipt is full of slashes; sorted keys make equal requests equal bytes.
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
