import HeapModule

/// What the loop's thread knows: the sockets it watches, its timers, and who has something to
/// write.
@PostgresLoop
final class Reactor {
  static let shared = Reactor()

  /// The time of the current turn; reading the clock once a turn is exact enough for deadlines.
  private(set) var now = ContinuousClock.now
  private var sources: [Int32: any EventSource] = [:]
  private var unflushed: [any EventSource] = []
  private var timers = Heap<Timer>()
  private var timersSet = 0

  /// How long the thread may sleep; nil when no timer is set.
  var timeUntilNextTimer: Duration? {
    timers.min.map { max(.zero, $0.time - ContinuousClock.now) }
  }

  func handle(_ events: [Poller.Event]) {
    now = .now
    for event in events {
      // A source that an earlier event of this turn has removed hears nothing more.
      sources[event.descriptor]?.ready(event.readiness)
    }
  }

  /// Runs the timers that are due, and writes what the turn's requests have left in the
  /// connections' buffers.
  func endTurn() {
    while let timer = timers.min, timer.time <= now {
      timers.removeMin()
      timer.action()
    }
    while let source = unflushed.popLast() { source.flush() }
  }

  func flushAtEndOfTurn(_ source: any EventSource) {
    unflushed.append(source)
  }

  func watch(_ source: any EventSource, descriptor: Int32) {
    sources[descriptor] = source
    PostgresLoop.shared.loop.poller.add(descriptor)
  }

  func wantsWriting(_ wants: Bool, descriptor: Int32) {
    PostgresLoop.shared.loop.poller.modify(descriptor, writing: wants)
  }

  /// Stops watching a source, unless its descriptor is another's by now: libpq closes the socket of
  /// a broken connection by itself, and the number is given to the next.
  func unwatch(_ source: any EventSource, descriptor: Int32) {
    guard sources[descriptor] === source else { return }
    sources[descriptor] = nil
    PostgresLoop.shared.loop.poller.remove(descriptor)
  }

  /// Runs an action on the loop after a while; there is no cancelling, so it must look whether it
  /// is still wanted.
  func schedule(after delay: Duration, _ action: @escaping @PostgresLoop () -> Void) {
    timersSet += 1
    timers.insert(Timer(time: .now + delay, number: timersSet, action: action))
  }
}

/// Something with a socket that the loop serves.
@PostgresLoop
protocol EventSource: AnyObject {
  func ready(_ readiness: Readiness)
  func flush()
}

/// What a socket is ready for; an error or a hang-up counts as readable, for reading tells what it
/// is.
struct Readiness: OptionSet {
  let rawValue: Int
  static let reading = Readiness(rawValue: 1)
  static let writing = Readiness(rawValue: 2)
}

private struct Timer: Comparable {
  let time: ContinuousClock.Instant
  let number: Int
  let action: @PostgresLoop () -> Void

  static func < (left: Timer, right: Timer) -> Bool {
    (left.time, left.number) < (right.time, right.number)
  }

  static func == (left: Timer, right: Timer) -> Bool { left.number == right.number }
}
