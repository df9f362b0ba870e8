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
