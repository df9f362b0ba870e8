import AppStore
import CoreMetrics
import LedgerStorage

/// Counters of verified submissions.
final class SubmissionMetrics: Sendable {
  enum Outcome: String, CaseIterable {
    case verified
    case rejected
    /// Apple was not available or did not know.
    case postponed
    /// Apple rejects our configuration.
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

/// Counters of received and processed notifications.
final class NotificationMetrics: Sendable {
  private enum EvidenceBatch: String, CaseIterable { case stored, repeated, refused }

  private struct Key: Hashable {
    let version: String
    let type: String
    let arrival: EvidenceBatch
  }

  /// Anybody can post a notification, so unknown types are counted as one.
  private static let other = "other"
  private static let types: [NotificationVersion: Set<String>] = [
    .one: Set(NotificationV1.types + [other]),
    .two: Set(NotificationTypeV2.allCases.map(\.rawValue) + [other]),
  ]

  private let arrivals: [Key: Counter]
  private let outcomes: [NotificationOutcome: Counter]
  private let postponed: Counter
  private let factory: any MetricsFactory

  init(_ factory: any MetricsFactory) {
    self.factory = factory
    var keys = Self.types.flatMap { version, types in
      types.flatMap { type in
        [EvidenceBatch.stored, .repeated].map {
          Key(version: "\(version.rawValue)", type: type, arrival: $0)
        }
      }
    }
    // The type of a refused notification is not trusted.
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
    // Creates the metric before the first refusal.
    _ = Counter(
      label: "tenure_notifications_refused_total", dimensions: [("reason", "unreadable")],
      factory: factory)
  }

  func stored(_ new: NewNotification, isNew: Bool) {
    let type = new.notificationType.flatMap { name in
      Self.types[new.version]?.contains(name) == true ? name : nil
    }
    let key = Key(
      version: "\(new.version.rawValue)", type: type ?? Self.other,
      arrival: isNew ? .stored : .repeated)
    arrivals[key]?.increment()
  }

  func refused(_ refusal: NotificationRefusal) {
    let version = refusal.version.map { "\($0.rawValue)" } ?? "none"
    arrivals[Key(version: version, type: "none", arrival: .refused)]?.increment()
    // There are a few dozen reasons.
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
