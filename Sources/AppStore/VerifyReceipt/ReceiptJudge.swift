import Logging
import Secrets
import Subscriptions

/// Judges what Apple answers about one receipt; asks nothing itself.
struct ReceiptJudge {
  let apps: AppStoreApps
  /// The app that the sender named.
  let namedBundleID: String?
  let logger: Logger
  /// Where the receipt is to be asked about next.
  private(set) var route: VerificationRoute
  private let secrets: [Secret<String>?]

  init(apps: AppStoreApps, namedBundleID: String?, logger: Logger) {
    self.apps = apps
    self.namedBundleID = namedBundleID
    self.logger = logger
    secrets = apps.secrets(likeliest: namedBundleID)
    route = VerificationRoute(secretCount: secrets.count)
  }

  /// The secret to send next; nil: none.
  var secret: Secret<String>? { secrets[route.secret] }

  /// The verdict on what was answered; nil: ask where the route leads now.
  mutating func verdict(on exchange: Exchange) -> ReceiptVerdict? {
    guard let response = exchange.response else {
      return .retry(ReceiptRetry(reason: "Apple did not answer."))
    }
    switch ReadAnswer(response, url: exchange.url, answeredAt: exchange.endedAt) {
    case .verdict(let verdict): return verdict
    case .answer(let answer): return verdict(on: answer, exchange)
    }
  }

  private mutating func verdict(
    on answer: ReceiptAnswer, _ exchange: Exchange
  ) -> ReceiptVerdict? {
    let status = answer.status
    switch VerifyReceiptStatus(status, isRetryable: answer.isRetryable) {
    case .verified:
      guard let contents = answer.contents else {
        preconditionFailure("An answer whose status is verified is decoded with its contents.")
      }
      return verdict(on: contents, of: answer, exchange)
    case .elsewhere(let environment):
      return verdict(route.isReferred(to: environment), exchange, status)
    case .wrongSecret:
      return verdict(route.secretIsWrong(), exchange, status)
    case .rejected(let reason):
      return .rejected(rejection("\(reason) (status \(status)).", status))
    case .retry(let reason):
      return .retry(ReceiptRetry(reason: "\(reason) (status \(status)).", appleStatus: status))
    case .limitedRetry(let reason):
      let reason = "\(reason) (status \(status))."
      return .retry(
        ReceiptRetry(
          reason: reason, appleStatus: status,
          limit: ReceiptRetry.Limit(status: status, rejection: rejection(reason, status))))
    case .misconfigured(let reason):
      return .misconfigured(
        ReceiptMisconfiguration(reason: "\(reason) (status \(status)).", appleStatus: status))
    }
  }

  /// What becomes of a step of the route; nil for asking again.
  private func verdict(
    _ step: VerificationRoute.Step, _ exchange: Exchange, _ status: Int
  ) -> ReceiptVerdict? {
    switch step {
    case .ask: nil
    case .swapped:
      .misconfigured(
        ReceiptMisconfiguration(
          reason: "\(exchange.url), which is asked for \(exchange.endpoint.rawValue), refers "
            + "\(exchange.endpoint.rawValue) receipts elsewhere: check the two URLs.",
          appleStatus: status))
    case .contradiction:
      .retry(
        ReceiptRetry(
          reason: "Production and sandbox each say that the receipt is the other's.",
          appleStatus: status))
    case .noSecretFits:
      .misconfigured(
        ReceiptMisconfiguration(reason: secretFault(status: status), appleStatus: status))
    }
  }

  private func secretFault(status: Int) -> String {
    let apps = namedBundleID.map { [$0] } ?? self.apps.all.map(\.bundleID)
    let names = apps.joined(separator: ", ")
    return secrets.allSatisfy { $0 == nil }
      ? "Apple asks for a shared secret (status \(status)), and none is configured for \(names)."
      : "Apple refuses the shared secret (status \(status)): check that of \(names)."
  }

  private mutating func verdict(
    on contents: ReceiptAnswer.Contents, of answer: ReceiptAnswer, _ exchange: Exchange
  ) -> ReceiptVerdict? {
    if let name = answer.environment {
      guard let environment = Environment(rawValue: name.lowercased()) else {
        return .retry(ReceiptRetry(reason: "Apple's answer names an environment of its own."))
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
        "Apple's answer names no app", metadata: ["appstore.assumed": "\(found.bundleID)"])
      app = found
    case .refused(let reason):
      return .rejected(
        ReceiptRejection(code: .wrongBundleID, reason: reason, appleStatus: answer.status))
    }
    // Accepted without a password: with the app's own there may be more, subscriptions above all.
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
      "Parts of Apple's answer could not be read",
      metadata: [
        "appstore.bundle_id": "\(receipt.bundleID)",
        "appstore.unreadable": "\(receipt.unreadable.map(\.description).prefix(10))",
        "appstore.unreadable_count": "\(receipt.unreadable.count)",
        "appstore.unusable_app_account_tokens": "\(receipt.unusableAppAccountTokens)",
      ])
  }
}
