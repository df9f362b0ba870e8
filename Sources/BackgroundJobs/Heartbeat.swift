import LedgerStorage
import Logging
import ServiceLifecycle
package import Subscriptions

/// Records that this server is alive; after a time without any, schedules a history comparison.
package struct Heartbeat: Service {
  package static let interval: Duration = .seconds(30)
  /// Notifications may be missing after it: a restart takes less, Apple retries after an hour.
  package static let longestPause: Duration = .minutes(5)

  package typealias Subject = (bundleID: String, environment: Environment)

  private let tools: JobTools

  package init(_ tools: JobTools) { self.tools = tools }

  package func run() async throws {
    await cancelWhenGracefulShutdown {
      while !Task.isCancelled {
        do {
          try await beat()
        } catch {
          if Task.isCancelled { return }
          tools.logger.error("Can't write the heartbeat", metadata: ["error": "\(error)"])
        }
        try? await Task.sleep(for: Self.interval)
      }
    }
  }

  package func beat() async throws {
    let now = tools.now()
    let (last, isLate) = try await tools.ledger.notifications.beat(
      at: now, longestPause: Self.longestPause, histories: tools.histories)
    guard isLate, let last else { return }
    tools.logger.notice(
      "No server was running; notifications may be missing",
      metadata: ["from": "\(last)", "to": "\(now)"])
  }
}
