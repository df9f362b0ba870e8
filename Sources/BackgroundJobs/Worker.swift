package import Intake
package import LedgerStorage
package import Logging
import ServiceLifecycle
package import Subscriptions

/// Does the jobs in the queue, several at once, until it is told to stop.
///
/// Any number of workers may run: each claims what is due under a lease, and what a dead one had
/// claimed is free again when its lease ends. On a graceful shutdown it claims nothing more and
/// finishes what it has.
package struct Worker: Service {
  /// How many jobs one worker does at once: they wait for Apple most of the time.
  private static let concurrency = 8
  /// How often the queue is looked at: with ``RetrySchedule/first`` less than two seconds.
  private static let idleWait: Duration = .milliseconds(400)
  /// How long to wait after the database failed.
  private static let faultWait: Duration = .seconds(1)

  private let ledger: Ledger
  private let runner: JobRunner
  /// Longer than a job takes.
  private let lease: Duration
  private let name: String
  private let logger: Logger
  private let now: @Sendable () -> Timestamp

  /// - Parameters:
  ///   - ledger: Where the queue is.
  ///   - intake: What finishes submissions.
  ///   - notifications: What processes notifications.
  ///   - name: Who this worker is, in the queue; unique among those that run.
  ///   - logger: For what goes wrong.
  ///   - now: The clock by which jobs are due.
  package init(
    ledger: Ledger, intake: SubmissionIntake, notifications: NotificationIntake, name: String,
    logger: Logger, now: @escaping @Sendable () -> Timestamp
  ) {
    self.ledger = ledger
    runner = JobRunner(
      ledger: ledger, intake: intake, notifications: notifications, logger: logger, now: now)
    lease = intake.longestDecision
    self.name = name
    self.logger = logger
    self.now = now
  }

  private enum Event {
    case jobEnded
    case timePassed
  }

  package func run() async throws {
    // Waiting ends at a graceful shutdown; doing does not.
    await withTaskGroup(of: Event.self) { group in
      var busy = 0
      var isWaiting = false
      while !Task.isShuttingDownGracefully, !Task.isCancelled {
        var wait = Self.idleWait
        do {
          // Each job has its slot: none waits for the slowest of those that began with it.
          for job in try await claim(Self.concurrency - busy) {
            busy += 1
            group.addTask {
              await runner.run(job)
              return .jobEnded
            }
          }
        } catch is CancellationError {
          return
        } catch {
          logger.error("The queue can't be read", metadata: ["error": "\(error)"])
          wait = Self.faultWait
        }
        if !isWaiting {
          isWaiting = true
          group.addTask { [wait] in
            try? await cancelWhenGracefulShutdown { try await Task.sleep(for: wait) }
            return .timePassed
          }
        }
        switch await group.next() {
        case .jobEnded: busy -= 1
        case .timePassed: isWaiting = false
        case nil: break
        }
      }
    }
  }

  private func claim(_ limit: Int) async throws -> [Job] {
    guard limit > 0 else { return [] }
    return try await ledger.claimJobs(limit: limit, worker: name, at: now(), lease: lease)
  }
}
