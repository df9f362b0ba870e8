import Dispatch
import Foundation
import Synchronization

/// Threads for parsing and verifying what anybody may send, apart from those that answer requests.
///
/// Half of the cores work through what is open to everyone; the rest stay free for callers with a
/// key, whatever is sent.
final class VerificationQueue: TaskExecutor {
  /// How many may wait or be worked on, of which each takes a few milliseconds.
  static let longest = 256

  private let queues: [DispatchQueue]
  private let next = Atomic(0)
  private let length = Atomic(0)

  init() {
    queues = (0..<max(1, ProcessInfo.processInfo.activeProcessorCount / 2)).map { number in
      DispatchQueue(label: "tenure.verification.\(number)")
    }
  }

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    let number = next.add(1, ordering: .relaxed).oldValue
    queues[Int(UInt(bitPattern: number) % UInt(queues.count))].async {
      unsafe job.runSynchronously(on: self.asUnownedTaskExecutor())
    }
  }

  /// Runs work on these threads.
  ///
  /// - Throws: ``NotificationQueueFull`` if too much is waiting already, or what the work throws.
  func run<Value: Sendable>(_ work: @Sendable () async throws -> Value) async throws -> Value {
    defer { length.subtract(1, ordering: .relaxed) }
    guard length.add(1, ordering: .relaxed).newValue <= Self.longest else {
      throw NotificationQueueFull()
    }
    return try await withTaskExecutorPreference(self) { try await work() }
  }
}

/// Too many notifications wait to be verified.
package struct NotificationQueueFull: Error {}
