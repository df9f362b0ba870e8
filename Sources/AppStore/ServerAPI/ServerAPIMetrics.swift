import CoreMetrics
import Subscriptions

/// Counts requests of the App Store Server API, and what becomes of the others.
final class ServerAPIMetrics: Sendable {
  let requests: AppleMetrics
  let newTokens: Counter
  let waits: Counter
  private let heldBack: [Environment: Counter]

  init(_ factory: any MetricsFactory) {
    requests = AppleMetrics(
      api: "server_api", calls: ServerAPIEndpoint.allCases.map(\.rawValue), factory)
    func retries(_ reason: String) -> Counter {
      Counter(
        label: "tenure_apple_retries_total", dimensions: [("reason", reason)], factory: factory)
    }
    newTokens = retries("new_token")
    waits = retries("rate_limited")
    heldBack = Dictionary(
      uniqueKeysWithValues: Environment.allCases.map { environment in
        let counter = Counter(
          label: "tenure_apple_held_back_total",
          dimensions: [("environment", environment.rawValue)], factory: factory)
        return (environment, counter)
      })
  }

  /// A request is not sent, for its turn would come too late.
  func holdsBack(in environment: Environment) {
    heldBack[environment]?.increment()
  }
}
