import CoreMetrics
import Subscriptions

/// Counts what is pushed to the webhook.
final class WebhookMetrics: Sendable {
  let delivered: Counter
  let failed: Counter
  let parked: Counter
  private let duration: CoreMetrics.Timer
  private let delay: CoreMetrics.Timer

  init(_ factory: any MetricsFactory) {
    func pushes(_ outcome: String) -> Counter {
      Counter(
        label: "tenure_webhook_pushes_total", dimensions: [("outcome", outcome)], factory: factory)
    }
    delivered = pushes("delivered")
    failed = pushes("failed")
    parked = pushes("parked")
    duration = CoreMetrics.Timer(label: "tenure_webhook_push_duration_seconds", factory: factory)
    delay = CoreMetrics.Timer(label: "tenure_webhook_delay_seconds", factory: factory)
  }

  func took(_ time: Duration) {
    duration.recordNanoseconds(Int64(time / .nanoseconds(1)))
  }

  /// An event was delivered that was due since a moment.
  func delivered(dueSince moment: Timestamp, at now: Timestamp) {
    delivered.increment()
    delay.recordMilliseconds(max(0, now.milliseconds - moment.milliseconds))
  }
}
