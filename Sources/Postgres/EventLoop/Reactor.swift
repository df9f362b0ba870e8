internal import Foundation
import HeapModule

@PostgresLoop
final class Reactor {
  static let shared = Reactor()

  /// The time of the current turn; reading the clock once per turn is precise enough for deadlines.
  private(set) var now = ContinuousClock.now
  private var sources: [Int32: any EventSource] = [:]
  /// The sources' sockets and the wake-up pipe: few enough for `poll`, which every system has.
  private var sockets: [pollfd] = []
  private var unflushed: [any EventSource] = []
  private var timers = Heap<Timer>()
  private var timersSet = 0

  private init() { watchForReading(PostgresLoop.shared.loop.wakeUp.reader) }

  /// Returns the ready sockets; if it may wait, it waits for one until the next timer is due.
  func wait(mayWait: Bool) -> [pollfd] {
    var timeout: Int32 = mayWait ? -1 : 0
    if mayWait, let timer = timers.min {
      // Rounded up, so that the loop does not spin through a timer's last millisecond.
      let left = (timer.time - ContinuousClock.now) / .milliseconds(1)
      timeout = Int32(clamping: Int64(max(0, left.rounded(.up))))
    }
    let count = nfds_t(sockets.count)
    guard unsafe poll(&sockets, count, timeout) > 0 else { return [] }
    return sockets.filter { $0.revents != 0 }
  }

  func handle(_ ready: [pollfd]) {
    now = .now
    let wakeUp = PostgresLoop.shared.loop.wakeUp
    for socket in ready {
      if socket.fd == wakeUp.reader { wakeUp.receive() }
      // Sources removed by an earlier event of this turn receive no more events. An error or hang-up
      // counts as readable, because reading reports it.
      let events = socket.revents
      sources[socket.fd]?.ready(
        toRead: events & ~Int16(POLLOUT) != 0, toWrite: events & Int16(POLLOUT) != 0)
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

  func flushAtEndOfTurn(_ source: any EventSource) { unflushed.append(source) }

  func watch(_ source: any EventSource, descriptor: Int32) {
    sources[descriptor] = source
    watchForReading(descriptor)
  }

  func wantsWriting(_ wants: Bool, descriptor: Int32) {
    guard let index = sockets.firstIndex(where: { $0.fd == descriptor }) else { return }
    sockets[index].events = Int16(POLLIN | (wants ? POLLOUT : 0))
  }

  private func watchForReading(_ descriptor: Int32) {
    // libpq may have closed another source's socket of this number.
    sockets.removeAll { $0.fd == descriptor }
    sockets.append(pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0))
  }

  /// Stops watching a source, unless its descriptor belongs to another one: libpq closes a broken
  /// connection's socket itself, and the number is reused.
  func unwatch(_ source: any EventSource, descriptor: Int32) {
    guard sources[descriptor] === source else { return }
    sources[descriptor] = nil
    sockets.removeAll { $0.fd == descriptor }
  }

  /// Runs an action after a delay; it can't be cancelled, so it checks whether it is still needed.
  func schedule(after delay: Duration, _ action: @escaping @PostgresLoop () -> Void) {
    timersSet += 1
    timers.insert(Timer(time: .now + delay, number: timersSet, action: action))
  }
}

@PostgresLoop
protocol EventSource: AnyObject {
  func ready(toRead: Bool, toWrite: Bool)
  func flush()
}

/// A pipe by which other threads end the loop's wait.
struct WakeUp: Sendable {
  let reader: Int32
  private let writer: Int32

  init() {
    var ends: [Int32] = [0, 0]
    precondition(unsafe pipe(&ends) == 0, "The process is out of file descriptors.")
    (reader, writer) = (ends[0], ends[1])
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
  }

  func send() {
    var byte: UInt8 = 1
    _ = unsafe write(writer, &byte, 1)
  }

  /// Empties the pipe, which is readable.
  func receive() {
    var bytes: [UInt8] = Array(repeating: 0, count: 64)
    _ = unsafe read(reader, &bytes, bytes.count)
  }
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
