package import LedgerStorage
package import Logging
import ServiceLifecycle
package import Subscriptions

/// Makes deliveries of new events, as soon as they are told of and once a second.
///
/// Any number may run: what one has taken up the others find done.
package struct EventPusher: Service {
  /// Whoever was killed between a commit and the bell costs the receiver this time.
  private static let longestWait: Duration = .seconds(1)

  private let ledger: Ledger
  private let logger: Logger
  private let now: @Sendable () -> Timestamp

  /// - Parameters:
  ///   - ledger: Where the events are.
  ///   - logger: For what goes wrong.
  ///   - now: The clock by which deliveries are due.
  package init(ledger: Ledger, logger: Logger, now: @escaping @Sendable () -> Timestamp) {
    self.ledger = ledger
    self.logger = logger
    self.now = now
  }

  package func run() async throws {
    await cancelWhenGracefulShutdown {
      await withTaskGroup { group in
        // However often it is rung meanwhile, once more is enough.
        let (rings, bell) = AsyncStream.makeStream(
          of: Void.self, bufferingPolicy: .bufferingNewest(1))
        group.addTask {
          await ledger.bell.listen(to: [.events]) { _ in bell.yield() }
        }
        group.addTask {
          while (try? await Task.sleep(for: Self.longestWait)) != nil { bell.yield() }
        }
        for await _ in rings { await push() }
        group.cancelAll()
      }
    }
  }

  private func push() async {
    do {
      while try await ledger.pushEvents(at: now()) == Ledger.pushingBatch {}
    } catch is CancellationError {
    } catch {
      logger.error("New events can't be read", metadata: ["error": "\(error)"])
    }
  }
}
