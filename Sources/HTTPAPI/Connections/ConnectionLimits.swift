package import NIOCore

/// The limits for clients that are slow, or hold connections that they do not use.
package struct ConnectionLimits: Sendable {
  /// The number of connections that are open at a time: see ``OpenConnections``.
  package var connections: Int
  /// How long a connection stays open without a request.
  ///
  /// Longer than the 60 seconds after which most load balancers close their connections, so that
  /// none sends a request on a connection that is being closed.
  package var idle: TimeAmount
  /// How long the body of a request may take, from its head to its last byte, on a connection that
  /// has sent a valid key.
  package var request: TimeAmount
  /// The same limit for other connections: what they may send is at most 1 MB.
  package var requestWithoutKey: TimeAmount
  /// How long a client may take to receive 64 KB of a response.
  package var answer: TimeAmount
  /// How long the rest of a body is read and dropped after a response that did not need it, so that
  /// its sender receives the response; at most 6.4 MB per second: see ``drainInterval``.
  package var drain: TimeAmount
  /// The time between reads of up to 64 kB that are dropped.
  static let drainInterval: TimeAmount = .milliseconds(10)

  package init(
    connections: Int = 10_000, idle: TimeAmount = Self.idle, request: TimeAmount = .seconds(30),
    requestWithoutKey: TimeAmount = .seconds(5), answer: TimeAmount = .seconds(60),
    drain: TimeAmount = .seconds(5)
  ) {
    self.connections = connections
    self.idle = idle
    self.request = request
    self.requestWithoutKey = requestWithoutKey
    self.answer = answer
    self.drain = drain
  }

  package static let idle: TimeAmount = .seconds(75)

  /// How often a connection is checked.
  var interval: TimeAmount {
    let shortest = min(idle, request, requestWithoutKey, answer, drain)
    return .nanoseconds(max(1_000_000, shortest.nanoseconds / 4))
  }
}
