import CoreMetrics
import Logging
import Subscriptions

/// Sends requests to one of Apple's services, counts them, and logs them without their contents.
struct AppleRequests: Sendable {
  let transport: any AppStoreTransport
  let metrics: AppleMetrics
  let logger: Logger
  /// The text of the log lines.
  let message: String

  /// - Parameter call: Apple's name of the endpoint.
  func send(
    _ request: AppStoreRequest, _ call: String, to environment: Environment
  ) async -> (outcome: Result<AppStoreResponse, any Error>, duration: Duration) {
    let start = ContinuousClock.now
    var response: AppStoreResponse?
    let outcome: Result<AppStoreResponse, any Error>
    var fault = "none"
    do {
      let complete = try await transport.send(request)
      (outcome, response) = (.success(complete), complete)
    } catch {
      (outcome, response) = (.failure(error), (error as? AppStoreTransportError)?.partial)
      fault = "\(error)"
    }
    let duration = ContinuousClock.now - start
    metrics.count(call, in: environment, AppleMetrics.Outcome(outcome), after: duration)
    logger.debug(
      "\(message)",
      metadata: [
        "appstore.call": "\(call)", "appstore.endpoint": "\(environment.rawValue)",
        "appstore.http_status": "\(response.map { "\($0.status)" } ?? "none")",
        "appstore.bytes": "\(response?.body.count ?? 0)",
        "appstore.milliseconds": "\(duration.inMilliseconds)", "appstore.fault": "\(fault)",
      ])
    return (outcome, duration)
  }
}

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

    init(_ outcome: Result<AppStoreResponse, any Error>) {
      self =
        switch outcome {
        case .success(let response):
          switch response.status {
          case 200...299: .succeeded
          case 401: .unauthorized
          case 404: .notFound
          case 429: .rateLimited
          case 500...: .serverError
          default: .clientError
          }
        case .failure(is CancellationError): .cancelled
        case .failure(let error):
          (error as? AppStoreTransportError)?.kind == .timedOut ? .timedOut : .unreachable
        }
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
  init(api: String, calls: [String]) {
    let keys = calls.flatMap { call in
      Environment.allCases.flatMap { environment in
        Outcome.allCases.map { Key(call: call, environment: environment, outcome: $0) }
      }
    }
    requests = keys.reduce(into: [:]) { requests, key in
      requests[key] = Counter(
        label: "tenure_apple_requests_total",
        dimensions: [
          ("call", key.call), ("environment", key.environment.rawValue),
          ("outcome", key.outcome.rawValue),
        ])
    }
    durations = Environment.allCases.reduce(into: [:]) { durations, environment in
      durations[environment] = CoreMetrics.Timer(
        label: "tenure_apple_request_duration_seconds",
        dimensions: [("api", api), ("environment", environment.rawValue)])
    }
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

  init() {
    func counter(_ status: String) -> Counter {
      Counter(label: "tenure_apple_receipt_statuses_total", dimensions: [("status", status)])
    }
    statuses = Dictionary(uniqueKeysWithValues: Self.known.map { ($0, counter("\($0)")) })
    other = counter("other")
  }

  func count(_ status: Int) { (statuses[status] ?? other).increment() }
}

/// Counts retries of App Store Server API requests, and requests that were not sent.
final class ServerAPIMetrics: Sendable {
  let newTokens = Counter(
    label: "tenure_apple_retries_total", dimensions: [("reason", "new_token")])
  let waits = Counter(
    label: "tenure_apple_retries_total", dimensions: [("reason", "rate_limited")])
  private let heldBack: [Environment: Counter] = Environment.allCases.reduce(into: [:]) {
    $0[$1] = Counter(
      label: "tenure_apple_held_back_total", dimensions: [("environment", $1.rawValue)])
  }

  /// Counts a request that is not sent because its turn would come too late.
  func holdsBack(in environment: Environment) { heldBack[environment]?.increment() }
}
