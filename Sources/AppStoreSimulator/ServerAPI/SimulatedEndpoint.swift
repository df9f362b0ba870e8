/// What the simulated App Store Server API can be asked.
///
/// https://developer.apple.com/documentation/appstoreserverapi
enum SimulatedEndpoint: Hashable, CaseIterable, Sendable {
  case transactionInfo, transactionHistory, subscriptionStatuses, appTransactionInfo
  case consumption, notificationHistory, extendRenewalDate, setAppAccountToken
  case orderLookup, refundHistory, massExtension, massExtensionStatus, requestTest, testStatus

  /// The path with `*` for each id.
  private var pattern: (method: String, path: String) {
    switch self {
    case .transactionInfo: ("GET", "/inApps/v1/transactions/*")
    case .transactionHistory: ("GET", "/inApps/v2/history/*")
    case .subscriptionStatuses: ("GET", "/inApps/v1/subscriptions/*")
    case .appTransactionInfo: ("GET", "/inApps/v1/transactions/appTransactions/*")
    case .consumption: ("PUT", "/inApps/v2/transactions/consumption/*")
    case .notificationHistory: ("POST", "/inApps/v1/notifications/history")
    case .extendRenewalDate: ("PUT", "/inApps/v1/subscriptions/extend/*")
    case .setAppAccountToken: ("PUT", "/inApps/v1/transactions/*/appAccountToken")
    case .orderLookup: ("GET", "/inApps/v1/lookup/*")
    case .refundHistory: ("GET", "/inApps/v2/refund/lookup/*")
    case .massExtension: ("POST", "/inApps/v1/subscriptions/extend/mass")
    case .massExtensionStatus: ("GET", "/inApps/v1/subscriptions/extend/mass/*/*")
    case .requestTest: ("POST", "/inApps/v1/notifications/test")
    case .testStatus: ("GET", "/inApps/v1/notifications/test/*")
    }
  }

  /// Requests a second that Apple takes of one app in production, counted by the hour; a tenth in
  /// the sandbox.
  ///
  /// https://developer.apple.com/documentation/appstoreserverapi/identifying-rate-limits
  var requestsPerSecond: Int {
    switch self {
    case .transactionInfo, .transactionHistory, .subscriptionStatuses, .appTransactionInfo,
      .consumption, .notificationHistory:
      50
    case .extendRenewalDate, .setAppAccountToken: 20
    case .orderLookup, .refundHistory: 10
    case .massExtension, .massExtensionStatus, .requestTest, .testStatus: 1
    }
  }

  /// The endpoint at a path, with the ids that stand there; nil where Apple has none.
  static func route(_ method: String, _ path: String) -> (endpoint: Self, ids: [String])? {
    let parts = path.split(separator: "/", omittingEmptySubsequences: true)
    for endpoint in allCases where endpoint.pattern.method == method {
      let pattern = endpoint.pattern.path.split(separator: "/")
      guard pattern.count == parts.count else { continue }
      let pairs = zip(pattern, parts)
      guard pairs.allSatisfy({ $0 == "*" || $0 == $1 }) else { continue }
      return (endpoint, pairs.filter { $0.0 == "*" }.map { String($0.1) })
    }
    return nil
  }
}
