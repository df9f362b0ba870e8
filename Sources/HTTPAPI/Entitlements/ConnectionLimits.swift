import CoreMetrics
package import NIOCore
import Synchronization

/// What one client may take up without getting on with a request.
package struct ConnectionLimits: Sendable {
  /// Open connections; further ones are answered 503 and closed.
  package var connections: Int
  /// How long a connection stays open without a request.
  ///
  /// Longer than the 60 seconds after which the usual load balancers close theirs, so that none
  /// sends into a closed connection.
  package var idle: TimeAmount
  /// How long the body of a request may take, from its head to its last byte.
  package var request: TimeAmount
  /// How long a client may take for 64 KB of an answer.
  package var answer: TimeAmount
  /// How long, and how much of, a body is read and dropped after an answer that did not need it, so
  /// that its sender gets to read the answer.
  package var drain: TimeAmount
  package var drainedBytes = 32 * 1024 * 1024

  package init(
    connections: Int = 10_000, idle: TimeAmount = Self.idle, request: TimeAmount = .seconds(30),
    answer: TimeAmount = .seconds(60), drain: TimeAmount = .seconds(5)
  ) {
    self.connections = connections
    self.idle = idle
    self.request = request
    self.answer = answer
    self.drain = drain
  }

  package static let idle: TimeAmount = .seconds(75)

  /// How often a connection is checked.
  var interval: TimeAmount {
    .nanoseconds(max(1_000_000, min(idle, request, answer, drain).nanoseconds / 4))
  }
}

/// The number of open connections.
final class ConnectionCount: Sendable {
  private let open = Atomic(0)
  private let limit: Int
  private let metrics: RequestMetrics

  init(limit: Int, metrics: RequestMetrics) {
    self.limit = limit
    self.metrics = metrics
  }

  /// Counts a connection; false if there are too many with it.
  func add() -> Bool {
    metrics.connections.increment()
    let isAllowed = open.add(1, ordering: .relaxed).newValue <= limit
    if !isAllowed { metrics.refusedConnections.increment() }
    return isAllowed
  }

  func remove() {
    metrics.connections.decrement()
    open.subtract(1, ordering: .relaxed)
  }
}
