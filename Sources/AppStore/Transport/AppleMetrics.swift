import CoreMetrics
import Subscriptions

/// Counts requests to Apple, by what came of them; made once for all that asks.
final class AppleMetrics: Sendable {
  /// What came of a request.
  enum Outcome: String, CaseIterable {
    case succeeded
    case unauthorized
    case notFound = "not_found"
    case rateLimited = "rate_limited"
    case clientError = "client_error"
    case serverError = "server_error"
    case timedOut = "timed_out"
    case unreachable
    case cancelled

    init(httpStatus: Int) {
      self =
        switch httpStatus {
        case 200...299: .succeeded
        case 401: .unauthorized
        case 404: .notFound
        case 429: .rateLimited
        case 500...: .serverError
        default: .clientError
        }
    }

    init(_ error: any Error) {
      guard let error = error as? AppStoreTransportError else {
        self = error is CancellationError ? .cancelled : .unreachable
        return
      }
      self = error.kind == .timedOut ? .timedOut : .unreachable
    }
  }

  private struct Key: Hashable {
    let call: String
    let environment: Environment
    let outcome: Outcome
  }

  private let requests: [Key: Counter]
  private let durations: [Environment: CoreMetrics.Timer]

  /// - Parameters:
  ///   - api: Which of Apple's interfaces is asked.
  ///   - calls: What may be asked of it, in Apple's words.
  ///   - factory: Where it is counted.
  init(api: String, calls: [String], _ factory: any MetricsFactory) {
    let keys = calls.flatMap { call in
      Environment.allCases.flatMap { environment in
        Outcome.allCases.map { Key(call: call, environment: environment, outcome: $0) }
      }
    }
    requests = Dictionary(
      uniqueKeysWithValues: keys.map { key in
        let counter = Counter(
          label: "tenure_apple_requests_total",
          dimensions: [
            ("call", key.call), ("environment", key.environment.rawValue),
            ("outcome", key.outcome.rawValue),
          ], factory: factory)
        return (key, counter)
      })
    durations = Dictionary(
      uniqueKeysWithValues: Environment.allCases.map { environment in
        let timer = CoreMetrics.Timer(
          label: "tenure_apple_request_duration_seconds",
          dimensions: [("api", api), ("environment", environment.rawValue)], factory: factory)
        return (environment, timer)
      })
  }

  func count(
    _ call: String, in environment: Environment, _ outcome: Outcome, after time: Duration
  ) {
    requests[Key(call: call, environment: environment, outcome: outcome)]?.increment()
    durations[environment]?.recordNanoseconds(Int64(time / .nanoseconds(1)))
  }
}
