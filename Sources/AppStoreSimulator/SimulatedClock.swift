package import Subscriptions
import Synchronization

/// The time in a simulated App Store: moved by hand, or running at a multiple of real time.
package final class SimulatedClock: Sendable {
  private struct Reading {
    var simulated: Timestamp
    var real: ContinuousClock.Instant
  }

  /// Simulated time per real time; 0 stands still until somebody moves it.
  package let speed: Double
  private let reading: Mutex<Reading>

  /// Sets the clock; it begins to run at once where the speed is not 0.
  package init(start: Timestamp, speed: Double = 0) {
    precondition(speed >= 0, "Time does not run backwards.")
    self.speed = speed
    reading = Mutex(Reading(simulated: start, real: .now))
  }

  /// The simulated time.
  package var now: Timestamp {
    reading.withLock { $0.simulated + elapsed(since: $0.real) }
  }

  /// Moves the clock forward; a negative duration moves nothing.
  package func advance(by duration: Duration) {
    guard duration > .zero else { return }
    reading.withLock { $0.simulated = $0.simulated + duration }
  }

  /// Moves the clock to `moment`, unless that has passed already.
  package func advance(to moment: Timestamp) {
    reading.withLock {
      let now = $0.simulated + elapsed(since: $0.real)
      guard moment > now else { return }
      $0 = Reading(simulated: moment, real: .now)
    }
  }

  private func elapsed(since instant: ContinuousClock.Instant) -> Duration {
    speed == 0 ? .zero : (ContinuousClock.now - instant) * speed
  }
}
