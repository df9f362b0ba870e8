import Subscriptions

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
