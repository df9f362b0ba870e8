package import Subscriptions

/// A page of a customer's transactions, or of those that were refunded.
package struct TransactionPage: ServerAPIPage {
  /// What has changed comes again, at the end.
  package let transactions: [SignedPart<SignedTransaction>]
  /// Worth keeping for each original transaction: asking with it later brings the news alone.
  ///
  /// Of a history in ascending order only.
  package let revision: String?
  package let hasMore: Bool

  package var next: String? { revision }

  /// What the verified ones say.
  package var evidence: [Evidence] { transactions.flatMap { $0.value?.evidence ?? [] } }
}

/// One transaction's order.
package struct OrderLookup: Hashable, Sendable {
  package let status: OrderLookupStatus?
  package let transactions: [SignedPart<SignedTransaction>]
}
