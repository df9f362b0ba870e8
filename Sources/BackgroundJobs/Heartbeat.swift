package import LedgerStorage
package import Logging
import ServiceLifecycle
package import Subscriptions

/// Says in the database that this server is alive; and after a time in which none was, has Apple's
/// notification history read for what was missed.
package struct Heartbeat: Service {
  /// Once in this time, by the real clock.
  package static let interval: Duration = .seconds(30)
  /// Nobody was there, if nobody has said so for this long: a restart takes less, and Apple
  /// delivers what was missed in it an hour later by itself.
  package static let longestPause: Duration = .minutes(5)

  /// An app in one of Apple's environments.
  package struct Subject: Hashable, Sendable {
    package var bundleID: String
    package var environment: Environment

    package init(bundleID: String, environment: Environment) {
      self.bundleID = bundleID
      self.environment = environment
    }
  }

  private let ledger: Ledger
  private let subjects: [Subject]
  private let interval: Duration
  private let logger: Logger
  private let now: @Sendable () -> Timestamp

  /// - Parameters:
  ///   - ledger: Where the heart beats.
  ///   - subjects: Whose notification histories can be read; none without a key for Apple.
  ///   - interval: How often it beats.
  ///   - logger: For what goes wrong.
  ///   - now: The clock.
  package init(
    ledger: Ledger, subjects: [Subject], interval: Duration = Self.interval, logger: Logger,
    now: @escaping @Sendable () -> Timestamp
  ) {
    self.ledger = ledger
    self.subjects = subjects
    self.interval = interval
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
          // The next one tells how long it was.
          logger.error("The heartbeat can't be written", metadata: ["error": "\(error)"])
        }
        try? await Task.sleep(for: interval)
      }
    }
  }

  /// Beats once.
  package func beat() async throws {
    let now = now()
    let (last, isLate) = try await ledger.beat(
      at: now, longestPause: Self.longestPause,
      histories: subjects.map { ($0.bundleID, $0.environment) })
    guard isLate, let last else { return }
    logger.notice(
      "No server was there: notifications may be missing",
      metadata: ["from": "\(last)", "to": "\(now)"])
  }
}
