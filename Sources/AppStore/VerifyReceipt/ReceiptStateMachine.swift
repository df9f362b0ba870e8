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

/// The way of one receipt from endpoint to endpoint and from secret to secret; asks nothing.
///
/// Production comes first, always: a receipt from App Review or TestFlight is a sandbox receipt
/// that meets a production build
/// (https://developer.apple.com/documentation/appstorereceipts/verifyreceipt).
/// Each secret is tried once per visit of an endpoint, and there are at most three visits, so that
/// every route ends.
struct VerificationRoute {
  /// Which endpoint to ask.
  private(set) var endpoint = Environment.production
  /// Which of the distinct secrets to send.
  private(set) var secret = 0
  private let secretCount: Int
  /// Tried at this visit of the endpoint.
  private var tried: Set<Int> = [0]
  private var visits = 1

  /// Production, sandbox, and production once more when the sandbox refers back.
  static let visitLimit = 3

  /// What to do next.
  enum Step: Hashable {
    /// Ask at `endpoint` with `secret`.
    case ask
    /// The environment that was asked refers to itself: its URL must be the other's.
    case swapped
    /// Each environment says that the receipt is the other's.
    case contradiction
    /// None of the secrets is the one.
    case noSecretFits
  }

  /// A route with `secretCount` distinct secrets, at least one, the likeliest first.
  init(secretCount: Int) {
    self.secretCount = secretCount
  }

  /// The endpoint says that the receipt belongs to `environment`.
  mutating func isReferred(to environment: Environment) -> Step {
    guard environment != endpoint else { return .swapped }
    guard visits < Self.visitLimit else { return .contradiction }
    visits += 1
    endpoint = environment
    tried = [secret]
    return .ask
  }

  /// Apple says that the secret is not that of the receipt's app.
  mutating func secretIsWrong() -> Step {
    guard let next = (0..<secretCount).first(where: { !tried.contains($0) }) else {
      return .noSecretFits
    }
    return isTrying(next) ? .ask : .noSecretFits
  }

  /// Changes to that secret; false if it has been tried here.
  mutating func isTrying(_ secret: Int) -> Bool {
    guard tried.insert(secret).inserted else { return false }
    self.secret = secret
    return true
  }
}

/// The app that a receipt belongs to, as far as it can be told.
enum ReceiptOwner: Hashable {
  case app(AppStoreApp)
  /// The answer names no app, as trimmed payloads do, and only this one can be meant.
  case assumed(AppStoreApp)
  /// One sentence.
  case refused(String)
}

extension AppStoreApps {
  /// The app of a receipt in which Apple named `bundleIDs`; `named` is the sender's word.
  func owner(of bundleIDs: Set<String>, named: String?) -> ReceiptOwner {
    guard let bundleID = bundleIDs.first else {
      if let app = named.flatMap({ self[$0] }) { return .assumed(app) }
      guard let only = all.first, all.count == 1 else {
        return .refused("Apple's answer names no app, and several are served: name the bundle id.")
      }
      return .assumed(only)
    }
    guard bundleIDs.count == 1 else {
      return .refused("The receipt names several apps: \(bundleIDs.sorted()).")
    }
    guard !bundleID.isEmpty else { return .refused("The receipt's bundle id is empty.") }
    guard let app = self[bundleID] else {
      return .refused("The receipt belongs to \(bundleID), which is not served here.")
    }
    guard named.map({ ExactText($0) == ExactText(bundleID) }) ?? true else {
      return .refused("The receipt belongs to \(bundleID), not to \(named ?? "another app").")
    }
    return .app(app)
  }
}
