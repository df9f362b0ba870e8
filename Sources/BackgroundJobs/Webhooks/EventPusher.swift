package import LedgerStorage
package import Logging
import ServiceLifecycle
package import Subscriptions
import Synchronization

/// Makes deliveries of new events, as soon as they are told of.
///
/// Any number may run: what one has taken up the others find done.
package struct EventPusher: Service {
  /// How long it sleeps while it can't be rung for.
  ///
  /// Otherwise it looks by itself only for the sake of whoever was killed between a commit and the
  /// bell.
  private static let deafSleep: Duration = .seconds(1)

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
        let hearing = Hearing()
        group.addTask {
          await ledger.bell.listen(to: [.events]) { sound in
            // As a worker does: it rings itself, and only who has heard something knows that it
            // can.
            hearing.works = sound != .silenceBefore
            if !hearing.works { ledger.bell.ring(.events) }
            bell.yield()
          }
        }
        group.addTask {
          while (try? await Task.sleep(for: hearing.works ? Bell.longestSilence : Self.deafSleep))
            != nil
          {
            bell.yield()
          }
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

/// Whether it is heard when somebody rings.
private final class Hearing: Sendable {
  private let state = Mutex(false)

  var works: Bool {
    get { state.withLock(\.self) }
    set { state.withLock { $0 = newValue } }
  }
}
