import CoreMetrics
import Intake
package import LedgerStorage
package import Logging
import ServiceLifecycle
package import Subscriptions
import Synchronization
import Tracing

extension JobRunner {
  /// Pushes the events of a stream.
  ///
  /// Each delivery is noted by itself, the last one together with the end of the job.
  func deliverEvents(_ job: Job) async throws -> JobOutcome {
    guard let webhook = tools.webhook else {
      return .retry(because: "This worker has no webhook.")
    }
    let delivery = EventDelivery(
      ledger: ledger, sender: webhook, metrics: tools.webhookMetrics, logger: logger, now: now)
    try await delivery.perform(job)
    return .settled
  }
}

/// Pushes the events of a stream to the webhook, one after the other.
///
/// An event that was answered is gone from the database before the next one is sent, and one that
/// was not is sent again: at least once, and in order. While one fails, those after it wait; when
/// it is not delivered by the end of ``retries``, it is given up, and they go on.
struct EventDelivery: Sendable {
  /// When a stream is tried again after a failure, and for how long an event is.
  static let retries = RetrySchedule(first: .seconds(2), patience: WebhookDelivery.patience)
  /// After so many, other streams have their turn.
  private static let longestRun = 20

  let ledger: Ledger
  let sender: WebhookSender
  var metrics = WebhookMetrics(MetricsSystem.factory)
  let logger: Logger
  let now: @Sendable () -> Timestamp

  /// Makes the deliveries of the job's stream until there is none, or one fails.
  func perform(_ job: Job) async throws {
    // Each time that a job is claimed counts as an attempt, until one has gone well.
    var failures = max(job.attempts - 1, 0)
    var made: WebhookDelivery?
    var count = 0
    while true {
      let isPausing = count == Self.longestRun || Task.isShuttingDownGracefully
      guard
        let delivery = try await ledger.nextDelivery(
          job, after: made, isPausing: isPausing, at: now())
      else { return }
      let start = ContinuousClock.now
      let outcome = try await withSpan("webhook", ofKind: .producer) { span in
        if span.isRecording { span.attributes["event.id"] = "\(delivery.eventID)" }
        let outcome = try await sender.send(delivery.body, at: now())
        if case .failed = outcome { span.setStatus(SpanStatus(code: .error)) }
        return outcome
      }
      metrics.took(ContinuousClock.now - start)
      switch outcome {
      case .delivered:
        metrics.delivered(dueSince: delivery.dueSince, at: now())
        (made, failures) = (delivery, 0)
        count += 1
      case .failed(let reason):
        return try await failed(delivery, of: job, because: reason, failures: failures + 1)
      }
    }
  }

  private func failed(
    _ delivery: WebhookDelivery, of job: Job, because reason: String, failures: Int
  ) async throws {
    let now = now()
    metrics.failed.increment()
    let isLast = Self.retries.isOver(for: delivery.dueSince, at: now)
    try await ledger.postpone(
      delivery, of: job, because: reason, failures: failures,
      until: Self.retries.next(afterAttempts: failures, at: now), isLast: isLast, at: now)
    if isLast { metrics.parked.increment() }
    logger.log(
      level: isLast ? .error : .info,
      isLast ? "An event is given up until somebody asks for it" : "An event was not delivered",
      metadata: ["event.id": "\(delivery.eventID)", "reason": "\(reason)"])
  }
}

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
