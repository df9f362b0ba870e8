package import LedgerStorage
package import Logging
import ServiceLifecycle
package import Subscriptions

/// Records that this server is alive; after a time without any, schedules a history comparison.
package struct Heartbeat: Service {
  package static let interval: Duration = .seconds(30)
  /// Notifications may be missing after it: a restart takes less, Apple retries after an hour.
  package static let longestPause: Duration = .minutes(5)

  package typealias Subject = (bundleID: String, environment: Environment)

  private let ledger: Ledger
  private let subjects: [Subject]
  private let logger: Logger
  private let now: @Sendable () -> Timestamp

  /// - Parameter subjects: The apps whose notification history can be read.
  package init(
    ledger: Ledger, subjects: [Subject], logger: Logger, now: @escaping @Sendable () -> Timestamp
  ) {
    self.ledger = ledger
    self.subjects = subjects
    self.logger = logger
    self.now = now
  }

  package func run() async throws {
    await cancelWhenGracefulShutdown {
      while !Task.isCancelled {
        do {
          try await beat()
        } catch {
          if Task.isCancelled { return }
          logger.error("Can't write the heartbeat", metadata: ["error": "\(error)"])
        }
        try? await Task.sleep(for: Self.interval)
      }
    }
  }

  package func beat() async throws {
    let now = now()
    let (last, isLate) = try await ledger.notifications.beat(
      at: now, longestPause: Self.longestPause, histories: subjects)
    guard isLate, let last else { return }
    logger.notice(
      "No server was running; notifications may be missing",
      metadata: ["from": "\(last)", "to": "\(now)"])
  }
}
