#if os(Linux)
  internal import CLibpq
  internal import Glibc

  /// The kernel's list of watched sockets (epoll), whose reader other threads can wake.
  ///
  /// Holds only two descriptors, and their system calls are safe from any thread.
  final class Poller: Sendable {
    struct Event {
      let descriptor: Int32
      let readiness: Readiness
    }

    /// Further events are fetched with the next call; there are only a few connections.
    private static let eventsPerCall = 64

    private let epoll: Int32
    private let wakeup: Int32

    init() {
      epoll = epoll_create1(Int32(EPOLL_CLOEXEC))
      wakeup = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
      precondition(epoll >= 0 && wakeup >= 0, "The process is out of file descriptors.")
      // Edge-triggered, so it need not be read.
      control(EPOLL_CTL_ADD, wakeup, EPOLLIN.rawValue | EPOLLET.rawValue)
    }

    deinit {
      close(wakeup)
      close(epoll)
    }

    func add(_ descriptor: Int32) {
      control(EPOLL_CTL_ADD, descriptor, EPOLLIN.rawValue | EPOLLRDHUP.rawValue)
    }

    func modify(_ descriptor: Int32, writing: Bool) {
      let events = EPOLLIN.rawValue | EPOLLRDHUP.rawValue | (writing ? EPOLLOUT.rawValue : 0)
      control(EPOLL_CTL_MOD, descriptor, events)
    }

    func remove(_ descriptor: Int32) {
      control(EPOLL_CTL_DEL, descriptor, 0)
    }

    func wake() {
      eventfd_write(wakeup, 1)
    }

    /// Waits for events, forever if the timeout is nil; may return none early.
    func wait(atMost timeout: Duration?) -> [Event] {
      unsafe withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: Self.eventsPerCall) {
        buffer in
        let count = unsafe epoll_wait(
          epoll, buffer.baseAddress, Int32(Self.eventsPerCall), Self.milliseconds(timeout))
        guard count > 0 else { return [] }
        var events: [Event] = []
        events.reserveCapacity(Int(count))
        for index in 0..<Int(count) {
          let event = unsafe buffer[index]
          let descriptor = unsafe event.data.fd
          guard descriptor != wakeup else { continue }
          events.append(
            Event(descriptor: descriptor, readiness: unsafe Readiness(epoll: event.events)))
        }
        return events
      }
    }

    private func control(_ operation: Int32, _ descriptor: Int32, _ events: UInt32) {
      var event = unsafe epoll_event()
      unsafe event.events = events
      unsafe event.data.fd = descriptor
      unsafe epoll_ctl(epoll, operation, descriptor, &event)
    }

    /// Rounded up, so that the loop does not spin through a timer's last millisecond.
    private static func milliseconds(_ timeout: Duration?) -> Int32 {
      guard let timeout else { return -1 }
      let (seconds, attoseconds) = timeout.components
      let milliseconds =
        seconds * 1000 + (attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000
      return Int32(clamping: milliseconds)
    }
  }

  extension Readiness {
    fileprivate init(epoll events: UInt32) {
      self = []
      if events & EPOLLOUT.rawValue != 0 { insert(.writing) }
      if events & ~EPOLLOUT.rawValue != 0 { insert(.reading) }
    }
  }
#endif
