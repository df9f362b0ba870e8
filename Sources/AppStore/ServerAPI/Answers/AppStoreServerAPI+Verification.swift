import Subscriptions

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
