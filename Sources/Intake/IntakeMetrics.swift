import CoreMetrics
import LedgerStorage

/// Counts what came of submissions.
final class SubmissionMetrics: Sendable {
  /// What came of a verification.
  enum Outcome: String, CaseIterable {
    case verified
    case rejected
    /// Apple could not be asked, or did not know.
    case postponed
    /// Apple refuses our configuration.
    case misconfigured
  }

  private let receipts: [Outcome: Counter]
  private let signed: [Outcome: Counter]

  init(_ factory: any MetricsFactory) {
    func counters(_ source: String) -> [Outcome: Counter] {
      Dictionary(
        uniqueKeysWithValues: Outcome.allCases.map { outcome in
          let counter = Counter(
            label: "tenure_submissions_total",
            dimensions: [("source", source), ("outcome", outcome.rawValue)], factory: factory)
          return (outcome, counter)
        })
    }
    receipts = counters("receipt")
    signed = counters("signed_transactions")
  }

  func count(_ outcome: Outcome, of payload: SubmissionPayload) {
    switch payload {
    case .receipt: receipts[outcome]?.increment()
    case .signedData: signed[outcome]?.increment()
    }
  }
}

/// Counts notifications as they arrive, and what came of them.
final class NotificationMetrics: Sendable {
  private enum Arrival: String, CaseIterable { case stored, repeated, refused }

  private struct Key: Hashable {
    let version: String
    let type: String
    let arrival: Arrival
  }

  /// Of both versions; whatever else comes counts as `other`, for anybody can post it.
  private static let types: [NotificationVersion: [String]] = [
    .one: [
      "CANCEL", "CONSUMPTION_REQUEST", "DID_CHANGE_RENEWAL_PREF", "DID_CHANGE_RENEWAL_STATUS",
      "DID_FAIL_TO_RENEW", "DID_RECOVER", "DID_RENEW", "INITIAL_BUY", "INTERACTIVE_RENEWAL",
      "PRICE_INCREASE_CONSENT", "REFUND", "RENEWAL", "REVOKE", "other",
    ],
    .two: [
      "CONSUMPTION_REQUEST", "DID_CHANGE_RENEWAL_PREF", "DID_CHANGE_RENEWAL_STATUS",
      "DID_FAIL_TO_RENEW", "DID_RENEW", "EXPIRED", "EXTERNAL_PURCHASE_TOKEN",
      "GRACE_PERIOD_EXPIRED", "METADATA_UPDATE", "MIGRATE", "MIGRATION", "OFFER_REDEEMED",
      "ONE_TIME_CHARGE", "PRICE_CHANGE", "PRICE_INCREASE", "REFUND", "REFUND_DECLINED",
      "REFUND_REVERSED", "RENEWAL_EXTENDED", "RENEWAL_EXTENSION", "RESCIND_CONSENT", "REVOKE",
      "SUBSCRIBED", "TEST", "other",
    ],
  ]

  private let arrivals: [Key: Counter]
  private let outcomes: [NotificationOutcome: Counter]
  private let postponed: Counter
  private let factory: any MetricsFactory

  init(_ factory: any MetricsFactory) {
    self.factory = factory
    var keys = Self.types.flatMap { version, types in
      types.flatMap { type in
        [Arrival.stored, .repeated].map {
          Key(version: "\(version.rawValue)", type: type, arrival: $0)
        }
      }
    }
    // What is refused is nobody's: its type is not believed.
    keys += ["1", "2", "none"].map { Key(version: $0, type: "none", arrival: .refused) }
    arrivals = Dictionary(
      uniqueKeysWithValues: keys.map { key in
        let counter = Counter(
          label: "tenure_notifications_total",
          dimensions: [
            ("version", key.version), ("type", key.type), ("outcome", key.arrival.rawValue),
          ], factory: factory)
        return (key, counter)
      })
    func outcome(_ outcome: String) -> Counter {
      Counter(
        label: "tenure_notifications_processed_total", dimensions: [("outcome", outcome)],
        factory: factory)
    }
    outcomes = Dictionary(
      uniqueKeysWithValues: NotificationOutcome.allCases.map { ($0, outcome($0.rawValue)) })
    postponed = outcome("postponed")
    // So that the family exists before the first refusal.
    _ = Counter(
      label: "tenure_notifications_refused_total", dimensions: [("reason", "unreadable")],
      factory: factory)
  }

  func stored(_ new: NewNotification, isNew: Bool) {
    let types = Self.types[new.version] ?? []
    let type = new.notificationType.flatMap { types.contains($0) ? $0 : nil } ?? "other"
    let key = Key(
      version: "\(new.version.rawValue)", type: type, arrival: isNew ? .stored : .repeated)
    arrivals[key]?.increment()
  }

  func refused(_ refusal: NotificationRefusal) {
    let version = refusal.version.map { "\($0.rawValue)" } ?? "none"
    arrivals[Key(version: version, type: "none", arrival: .refused)]?.increment()
    // The registry keeps one series for each reason, of which there are a few dozen.
    Counter(
      label: "tenure_notifications_refused_total", dimensions: [("reason", refusal.reason)],
      factory: factory
    ).increment()
  }

  func processed(_ outcome: NotificationOutcome) {
    outcomes[outcome]?.increment()
  }

  func wasPostponed() {
    postponed.increment()
  }
}
