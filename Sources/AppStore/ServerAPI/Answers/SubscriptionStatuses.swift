package import Subscriptions

/// Where every subscription of one customer in one app stands.
package struct SubscriptionStatuses: Hashable, Sendable {
  /// In no order.
  package let groups: [Group]

  /// One subscription group, which has several lines where the family shares one, too.
  package struct Group: Hashable, Sendable {
    package let identifier: String?
    /// In no order.
    package let lines: [Line]
  }

  /// One original transaction's latest transaction and future.
  package struct Line: Hashable, Sendable {
    package let originalTransactionID: OriginalTransactionID?
    package let status: SubscriptionStatus?
    package let transaction: SignedPart<SignedTransaction>?
    package let renewalInfo: SignedPart<SignedRenewalInfo>?
  }

  /// What the verified parts say.
  package var evidence: [Evidence] { groups.flatMap(\.lines).flatMap(\.evidence) }
}

extension SubscriptionStatuses.Line {
  /// What the verified parts say of the line.
  package var evidence: [Evidence] {
    let transaction = transaction?.value
    let renewal = renewalInfo?.value.map { info in
      Evidence.renewalStatus(info.status(latest: transaction?.record), line: info.line)
    }
    return (transaction?.evidence ?? []) + (renewal.map { [$0] } ?? [])
  }
}
