import JSONText
package import Subscriptions

/// What Apple has signed of a subscription's future.
///
/// It names no app: it is worth something only beside a transaction of its line.
package struct SignedRenewalInfo: Hashable, Sendable {
  package let payload: JWSRenewalInfoDecodedPayload
  package let line: LineID
  package let environment: Environment
  private let signedDate: Timestamp
  private let autoRenewProductID: ProductID?
  private let expirationIntent: Int?

  /// - Parameters:
  ///   - payload: Its signature was verified.
  ///   - environment: Where it was made.
  /// - Throws: ``SignedDataFault`` where a field is missing or can't be used.
  init(
    _ payload: JWSRenewalInfoDecodedPayload, environment: Environment
  ) throws(SignedDataFault) {
    typealias Fields = PayloadFields
    // A transaction has the fields that are asked for here, and says nothing about renewals.
    guard !payload.unknownFields.contains(where: { Self.otherFields.contains($0.key) }) else {
      throw SignedDataFault(.wrongType, "is something else that Apple signed")
    }
    self.payload = payload
    self.environment = environment
    let original = try Fields.required(
      Fields.number(payload.originalTransactionID, "originalTransactionId"),
      "originalTransactionId")
    line = LineID(environment, OriginalTransactionID(original))
    signedDate = try Fields.required(payload.signedDate, "signedDate")
    autoRenewProductID = try Fields.identifier(payload.autoRenewProductID, "autoRenewProductId")
      .map { ProductID($0) }
    expirationIntent = try Fields.integer(
      payload.expirationIntent, "expirationIntent", in: 0...Int(Int16.max))
    _ = try Fields.integer(payload.autoRenewStatus, "autoRenewStatus", in: 0...1)
  }

  /// What a transaction has, and no renewal info.
  private static let otherFields: Set<ExactText> = ["transactionId", "purchaseDate"]

  /// What it says about the line's future.
  ///
  /// The later of two dates is the end of the paid period: the transaction beside it may be an old
  /// one, whose refund is told. Whether it renews is Apple's `autoRenewStatus`: on a monthly paid
  /// commitment that stays on while its later payments are owed, whatever the customer has asked
  /// for after it.
  ///
  /// - Parameter latest: The latest transaction of the line that is at hand.
  /// - Returns: The status as of the date at which this was signed.
  package func status(latest: TransactionRecord?) -> RenewalStatus {
    let sameLine = latest.flatMap { $0.key.line == line ? $0.expiresDate : nil }
    let phase = RenewalPhase(
      gracePeriodExpiresDate: payload.gracePeriodExpiresDate,
      isInBillingRetryPeriod: payload.isInBillingRetryPeriod,
      hasEnding: expirationIntent != nil,
      paidUntil: [sameLine, payload.renewalDate].compactMap(\.self).max(), asOf: signedDate)
    return RenewalStatus(
      asOf: signedDate, autoRenews: payload.autoRenewStatus.map { $0 == 1 }, phase: phase.phase,
      autoRenewProductID: autoRenewProductID, expirationIntent: expirationIntent,
      appAccountToken: PayloadFields.token(payload.appAccountToken),
      isCommitment: payload.renewalBillingPlanType == .monthly || payload.commitmentInfo != nil)
  }
}
