#if canImport(Darwin)
  internal import Darwin
  import Synchronization

  /// The watched sockets for `poll`, which is sufficient on a developer's machine.
  final class Poller: Sendable {
    struct Event {
      let descriptor: Int32
      let readiness: Readiness
    }

    private let watched = Mutex<[Int32: Int16]>([:])
    private let wakeupReader: Int32
    private let wakeupWriter: Int32

    init() {
      var ends: [Int32] = [0, 0]
      precondition(unsafe pipe(&ends) == 0, "The process is out of file descriptors.")
      (wakeupReader, wakeupWriter) = (ends[0], ends[1])
      _ = fcntl(wakeupReader, F_SETFL, O_NONBLOCK)
      _ = fcntl(wakeupWriter, F_SETFL, O_NONBLOCK)
      add(wakeupReader)
    }

    func add(_ descriptor: Int32) { watched.withLock { $0[descriptor] = Int16(POLLIN) } }

    func modify(_ descriptor: Int32, writing: Bool) {
      watched.withLock { $0[descriptor] = Int16(POLLIN | (writing ? POLLOUT : 0)) }
    }

    func remove(_ descriptor: Int32) { watched.withLock { $0[descriptor] = nil } }

    func wake() {
      var byte: UInt8 = 1
      _ = unsafe write(wakeupWriter, &byte, 1)
    }

    /// Waits for events, forever if the timeout is nil; may return none early.
    func wait(atMost timeout: Duration?) -> [Event] {
      var polled = watched.withLock { watched in
        watched.map { pollfd(fd: $0.key, events: $0.value, revents: 0) }
      }
      let milliseconds = timeout.map { Int32(clamping: Int64($0 / .milliseconds(1)) + 1) } ?? -1
      guard unsafe poll(&polled, nfds_t(polled.count), milliseconds) > 0 else { return [] }
      return polled.compactMap { entry in
        guard entry.revents != 0 else { return nil }
        if entry.fd == wakeupReader {
          var bytes = [UInt8](repeating: 0, count: 64)
          _ = unsafe read(wakeupReader, &bytes, bytes.count)
          return nil
        }
        var readiness: Readiness = []
        if entry.revents & Int16(POLLOUT) != 0 { readiness.insert(.writing) }
        if entry.revents & ~Int16(POLLOUT) != 0 { readiness.insert(.reading) }
        return Event(descriptor: entry.fd, readiness: readiness)
      }
    }
  }
#endif
