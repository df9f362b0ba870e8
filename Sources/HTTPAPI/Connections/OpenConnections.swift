import CoreMetrics
package import NIOCore
import Synchronization

/// The open connections; at the limit a new one replaces an old one that never sent a valid key, so
/// that clients that only hold connections open can't lock out others.
final class OpenConnections: Sendable {
  private let limit: Int
  private let metrics: RequestMetrics
  private let open = Mutex<[ObjectIdentifier: OpenConnection]>([:])

  init(limit: Int, metrics: RequestMetrics) {
    self.limit = limit
    self.metrics = metrics
  }

  /// Adds a connection, and closes others at the limit; false: all others have sent valid keys.
  func add(_ connection: OpenConnection) -> Bool {
    metrics.connections.increment()
    let (isAllowed, replaced) = open.withLock { open in
      let replaced = open.count < limit ? [] : replaceable(of: open.values)
      for connection in replaced { open[ObjectIdentifier(connection)] = nil }
      let isAllowed = open.count < limit
      if isAllowed { open[ObjectIdentifier(connection)] = connection }
      return (isAllowed, replaced)
    }
    for connection in replaced { connection.close() }
    metrics.refusedConnections.increment(by: replaced.count + (isAllowed ? 0 : 1))
    return isAllowed
  }

  func remove(_ connection: OpenConnection) {
    metrics.connections.decrement()
    open.withLock { $0[ObjectIdentifier(connection)] = nil }
  }

  /// One percent of the connections at once, so that a flood does not cause a search for each.
  private func replaceable(
    of connections: some Collection<OpenConnection>
  ) -> [OpenConnection] {
    connections.lazy.map { ($0, $0.rank) }.filter { $0.1 < OpenConnection.keptRank }
      .sorted { $0.1 < $1.1 }.prefix(max(1, limit / 100)).map(\.0)
  }
}

final class OpenConnection: Sendable {
  enum Use: UInt64 {
    case idle
    case busy
    /// Has sent a valid key, and is never closed for another.
    case authenticated
  }

  /// Closes the connection; may be called on any thread.
  let close: @Sendable () -> Void
  private let value: Atomic<UInt64>

  init(close: @escaping @Sendable () -> Void) {
    self.close = close
    value = Atomic(NIODeadline.now().uptimeNanoseconds)
  }

  func note(_ use: Use, since time: NIODeadline) {
    value.store(use.rawValue << 62 | time.uptimeNanoseconds, ordering: .relaxed)
  }

  /// The position in the order of closing: idle before busy connections, oldest first.
  var rank: UInt64 { value.load(ordering: .relaxed) }

  /// The lowest rank of connections that are kept.
  static let keptRank = Use.authenticated.rawValue << 62
}

/// The limits for clients that are slow, or hold connections that they do not use.
package struct ConnectionLimits: Sendable {
  /// The number of connections that are open at a time: see ``OpenConnections``.
  package var connections = 10_000
  /// How long a connection stays open without a request.
  ///
  /// Longer than the 60 seconds after which most load balancers close their connections, so that
  /// none sends a request on a connection that is being closed.
  package var idle = Self.idle
  /// How long a request may take to arrive, on a connection that has sent a valid key.
  package var request: TimeAmount = .seconds(30)
  /// The same limit for other connections, which may send at most 1 MB.
  package var requestWithoutKey: TimeAmount = .seconds(5)
  /// How long a client may take to receive 64 KB of a response.
  package var answer: TimeAmount = .seconds(60)
  /// How long the rest of a body is read and dropped after a response that did not need it, so that
  /// its sender receives the response; at most 6.4 MB per second: see ``drainInterval``.
  package var drain: TimeAmount = .seconds(5)
  /// The time between reads of up to 64 kB that are dropped.
  static let drainInterval: TimeAmount = .milliseconds(10)

  package static let idle: TimeAmount = .seconds(75)

  /// How often a connection is checked.
  var interval: TimeAmount {
    let shortest = min(idle, request, requestWithoutKey, answer, drain)
    return .nanoseconds(max(1_000_000, shortest.nanoseconds / 4))
  }
}

extension ConnectionLimits {
  package init(connections: Int) { self.connections = connections }
}
