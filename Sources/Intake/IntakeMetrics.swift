import AppStore
import CoreMetrics
import LedgerStorage

struct SubmissionMetrics: Sendable {
  enum Outcome: String, CaseIterable {
    case verified
    case rejected
    /// Apple was not available or did not know.
    case postponed
    /// Apple rejects our configuration.
    case misconfigured
  }

  private let submissions = CounterTable(
    "tenure_submissions_total", by: "source", "outcome",
    of: ["receipt", "signed_transactions"].flatMap { source in
      Outcome.allCases.map { [source, $0.rawValue] }
    })

  func count(_ outcome: Outcome, of payload: SubmissionPayload) {
    switch payload {
    case .receipt: submissions.increment("receipt", outcome.rawValue)
    case .signedData: submissions.increment("signed_transactions", outcome.rawValue)
    }
  }
}

struct NotificationMetrics: Sendable {
  /// Anyone can post a notification, so unknown types are counted as one.
  private static let other = "other"
  private static let types: [NotificationVersion: Set<String>] = [
    .one: Set(NotificationV1.types + [other]),
    .two: Set(NotificationTypeV2.allCases.map(\.rawValue) + [other]),
  ]

  private let arrivals: CounterTable
  private let outcomes: CounterTable

  init() {
    let stored = Self.types.flatMap { version, types in
      types.flatMap { type in
        ["stored", "repeated"].map { ["\(version.rawValue)", type, $0] }
      }
    }
    // The type of a refused notification is not trusted.
    let refused = ["1", "2", "none"].map { [$0, "none", "refused"] }
    arrivals = CounterTable(
      "tenure_notifications_total", by: "version", "type", "outcome", of: stored + refused)
    outcomes = CounterTable(
      "tenure_notifications_processed_total", by: "outcome",
      of: NotificationOutcome.allCases.map { [$0.rawValue] } + [["postponed"]])
    // Creates the metric before the first refusal.
    _ = refusals(for: "unreadable")
  }

  func stored(_ new: NewNotification, isNew: Bool) {
    let type = new.notificationType.flatMap { name in
      Self.types[new.version]?.contains(name) == true ? name : nil
    }
    arrivals.increment("\(new.version.rawValue)", type ?? Self.other, isNew ? "stored" : "repeated")
  }

  func refused(_ refusal: NotificationRefusal) {
    arrivals.increment(refusal.version.map { "\($0.rawValue)" } ?? "none", "none", "refused")
    refusals(for: refusal.reason).increment()
  }

  /// There are a few dozen reasons.
  private func refusals(for reason: String) -> Counter {
    Counter(label: "tenure_notifications_refused_total", dimensions: [("reason", reason)])
  }

  func processed(_ outcome: NotificationOutcome) { outcomes.increment(outcome.rawValue) }

  func wasPostponed() { outcomes.increment("postponed") }
}
