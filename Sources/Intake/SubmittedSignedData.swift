import AppStore
import LedgerStorage
import Subscriptions

/// The signed data of one submission: each part verified by itself, and now judged together.
struct SubmittedSignedData: Sendable {
  /// The app that the sender named.
  let namedBundleID: String?
  /// In the order in which they were sent.
  var transactions: [SignedTransaction] = []
  var renewalInfo: [SignedRenewalInfo] = []

  /// Whether the parts are of one app and one environment, and each renewal info of a line that a
  /// transaction beside it vouches for: it names no app itself.
  var verdict: SubmissionVerifier.Verdict {
    if let namedBundleID,
      let (index, other) = transactions.enumerated().first(where: {
        $0.element.bundleID != namedBundleID
      })
    {
      return .rejected(
        SubmissionProblem(
          code: "wrong_bundle_id",
          detail: "`signed_transactions[\(index)]`: The transaction belongs to \(other.bundleID), "
            + "not to \(namedBundleID)."))
    }
    let environments = Set(transactions.map(\.environment) + renewalInfo.map(\.environment))
    guard let environment = environments.first, environments.count == 1 else {
      return .rejected(
        SubmissionProblem(
          code: "receipt_rejected",
          detail: "The signed data is of two environments, production and sandbox: submit what is "
            + "of one, then what is of the other."))
    }
    let lines = Set(transactions.map(\.record.key.line))
    if let stranger = renewalInfo.firstIndex(where: { !lines.contains($0.line) }) {
      return .rejected(
        SubmissionProblem(
          code: "invalid_signature",
          detail: "`signed_renewal_info[\(stranger)]`: It has the original transaction id of no "
            + "signed transaction beside it, and without one it says nothing of an app."))
    }
    return .verified(evidence(of: environment))
  }

  /// The app of all of them; nil where they are of several.
  private var onlyBundleID: String? {
    let ids = Set(transactions.map(\.bundleID))
    return ids.count == 1 ? ids.first : nil
  }

  /// The same for the same parts, in whatever order and however often they were sent.
  private func evidence(of environment: Environment) -> VerifiedEvidence {
    let byDate = transactions.sorted {
      ($0.record.chargedAt, $0.record.key, $0.record.asOf)
        < ($1.record.chargedAt, $1.record.key, $1.record.asOf)
    }
    // Of a transaction that was signed more than once, the latest word.
    let records = Dictionary(
      byDate.map { ($0.record.key, $0.record) }, uniquingKeysWith: { $0.asOf > $1.asOf ? $0 : $1 })
    let latest = Dictionary(grouping: records.values, by: \.key.line).mapValues { records in
      records.max { ($0.chargedAt, $0.key) < ($1.chargedAt, $1.key) }
    }
    let statuses = renewalInfo.map { info in
      (line: info.line, status: info.status(latest: latest[info.line] ?? nil))
    }.sorted { ($0.line, $0.status.asOf) < ($1.line, $1.status.asOf) }
    var seen: Set<Evidence> = []
    let evidence =
      byDate.flatMap(\.evidence) + statuses.map { .renewalStatus($0.status, line: $0.line) }
    return VerifiedEvidence(
      source: .signedTransaction, environment: environment,
      evidence: evidence.filter { seen.insert($0).inserted }, bundleID: onlyBundleID,
      records: Array(records.values),
      selection: .submitted, canGrow: false, signedAt: records.values.map(\.asOf).max())
  }
}
