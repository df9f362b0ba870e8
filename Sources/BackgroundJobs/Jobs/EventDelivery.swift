import CoreMetrics
import Intake
import LedgerStorage
import Logging
import ServiceLifecycle
import Subscriptions
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
