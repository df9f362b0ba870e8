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
  /// Longer than a job takes, with every request to Apple running into its timeout.
  private static let lease: Duration = .seconds(120)
  /// How often the queue is looked at when nothing is known to be due earlier.
  private static let idleWait: Duration = .milliseconds(500)
  /// How long to wait after the database failed.
  private static let faultWait: Duration = .seconds(1)

  private let ledger: Ledger
  private let runner: JobRunner
  private let name: String
  private let logger: Logger
  private let now: @Sendable () -> Timestamp

  /// - Parameters:
  ///   - ledger: Where the queue is.
  ///   - intake: What finishes submissions.
  ///   - name: Who this worker is, in the queue; unique among those that run.
  ///   - logger: For what goes wrong.
  ///   - now: The clock by which jobs are due.
  package init(
    ledger: Ledger, intake: ReceiptIntake, name: String, logger: Logger,
    now: @escaping @Sendable () -> Timestamp
  ) {
    self.ledger = ledger
    runner = JobRunner(ledger: ledger, intake: intake, logger: logger, now: now)
    self.name = name
    self.logger = logger
    self.now = now
  }

  package func run() async throws {
    // Waiting ends at a graceful shutdown; doing does not.
    while !Task.isShuttingDownGracefully, !Task.isCancelled {
      let wait: Duration
      do {
        wait = try await workOff() > 0 ? .zero : Self.idleWait
      } catch is CancellationError {
        return
      } catch {
        logger.error("The queue can't be read", metadata: ["error": "\(error)"])
        wait = Self.faultWait
      }
      guard wait > .zero else { continue }
      try? await cancelWhenGracefulShutdown { try await Task.sleep(for: wait) }
    }
  }

  /// Does what is due now, and nothing that becomes due meanwhile.
  ///
  /// - Returns: How many jobs that was.
  package func workOff() async throws -> Int {
    let jobs = try await ledger.claimJobs(
      limit: Self.concurrency, worker: name, at: now(), lease: Self.lease)
    await withTaskGroup { group in
      for job in jobs { group.addTask { await runner.run(job) } }
    }
    return jobs.count
  }
}
