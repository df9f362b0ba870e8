import CoreMetrics
import Synchronization

final class PrometheusCounter: CounterHandler {
  private let count = Atomic<Int64>(0)

  var value: Int64 { count.load(ordering: .relaxed) }

  func increment(by amount: Int64) {
    count.wrappingAdd(amount, ordering: .relaxed)
  }

  func reset() {
    count.store(0, ordering: .relaxed)
  }
}

final class PrometheusGauge: MeterHandler, RecorderHandler {
  private let bits = Atomic<UInt64>(0)

  var value: Double { Double(bitPattern: bits.load(ordering: .relaxed)) }

  func set(_ value: Int64) { set(Double(value)) }
  func set(_ value: Double) { bits.store(value.bitPattern, ordering: .relaxed) }
  func record(_ value: Int64) { set(Double(value)) }
  func record(_ value: Double) { set(value) }

  func increment(by amount: Double) {
    var old = bits.load(ordering: .relaxed)
    while true {
      let new = (Double(bitPattern: old) + amount).bitPattern
      let (isDone, found) = bits.weakCompareExchange(
        expected: old, desired: new, ordering: .relaxed)
      if isDone { return }
      old = found
    }
  }

  func decrement(by amount: Double) { increment(by: -amount) }
}

/// A histogram of durations; recording takes a few comparisons and two atomic additions.
final class PrometheusHistogram: TimerHandler {
  /// The maximum number of bounds; one more bucket holds the rest.
  static let boundLimit = 19

  struct Snapshot {
    /// The number of durations up to each bound, and the total last.
    var cumulativeCounts: [Int64]
    var seconds: Double
  }

  private let boundsInNanoseconds: [Int64]
  private let counts: InlineArray<20, Atomic<Int64>>
  private let nanoseconds = Atomic<Int64>(0)

  /// Creates a histogram with ascending bounds in seconds, at most ``boundLimit``.
  init(bounds: [Double]) {
    precondition(bounds.count <= Self.boundLimit, "A histogram has few bounds.")
    boundsInNanoseconds = bounds.map { Int64(($0 * 1e9).rounded()) }
    counts = InlineArray { _ in Atomic(0) }
  }

  func recordNanoseconds(_ duration: Int64) {
    var place = 0
    while place < boundsInNanoseconds.count, duration > boundsInNanoseconds[place] { place += 1 }
    counts[place].wrappingAdd(1, ordering: .relaxed)
    nanoseconds.wrappingAdd(duration, ordering: .relaxed)
  }

  /// The total is the sum of the buckets, so that the two always agree.
  var snapshot: Snapshot {
    var sum: Int64 = 0
    let counts = (0...boundsInNanoseconds.count).map { place in
      sum += self.counts[place].load(ordering: .relaxed)
      return sum
    }
    return Snapshot(
      cumulativeCounts: counts, seconds: Double(nanoseconds.load(ordering: .relaxed)) / 1e9)
  }
}
