import CoreMetrics

/// The pool's metrics, created once so that a round trip costs only two additions.
final class PoolMetrics: Sendable {
  final class RoundTrips: Sendable {
    private let succeeded: Counter
    private let failed: [String: Counter]
    private let duration: CoreMetrics.Timer

    init(_ kind: String, _ factory: any MetricsFactory) {
      func counter(_ outcome: String) -> Counter {
        Counter(
          label: "tenure_database_requests_total",
          dimensions: [("kind", kind), ("outcome", outcome)], factory: factory)
      }
      succeeded = counter("succeeded")
      let failures = [
        "refused", "timed_out", "pool_timeout", "connection_failed", "connection_lost", "cancelled",
        "other",
      ]
      failed = Dictionary(uniqueKeysWithValues: failures.map { ($0, counter($0)) })
      duration = CoreMetrics.Timer(
        label: "tenure_database_request_duration_seconds", dimensions: [("kind", kind)],
        factory: factory)
    }

    func count(_ outcome: Request.Outcome, after time: Duration) {
      switch outcome {
      case .success: succeeded.increment()
      case .failure(let error): failed[Self.name(error)]?.increment()
      }
      let (seconds, attoseconds) = time.components
      duration.recordNanoseconds(seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
    }

    private static func name(_ error: any Error) -> String {
      guard let error = error as? PostgresError else {
        return error is CancellationError ? "cancelled" : "other"
      }
      return switch error.code {
      case .server: error.isStatementTimeout ? "timed_out" : "refused"
      case .timedOut: "timed_out"
      case .poolTimeout: "pool_timeout"
      case .connectionFailed: "connection_failed"
      case .connectionLost: "connection_lost"
      case .decoding, .closed, .invalidRequest: "other"
      }
    }
  }

  let statements: RoundTrips
  let transactions: RoundTrips
  let connectsSucceeded: Counter
  let connectsFailed: Counter
  let connectionsLost: Counter

  init(_ factory: any MetricsFactory) {
    statements = RoundTrips("statement", factory)
    transactions = RoundTrips("transaction", factory)
    func connects(_ outcome: String) -> Counter {
      Counter(
        label: "tenure_database_connects_total", dimensions: [("outcome", outcome)],
        factory: factory)
    }
    connectsSucceeded = connects("succeeded")
    connectsFailed = connects("failed")
    connectionsLost = Counter(label: "tenure_database_connections_lost_total", factory: factory)
  }
}
