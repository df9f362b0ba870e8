import Logging
import Secrets
import Subscriptions

/// Decides the verdict on a receipt from Apple's responses, without I/O.
struct ReceiptStateMachine {
  let apps: AppStoreApps
  let namedBundleID: String?
  let logger: Logger
  /// The endpoint and the secret for the next request.
  private(set) var route: EndpointState
  private let secrets: [Secret<String>?]

  init(apps: AppStoreApps, namedBundleID: String?, logger: Logger) {
    (self.apps, self.namedBundleID, self.logger) = (apps, namedBundleID, logger)
    secrets = apps.secrets(likeliest: namedBundleID)
    route = EndpointState(secretCount: secrets.count)
  }

  var secret: Secret<String>? { secrets[route.secret] }

  /// The verdict on a response; nil if another request must be sent along the route.
  mutating func verdict(on exchange: Exchange) -> ReceiptVerdict? {
    guard let response = exchange.response else {
      return .retry(ReceiptRetry(reason: "Apple did not respond."))
    }
    switch ReceiptReading(response, url: exchange.url, answeredAt: exchange.endedAt) {
    case .verdict(let verdict): return verdict
    case .answer(let answer): return verdict(on: answer, exchange)
    }
  }

  /// The meaning of each `status`, of which only some may remove a receipt from the queue
  /// (https://developer.apple.com/documentation/appstorereceipts/status).
  private mutating func verdict(
    on answer: ReceiptResponse, _ exchange: Exchange
  ) -> ReceiptVerdict? {
    if let contents = answer.contents { return verdict(on: contents, of: answer, exchange) }
    let status = answer.status
    func retry(_ reason: String) -> ReceiptVerdict {
      .retry(ReceiptRetry(reason: "\(reason) (status \(status)).", appleStatus: status))
    }
    func rejected(_ reason: String) -> ReceiptVerdict {
      .rejected(rejection("\(reason) (status \(status)).", status))
    }
    switch status {
    case 21000:
      return .misconfigured(
        reason: "Apple did not receive a POST request: a proxy may rewrite it (status 21000).",
        appleStatus: status)
    case 21002:
      // Usually the receipt's fault and sometimes Apple's; rejected after several attempts.
      let reason = "Apple reports a malformed receipt, or has an outage (status 21002)."
      let limit = ReceiptRetry.Limit(status: status, rejection: rejection(reason, status))
      return .retry(ReceiptRetry(reason: reason, appleStatus: status, limit: limit))
    case 21003: return rejected("Apple could not authenticate the receipt")
    case 21004: return verdict(route.secretIsWrong(), exchange, status)
    case 21005: return retry("Apple's receipt server is currently unavailable")
    case 21007: return verdict(route.isReferred(to: .sandbox), exchange, status)
    case 21008: return verdict(route.isReferred(to: .production), exchange, status)
    case 21009: return retry("Apple had an internal data access error")
    case 21010: return rejected("Apple does not know the customer's account, or has deleted it")
    case 21100...21199 where answer.isRetryable == false:
      return rejected("Apple had an internal data access error and asks not to retry")
    case 21100...21199: return retry("Apple had an internal data access error")
    // 21001 is no longer sent, so it is treated like any unknown number.
    default: return retry("Apple returned an undocumented status")
    }
  }

  private func verdict(
    _ step: EndpointState.Step, _ exchange: Exchange, _ status: Int
  ) -> ReceiptVerdict? {
    switch step {
    case .ask: nil
    case .swapped:
      .misconfigured(
        reason: "\(exchange.url) is configured for \(exchange.endpoint.rawValue) but refers "
          + "\(exchange.endpoint.rawValue) receipts elsewhere: check the two URLs.",
        appleStatus: status)
    case .contradiction:
      .retry(
        ReceiptRetry(
          reason: "Production and sandbox each refer the receipt to the other.",
          appleStatus: status))
    case .noSecretFits: .misconfigured(reason: secretFault(status: status), appleStatus: status)
    }
  }

  private func secretFault(status: Int) -> String {
    let apps = namedBundleID.map { [$0] } ?? self.apps.all.map(\.bundleID)
    let names = apps.joined(separator: ", ")
    return secrets.allSatisfy { $0 == nil }
      ? "Apple requires a shared secret (status \(status)), but none is configured for \(names)."
      : "Apple rejected the shared secret (status \(status)): check that of \(names)."
  }

  private mutating func verdict(
    on contents: ReceiptResponse.Contents, of answer: ReceiptResponse, _ exchange: Exchange
  ) -> ReceiptVerdict? {
    if let name = answer.environment {
      guard let environment = Environment(rawValue: name.lowercased()) else {
        return .retry(ReceiptRetry(reason: "Apple's response names an unknown environment."))
      }
      if environment != exchange.endpoint {
        return verdict(route.isReferred(to: environment), exchange, answer.status)
      }
    }
    let app: AppStoreApp
    switch apps.owner(of: contents.bundleIDs, named: namedBundleID) {
    case .app(let found): app = found
    case .assumed(let found):
      logger.notice(
        "Apple's response names no app", metadata: ["appstore.assumed": "\(found.bundleID)"])
      app = found
    case .refused(let reason):
      return .rejected(
        ReceiptRejection(code: .wrongBundleID, reason: reason, appleStatus: answer.status))
    }
    // Accepted without a password; with the app's own, the response may contain subscriptions.
    if secret == nil, let own = secrets.firstIndex(of: app.sharedSecret), route.isTrying(own) {
      return nil
    }
    let receipt = VerifiedReceipt(
      contents, status: answer.status, environment: exchange.endpoint, bundleID: app.bundleID,
      answeredAt: exchange.endedAt)
    log(receipt)
    return .verified(receipt)
  }

  private func rejection(_ reason: String, _ status: Int) -> ReceiptRejection {
    ReceiptRejection(code: .receiptRejected, reason: reason, appleStatus: status)
  }

  private func log(_ receipt: VerifiedReceipt) {
    guard !receipt.unreadable.isEmpty || receipt.unusableAppAccountTokens > 0 else { return }
    logger.warning(
      "Parts of Apple's response could not be read",
      metadata: [
        "appstore.bundle_id": "\(receipt.bundleID)",
        "appstore.unreadable": "\(receipt.unreadable.map(\.description).prefix(10))",
        "appstore.unreadable_count": "\(receipt.unreadable.count)",
        "appstore.unusable_app_account_tokens": "\(receipt.unusableAppAccountTokens)",
      ])
  }
}

/// The route of a receipt through endpoints and secrets, without I/O.
///
/// Production always comes first: App Review and TestFlight send sandbox receipts to production
/// builds. Each secret is tried once per visit, of which there are at most three, so every route
/// ends.
struct EndpointState {
  private(set) var endpoint = Environment.production
  private(set) var secret = 0
  private let secretCount: Int
  /// Secrets tried during this visit.
  private var tried: Set<Int> = [0]
  private var visits = 1

  /// Production, sandbox, and production once more if the sandbox refers back.
  static let visitLimit = 3

  enum Step: Hashable {
    case ask
    /// The environment refers to itself, so its URL must be the other's.
    case swapped
    case contradiction
    case noSecretFits
  }

  /// `secretCount` is the number of distinct secrets, at least one, likeliest first.
  init(secretCount: Int) { self.secretCount = secretCount }

  mutating func isReferred(to environment: Environment) -> Step {
    guard environment != endpoint else { return .swapped }
    guard visits < Self.visitLimit else { return .contradiction }
    visits += 1
    endpoint = environment
    tried = [secret]
    return .ask
  }

  mutating func secretIsWrong() -> Step {
    guard let next = (0..<secretCount).first(where: { !tried.contains($0) }) else {
      return .noSecretFits
    }
    return isTrying(next) ? .ask : .noSecretFits
  }

  /// Switches to a secret; false if it was already tried during this visit.
  mutating func isTrying(_ secret: Int) -> Bool {
    guard tried.insert(secret).inserted else { return false }
    self.secret = secret
    return true
  }
}

/// The app that a receipt belongs to, as far as it can be determined.
enum ReceiptOwner: Hashable {
  case app(AppStoreApp)
  /// The response names no app, as in trimmed payloads, and only this one is possible.
  case assumed(AppStoreApp)
  case refused(String)
}

extension AppStoreApps {
  /// The owner of a receipt for which Apple named `bundleIDs` and the sender `named`.
  func owner(of bundleIDs: Set<String>, named: String?) -> ReceiptOwner {
    guard let bundleID = bundleIDs.first else {
      if let app = named.flatMap({ self[$0] }) { return .assumed(app) }
      guard let only = all.first, all.count == 1 else {
        return .refused(
          "Apple's response names no app and several are configured: send the bundle ID.")
      }
      return .assumed(only)
    }
    guard bundleIDs.count == 1 else {
      return .refused("The receipt names several apps: \(bundleIDs.sorted()).")
    }
    guard !bundleID.isEmpty else { return .refused("The receipt's bundle ID is empty.") }
    guard let app = self[bundleID] else {
      return .refused("The receipt belongs to \(bundleID), which is not configured.")
    }
    guard named.map({ ExactText($0) == ExactText(bundleID) }) ?? true else {
      return .refused("The receipt belongs to \(bundleID), not to \(named ?? "another app").")
    }
    return .app(app)
  }
}
