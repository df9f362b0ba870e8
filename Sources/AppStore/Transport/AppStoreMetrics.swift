import CoreMetrics
import Subscriptions

final class AppleMetrics: Sendable {
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

  /// - Parameter calls: The endpoint names that can be counted.
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

final class ReceiptStatusMetrics: Sendable {
  /// Apple's statuses; others are counted as `other`, because they may come from any server.
  private static let known = [0] + Array(21_000...21_010)

  private let statuses: [Int: Counter]
  private let other: Counter

  init(_ factory: any MetricsFactory) {
    func counter(_ status: String) -> Counter {
      Counter(
        label: "tenure_apple_receipt_statuses_total", dimensions: [("status", status)],
        factory: factory)
    }
    statuses = Dictionary(uniqueKeysWithValues: Self.known.map { ($0, counter("\($0)")) })
    other = counter("other")
  }

  func count(_ status: Int) {
    (statuses[status] ?? other).increment()
  }
}

/// Counts App Store Server API requests, retries and requests that were not sent.
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

  /// Counts a request that is not sent because its turn would come too late.
  func holdsBack(in environment: Environment) {
    heldBack[environment]?.increment()
  }
}
