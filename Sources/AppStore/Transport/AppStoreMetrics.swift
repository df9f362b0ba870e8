import CoreMetrics
import Logging
import Subscriptions

/// Sends requests to one of Apple's services, counts them, and logs them without their contents.
struct AppleRequests: Sendable {
  let transport: any AppStoreTransport
  let metrics: AppleMetrics
  let logger: Logger
  let message: String

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

struct AppleMetrics: Sendable {
  enum Outcome: String {
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

  private let durations: [Environment: CoreMetrics.Timer]

  init(api: String) {
    durations = Environment.allCases.reduce(into: [:]) { durations, environment in
      durations[environment] = CoreMetrics.Timer(
        label: "tenure_apple_request_duration_seconds",
        dimensions: [("api", api), ("environment", environment.rawValue)])
    }
  }

  func count(
    _ call: String, in environment: Environment, _ outcome: Outcome, after time: Duration
  ) {
    // Most of the possible series never get a value, so each begins with its first request.
    Counter(
      label: "tenure_apple_requests_total",
      dimensions: [
        ("call", call), ("environment", environment.rawValue), ("outcome", outcome.rawValue),
      ]
    ).increment()
    durations[environment]?.recordNanoseconds(Int64(time / .nanoseconds(1)))
  }
}

/// The counters of one metric, all created at the beginning, so that each is reported from zero on.
package struct CounterTable: Sendable {
  private let counters: [[String]: Counter]

  /// - Parameter values: The values of the dimensions, one list for each counter.
  package init(_ label: String, by dimensions: String..., of values: [[String]]) {
    counters = Dictionary(
      uniqueKeysWithValues: values.map {
        ($0, Counter(label: label, dimensions: Array(zip(dimensions, $0))))
      })
  }

  package func increment(_ values: String...) { counters[values]?.increment() }
}
