package import Subscriptions

/// Each signed part of an answer is verified like anything else that is signed, and has to be about
/// what was asked.
extension AppStoreServerAPI {
  func transaction(
    _ jws: String, _ call: ServerAPICall, _ environment: Environment
  ) async -> SignedPart<SignedTransaction> {
    let verdict = await verifier.transaction(jws)
    return part(jws, verdict, .transaction, call, environment) { ($0.environment, $0.bundleID) }
  }

  func transactions(
    _ signed: [String]?, _ call: ServerAPICall, _ environment: Environment
  ) async -> [SignedPart<SignedTransaction>] {
    var parts: [SignedPart<SignedTransaction>] = []
    for jws in signed ?? [] { parts.append(await transaction(jws, call, environment)) }
    return parts
  }

  func appTransaction(
    _ jws: String, _ call: ServerAPICall, _ environment: Environment
  ) async -> SignedPart<JWSAppTransactionDecodedPayload> {
    let verdict = await verifier.appTransaction(jws)
    return part(jws, verdict, .appTransaction, call, environment) {
      ($0.receiptType?.environment, $0.bundleID)
    }
  }

  func notification(
    _ jws: String, _ call: ServerAPICall, _ environment: Environment
  ) async -> SignedPart<SignedNotification> {
    let verdict = await verifier.notification(jws, receivedAt: now())
    return part(jws, verdict, .notification, call, environment) { ($0.environment, $0.bundleID) }
  }

  /// A line's transaction and renewal info, which also have to be of that line.
  func line(
    _ item: LastTransactionsItem, _ call: ServerAPICall, _ environment: Environment
  ) async -> SubscriptionStatuses.Line {
    let id = item.originalTransactionID.map { OriginalTransactionID($0) }
    var transaction: SignedPart<SignedTransaction>?
    if let jws = item.signedTransactionInfo {
      transaction = await self.transaction(jws, call, environment)
        .refused(.transaction, unlessOf: id) { $0.record.key.line }
    }
    var renewalInfo: SignedPart<SignedRenewalInfo>?
    if let jws = item.signedRenewalInfo {
      let verdict = await verifier.renewalInfo(jws)
      renewalInfo = part(jws, verdict, .renewalInfo, call, environment) { ($0.environment, nil) }
        .refused(.renewalInfo, unlessOf: id) { $0.line }
    }
    return SubscriptionStatuses.Line(
      originalTransactionID: id, status: item.status, transaction: transaction,
      renewalInfo: renewalInfo)
  }

  private func part<Value>(
    _ jws: String, _ verdict: Result<Value, SignedDataRefusal>,
    _ subject: SignedDataRefusal.Subject, _ call: ServerAPICall, _ environment: Environment,
    origin: (Value) -> (environment: Environment?, bundleID: String?)
  ) -> SignedPart<Value> {
    let part = SignedPart(jws: jws, verdict: verdict)
    guard let value = part.value else { return part }
    let origin = origin(value)
    if let named = origin.environment, named != environment {
      return part.refused(
        subject, .otherEnvironment, "is of another environment than what it stands in")
    }
    if let named = origin.bundleID, named != call.bundleID {
      return part.refused(subject, .otherApp, "is of another app than was asked for")
    }
    return part
  }
}

extension SignedPart {
  /// The part with another verdict.
  fileprivate func refused(
    _ subject: SignedDataRefusal.Subject, _ reason: SignedDataRefusal.Reason, _ clause: String
  ) -> SignedPart {
    let refusal = SignedDataRefusal(SignedDataFault(reason, clause), of: subject)
    return SignedPart(jws: jws, verdict: .failure(refusal))
  }

  /// The part, refused where it is of another line than it is said to be of.
  fileprivate func refused(
    _ subject: SignedDataRefusal.Subject, unlessOf id: OriginalTransactionID?,
    line: (Value) -> LineID
  ) -> SignedPart {
    guard let value, let id, line(value).originalTransactionID != id else { return self }
    return refused(subject, .otherLine, "is of another line than what it stands in")
  }
}

/// What Apple said, and which of its environments said it.
package struct ServerAPIAnswer<Content: Sendable>: Sendable {
  package let environment: Environment
  package let content: Content

  /// The same environment with something else.
  func map<Other: Sendable>(
    _ transform: (Content) async throws -> Other
  ) async rethrows -> ServerAPIAnswer<Other> {
    ServerAPIAnswer<Other>(environment: environment, content: try await transform(content))
  }
}

/// Apple has accepted a request, and has nothing to say to it.
package struct ServerAPIAcknowledgement: Hashable, Sendable {}

/// A signed part of an answer, and what its verification came to.
///
/// Its description shows nothing of what is signed.
package struct SignedPart<Value: Hashable & Sendable>: Hashable, Sendable, CustomStringConvertible {
  /// As Apple sent it.
  package let jws: String
  package let verdict: Result<Value, SignedDataRefusal>

  /// What is signed; nil where it is refused.
  package var value: Value? { try? verdict.get() }

  /// Why it is refused; nil where it is verified.
  package var refusal: SignedDataRefusal? {
    if case .failure(let refusal) = verdict { refusal } else { nil }
  }

  package var description: String { refusal.map { "refused: \($0)" } ?? "verified" }
}

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
