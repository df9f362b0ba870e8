import HeapModule

/// The state of the loop's thread: watched sockets, timers and sources with data to write.
@PostgresLoop
final class Reactor {
  static let shared = Reactor()

  /// The time of the current turn; reading the clock once per turn is precise enough for deadlines.
  private(set) var now = ContinuousClock.now
  private var sources: [Int32: any EventSource] = [:]
  private var unflushed: [any EventSource] = []
  private var timers = Heap<Timer>()
  private var timersSet = 0

  /// Time until the next timer; nil if none is set.
  var timeUntilNextTimer: Duration? {
    timers.min.map { max(.zero, $0.time - ContinuousClock.now) }
  }

  func handle(_ events: [Poller.Event]) {
    now = .now
    for event in events {
      // Sources removed by an earlier event of this turn receive no more events.
      sources[event.descriptor]?.ready(event.readiness)
    }
  }

  /// Runs due timers, then writes the data that the turn's requests have buffered.
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

  /// Stops watching a source, unless its descriptor belongs to another one: libpq closes a broken
  /// connection's socket itself, and the number is reused.
  func unwatch(_ source: any EventSource, descriptor: Int32) {
    guard sources[descriptor] === source else { return }
    sources[descriptor] = nil
    PostgresLoop.shared.loop.poller.remove(descriptor)
  }

  /// Runs an action after a delay; it can't be cancelled, so it checks whether it is still needed.
  func schedule(after delay: Duration, _ action: @escaping @PostgresLoop () -> Void) {
    timersSet += 1
    timers.insert(Timer(time: .now + delay, number: timersSet, action: action))
  }
}

@PostgresLoop
protocol EventSource: AnyObject {
  func ready(_ readiness: Readiness)
  func flush()
}

/// A socket's readiness; an error or hang-up counts as readable, because reading reports it.
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
