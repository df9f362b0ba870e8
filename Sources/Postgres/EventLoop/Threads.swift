#if canImport(Darwin)
  internal import Darwin
#else
  internal import CLibpq
  internal import Glibc
#endif

/// Threads for calls that would block Swift's cooperative pool.
enum Threads {
  /// Runs a body on a new thread, or returns false if the process can't start one.
  static func start(named name: String, _ body: @escaping @Sendable () -> Void) -> Bool {
    let start = unsafe Unmanaged.passRetained(ThreadStart(name: name, body: body))
    #if canImport(Darwin)
      var thread: pthread_t?
    #else
      var thread = pthread_t()
    #endif
    let status = unsafe pthread_create(&thread, nil, enterThread, start.toOpaque())
    guard status == 0 else {
      unsafe start.release()
      return false
    }
    #if canImport(Darwin)
      if let thread = unsafe thread { unsafe pthread_detach(thread) }
    #else
      pthread_detach(thread)
    #endif
    return true
  }
}

struct ThreadIdentity: Hashable, Sendable {
  private let bits: UInt

  static var current: ThreadIdentity {
    #if canImport(Darwin)
      unsafe ThreadIdentity(bits: UInt(bitPattern: pthread_self()))
    #else
      ThreadIdentity(bits: UInt(pthread_self()))
    #endif
  }
}

private final class ThreadStart: Sendable {
  let name: String
  let body: @Sendable () -> Void

  init(name: String, body: @escaping @Sendable () -> Void) {
    self.name = name
    self.body = body
  }

  func run() {
    #if canImport(Darwin)
      unsafe pthread_setname_np(name)
    #else
      unsafe tenure_name_thread(name)
    #endif
    body()
  }
}

#if canImport(Darwin)
  private func enterThread(_ start: UnsafeMutableRawPointer) -> UnsafeMutableRawPointer? {
    unsafe Unmanaged<ThreadStart>.fromOpaque(start).takeRetainedValue().run()
    return nil
  }
#else
  private func enterThread(_ start: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    guard let start = unsafe start else { return nil }
    unsafe Unmanaged<ThreadStart>.fromOpaque(start).takeRetainedValue().run()
    return nil
  }
#endif
