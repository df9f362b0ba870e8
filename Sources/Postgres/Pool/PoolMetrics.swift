import CoreMetrics

/// The pool's metrics, created once so that a round trip costs only two additions.
final class PoolMetrics: Sendable {
  enum Outcome: String, CaseIterable {
    case succeeded
    case refused
    case timedOut = "timed_out"
    case poolTimeout = "pool_timeout"
    case connectionFailed = "connection_failed"
    case connectionLost = "connection_lost"
    case cancelled
    case other

    init(_ error: any Error) {
      guard let error = error as? PostgresError else {
        self = error is CancellationError ? .cancelled : .other
        return
      }
      self =
        switch error.code {
        case .server: error.isStatementTimeout ? .timedOut : .refused
        case .timedOut: .timedOut
        case .poolTimeout: .poolTimeout
        case .connectionFailed: .connectionFailed
        case .connectionLost: .connectionLost
        case .decoding, .closed, .invalidRequest: .other
        }
    }
  }

  final class RoundTrips: Sendable {
    private let succeeded: Counter
    private let failed: [Outcome: Counter]
    private let duration: CoreMetrics.Timer

    init(_ kind: String, _ factory: any MetricsFactory) {
      func counter(_ outcome: Outcome) -> Counter {
        Counter(
          label: "tenure_database_requests_total",
          dimensions: [("kind", kind), ("outcome", outcome.rawValue)], factory: factory)
      }
      succeeded = counter(.succeeded)
      failed = Dictionary(
        uniqueKeysWithValues: Outcome.allCases.filter { $0 != .succeeded }.map { ($0, counter($0)) }
      )
      duration = CoreMetrics.Timer(
        label: "tenure_database_request_duration_seconds", dimensions: [("kind", kind)],
        factory: factory)
    }

    func count(_ outcome: Request.Outcome, after time: Duration) {
      switch outcome {
      case .success: succeeded.increment()
      case .failure(let error): failed[Outcome(error)]?.increment()
      }
      let (seconds, attoseconds) = time.components
      duration.recordNanoseconds(seconds * 1_000_000_000 + attoseconds / 1_000_000_000)
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
