/// How a pool stands at one moment.
package struct PoolReading: Hashable, Sendable {
  /// Connections that have nothing to do.
  package var idle = 0
  /// Connections with shared requests under way.
  package var busy = 0
  /// Connections that a transaction has to itself.
  package var leased = 0
  package var connecting = 0
  /// Round trips under way.
  package var inFlight = 0
  /// Round trips that wait for a connection.
  package var waiting = 0
}

extension PoolState {
  var reading: PoolReading {
    var reading = PoolReading()
    for slot in slots {
      switch slot.status {
      case .empty: break
      case .connecting: reading.connecting += 1
      case .ready where slot.isLeased: reading.leased += 1
      case .ready where slot.inFlight > 0: reading.busy += 1
      case .ready: reading.idle += 1
      }
      reading.inFlight += slot.inFlight
    }
    reading.waiting = waiting.count
    return reading
  }
}

extension ConnectionPool {
  /// How it stands now; asks no server.
  package func reading() async -> PoolReading { await driver.reading }
}
