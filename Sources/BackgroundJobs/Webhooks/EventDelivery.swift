import CoreMetrics
import Intake
import LedgerStorage
import Logging
import ServiceLifecycle
import Subscriptions
import Synchronization
import Tracing

/// Delivers the events of a stream to the webhook, at least once and in order.
///
/// A delivery is deleted before the next is sent; one that failed is repeated while later events
/// wait, and given up at the end of ``retries``.
struct EventDelivery: Sendable {
  static let retries = RetrySchedule(first: .seconds(2), patience: WebhookDelivery.patience)
  /// The deliveries after which other streams have their turn.
  private static let longestRun = 20

  let ledger: Ledger
  let sender: WebhookSender
  var metrics = WebhookMetrics()
  let logger: Logger
  let now: @Sendable () -> Timestamp

  func perform(_ job: Job) async throws {
    // This claim counts as an attempt.
    var failures = max(job.attempts - 1, 0)
    var made: (delivery: WebhookDelivery, attempt: WebhookAttempt)?
    var count = 0
    while true {
      let isPausing = count == Self.longestRun || Task.isShuttingDownGracefully
      guard
        let delivery = try await ledger.webhooks.nextDelivery(
          job, after: made?.delivery, attempt: made?.attempt, isPausing: isPausing, at: now())
      else { return }
      let (start, sentAt) = (ContinuousClock.now, now())
      let failure = try await withSpan("webhook", ofKind: .producer) { span in
        if span.isRecording { span.attributes["event.id"] = "\(delivery.eventID)" }
        let failure = try await sender.send(delivery.body, at: sentAt)
        if failure != nil { span.setStatus(SpanStatus(code: .error)) }
        return failure
      }
      let took = ContinuousClock.now - start
      metrics.took(took)
      let attempt = WebhookAttempt(
        eventID: delivery.eventID, at: sentAt, took: took, failure: failure)
      if let failure {
        return try await failed(
          delivery, of: job, because: failure, attempt, failures: failures + 1)
      }
      metrics.delivered(dueSince: delivery.dueSince, at: now())
      (made, failures) = ((delivery, attempt), 0)
      count += 1
    }
  }

  private func failed(
    _ delivery: WebhookDelivery, of job: Job, because reason: String, _ attempt: WebhookAttempt,
    failures: Int
  ) async throws {
    let now = now()
    metrics.failed.increment()
    let isLast = Self.retries.isOver(for: delivery.dueSince, at: now)
    try await ledger.webhooks.postpone(
      delivery, of: job, because: reason, failures: failures, attempt: attempt,
      until: Self.retries.next(afterAttempts: failures, at: now), isLast: isLast, at: now)
    if isLast { metrics.parked.increment() }
    logger.log(
      level: isLast ? .error : .info, isLast ? "Event delivery given up" : "Event delivery failed",
      metadata: ["event.id": "\(delivery.eventID)", "reason": "\(reason)"])
  }
}

/// Creates deliveries of new events when notified of them; any number may run.
package struct EventPusher: Service {
  /// The poll interval when notifications don't arrive.
  private static let sleepWithoutNotify: Duration = .seconds(1)
  /// The pause after new events, so that those of the next moments are queued together.
  private static let pause: Duration = .milliseconds(20)

  private let tools: JobTools

  package init(_ tools: JobTools) { self.tools = tools }

  package func run() async throws {
    await cancelWhenGracefulShutdown {
      await withTaskGroup { group in
        let (wakeUps, notifier) = AsyncStream.makeStream(
          of: Void.self, bufferingPolicy: .bufferingNewest(1))
        let connection = Connection()
        group.addTask {
          await tools.ledger.notifier.listen(to: .events) { isListening in
            connection.isListening = isListening
            notifier.yield()
          }
        }
        group.addTask {
          while !Task.isCancelled {
            try? await Task.sleep(
              for: connection.isListening ? ChangeNotifier.pollInterval : Self.sleepWithoutNotify)
            notifier.yield()
          }
        }
        for await _ in wakeUps {
          if await push() { try? await Task.sleep(for: Self.pause) }
        }
        group.cancelAll()
      }
    }
  }

  private func push() async -> Bool {
    do {
      var count = try await tools.ledger.webhooks.pushEvents(at: tools.now())
      let isNew = count > 0
      while count == WebhookQueue.pushingBatch {
        count = try await tools.ledger.webhooks.pushEvents(at: tools.now())
      }
      return isNew
    } catch is CancellationError {
    } catch {
      tools.logger.error("Can't read new events", metadata: ["error": "\(error)"])
    }
    return false
  }
}

/// Whether notifications arrive.
private final class Connection: Sendable {
  private let state = Mutex(false)

  var isListening: Bool {
    get { state.withLock(\.self) }
    set { state.withLock { $0 = newValue } }
  }
}
