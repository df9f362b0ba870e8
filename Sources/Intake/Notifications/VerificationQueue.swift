import Dispatch
import Synchronization

/// One thread for unauthenticated input, so that the others stay free for callers with a key.
final class VerificationQueue: TaskExecutor {
  /// The notifications that may wait; each takes up to a few milliseconds.
  static let longest = 256

  private let thread = DispatchQueue(label: "tenure.verification")
  private let length = Atomic(0)

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    thread.async { unsafe job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }

  /// Runs work on the thread.
  ///
  /// - Throws: ``NotificationQueueFull`` if too much is waiting already, or the work's errors.
  func run<Value: Sendable>(_ work: @Sendable () async throws -> Value) async throws -> Value {
    defer { length.subtract(1, ordering: .relaxed) }
    guard length.add(1, ordering: .relaxed).newValue <= Self.longest else {
      throw NotificationQueueFull()
    }
    return try await withTaskExecutorPreference(self) { try await work() }
  }
}

package struct NotificationQueueFull: Error {}
