package import Subscriptions

// Every signed part of a response is verified, and must match the request.
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

  /// The signed parts of an original transaction, which must also belong to it.
  func line(
    _ item: LastTransactionsItem, _ call: ServerAPICall, _ environment: Environment
  ) async -> SubscriptionStatuses.Entry {
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
    return SubscriptionStatuses.Entry(
      originalTransactionID: id, status: item.status, transaction: transaction,
      renewalInfo: renewalInfo)
  }

  private func part<Value>(
    _ jws: String, _ verdict: Result<Value, SignedDataError>,
    _ subject: SignedDataError.Subject, _ call: ServerAPICall, _ environment: Environment,
    origin: (Value) -> (environment: Environment?, bundleID: String?)
  ) -> SignedPart<Value> {
    let part = SignedPart(jws: jws, verdict: verdict)
    guard let value = part.value else { return part }
    let origin = origin(value)
    if let named = origin.environment, named != environment {
      return part.refused(
        subject, .otherEnvironment, "is for a different environment than its response")
    }
    if let named = origin.bundleID, named != call.bundleID {
      return part.refused(subject, .otherApp, "is for a different app than the request")
    }
    return part
  }
}

extension SignedPart {
  fileprivate func refused(
    _ subject: SignedDataError.Subject, _ reason: SignedDataError.Reason, _ clause: String
  ) -> SignedPart {
    let refusal = SignedDataError(SignedDataFault(reason, clause), of: subject)
    return SignedPart(jws: jws, verdict: .failure(refusal))
  }

  /// Refuses a part of another original transaction than its entry names.
  fileprivate func refused(
    _ subject: SignedDataError.Subject, unlessOf id: OriginalTransactionID?,
    line: (Value) -> OriginalTransactionKey
  ) -> SignedPart {
    guard let value, let id, line(value).originalTransactionID != id else { return self }
    return refused(
      subject, .otherOriginalTransaction, "is for a different original transaction than its entry")
  }
}

package struct ServerAPIAnswer<Content: Sendable>: Sendable {
  package let environment: Environment
  package let content: Content

  func map<Other: Sendable>(
    _ transform: (Content) async throws -> Other
  ) async rethrows -> ServerAPIAnswer<Other> {
    ServerAPIAnswer<Other>(environment: environment, content: try await transform(content))
  }
}

/// A signed part of a response and its verdict; its description shows no signed content.
package struct SignedPart<Value: Hashable & Sendable>: Hashable, Sendable, CustomStringConvertible {
  package let jws: String
  package let verdict: Result<Value, SignedDataError>

  package var value: Value? { try? verdict.get() }

  package var refusal: SignedDataError? {
    if case .failure(let refusal) = verdict { refusal } else { nil }
  }

  package var description: String { refusal.map { "refused: \($0)" } ?? "verified" }
}

package struct SubscriptionStatuses: Hashable, Sendable {
  package let groups: [Group]  // Unordered

  /// One subscription group, with several original transactions if the family also shares one.
  package struct Group: Hashable, Sendable {
    package let identifier: String?
    package let lines: [Entry]  // Unordered
  }

  package struct Entry: Hashable, Sendable {
    package let originalTransactionID: OriginalTransactionID?
    package let status: SubscriptionStatus?
    package let transaction: SignedPart<SignedTransaction>?
    package let renewalInfo: SignedPart<SignedRenewalInfo>?
  }

  package var evidence: [Evidence] { groups.flatMap(\.lines).flatMap(\.evidence) }
}

extension SubscriptionStatuses.Entry {
  package var evidence: [Evidence] {
    let transaction = transaction?.value
    let renewal = renewalInfo?.value.map { info in
      Evidence.renewalStatus(info.status(latest: transaction?.record), line: info.line)
    }
    return (transaction?.evidence ?? []) + (renewal.map { [$0] } ?? [])
  }
}

package struct TransactionPage: ServerAPIPage {
  /// Changed transactions appear again, at the end.
  package let transactions: [SignedPart<SignedTransaction>]
  /// Worth keeping: in ascending order, a later request with it returns only changes.
  package let revision: String?
  package let hasMore: Bool

  package var next: String? { revision }

  package var evidence: [Evidence] { transactions.flatMap { $0.value?.evidence ?? [] } }
}

package struct OrderLookup: Hashable, Sendable {
  /// The status of an order ID that belongs to the app.
  package static let found: Int64 = 0

  package let status: Int64?
  package let transactions: [SignedPart<SignedTransaction>]
}
