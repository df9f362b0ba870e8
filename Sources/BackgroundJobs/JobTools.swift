package import CoreMetrics
package import Intake
package import LedgerStorage
package import Subscriptions

/// What jobs are done with.
package struct JobTools: Sendable {
  /// How long events are kept where no setting says otherwise: longer than whoever follows the feed
  /// is away for.
  package static let eventRetention: Duration = .days(30)

  package var ledger: Ledger
  /// What finishes submissions.
  package var submissions: SubmissionIntake
  /// What processes notifications.
  package var notifications: NotificationIntake
  /// What asks Apple about lines.
  package var poll: LinePoll
  /// What pushes events; nil: whoever has one pushes them.
  package var webhook: WebhookSender?
  /// How long events are kept.
  package var eventRetention: Duration
  /// How long raw bodies are kept.
  package var rawRetention: RawRetention
  /// By what it is judged now what accounts may use.
  package var terms: @Sendable () -> AccessTerms
  let metrics: JobMetrics
  let webhookMetrics: WebhookMetrics

  package init(
    ledger: Ledger, submissions: SubmissionIntake, notifications: NotificationIntake,
    poll: LinePoll, webhook: WebhookSender? = nil, eventRetention: Duration = Self.eventRetention,
    rawRetention: RawRetention = RawRetention(),
    metrics: any MetricsFactory = MetricsSystem.factory,
    terms: @escaping @Sendable () -> AccessTerms
  ) {
    self.metrics = JobMetrics(metrics)
    webhookMetrics = WebhookMetrics(metrics)
    self.ledger = ledger
    self.submissions = submissions
    self.notifications = notifications
    self.poll = poll
    self.webhook = webhook
    self.eventRetention = eventRetention
    self.rawRetention = rawRetention
    self.terms = terms
  }
}
