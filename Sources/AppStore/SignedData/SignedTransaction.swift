import JSONText
package import Subscriptions
import struct Foundation.UUID

/// The billing plan of an annual commitment billed monthly.
private let monthly = "MONTHLY"

/// A verified transaction of a configured app, with all fields that the ledger requires.
package struct SignedTransaction: Hashable, Sendable {
  package let payload: JWSTransactionDecodedPayload
  package let environment: Environment
  package let bundleID: String
  package let record: TransactionRecord
  /// The original transaction that this one continues, if Apple names one.
  package let previousLine: OriginalTransactionKey?

  /// Fails if a field is missing or unusable; the payload must be verified, and its app configured.
  init(
    _ payload: JWSTransactionDecodedPayload, environment: Environment, bundleID: String
  ) throws(SignedDataFault) {
    (self.payload, self.environment, self.bundleID) = (payload, environment, bundleID)
    record = try TransactionRecord(payload, environment: environment)
    let line = record.key.line
    let previous = try payload.number(\.previousOriginalTransactionID)
      .map { OriginalTransactionKey(environment, OriginalTransactionID($0)) }
    previousLine = previous == line ? nil : previous
  }

  package var evidence: [Evidence] { evidence(kind: .unknown) }

  /// The same, with the kind of charge for a transaction that does not name it.
  func evidence(kind: ChargeKind) -> [Evidence] {
    var record = record
    if payload.transactionReason == nil { record.kind = kind }
    return [.transaction(record)]
      + (previousLine.map { [.link(line: record.key.line, previous: $0)] } ?? [])
  }
}

/// A verified renewal info, which only counts with a transaction, because it names no app.
package struct SignedRenewalInfo: Hashable, Sendable {
  package let payload: JWSRenewalInfoDecodedPayload
  package let line: OriginalTransactionKey
  package let environment: Environment
  private let signedDate: Timestamp
  private let autoRenewProductID: ProductID?
  private let expirationIntent: Int?

  /// Fails if a field is missing or unusable; the payload must be verified.
  init(_ payload: JWSRenewalInfoDecodedPayload, environment: Environment) throws(SignedDataFault) {
    // A transaction also has the fields checked here, but says nothing about renewals.
    guard !payload.members.contains(where: { Self.otherFields.contains($0.key) }) else {
      throw SignedDataFault(.wrongType, "is another type of data signed by Apple")
    }
    (self.payload, self.environment) = (payload, environment)
    line = OriginalTransactionKey(
      environment, OriginalTransactionID(try payload.requiredNumber(\.originalTransactionID)))
    signedDate = try payload.required(\.signedDate)
    autoRenewProductID = try payload.identifier(\.autoRenewProductID).map { ProductID($0) }
    expirationIntent = try payload.integer(\.expirationIntent, in: 0...Int(Int16.max))
    _ = try payload.integer(\.autoRenewStatus, in: 0...1)
  }

  /// Members of a transaction that a renewal info never has.
  private static let otherFields: Set<ExactText> = ["transactionId", "purchaseDate"]

  /// The renewal status as of the signing date.
  ///
  /// The paid period ends at the later of two dates, because the given transaction may be old, for
  /// example in a notification of its refund. Apple's `autoRenewStatus` says whether it renews: in
  /// a commitment billed monthly it stays on while payments are due, whatever the customer has
  /// chosen for the time after.
  ///
  /// - Parameter latest: The latest known transaction of the same original transaction.
  package func status(latest: TransactionRecord?) -> RenewalStatus {
    let sameOriginalTransaction = latest.flatMap { $0.key.line == line ? $0.expiresDate : nil }
    let phase = RenewalStatus.Phase.reported(
      gracePeriodExpiresDate: payload.gracePeriodExpiresDate,
      isInBillingRetryPeriod: payload.isInBillingRetryPeriod, hasEnding: expirationIntent != nil,
      paidUntil: [sameOriginalTransaction, payload.renewalDate].compactMap(\.self).max(),
      asOf: signedDate)
    return RenewalStatus(
      asOf: signedDate, autoRenews: payload.autoRenewStatus.map { $0 == 1 }, phase: phase,
      autoRenewProductID: autoRenewProductID, expirationIntent: expirationIntent,
      appAccountToken: payload.appAccountToken.flatMap { UUID(uuidString: $0) },
      isCommitment: payload.renewalBillingPlanType == monthly || payload.commitmentInfo != nil)
  }
}

extension TransactionRecord {
  /// The transaction as evidence of its signing date; fails without a usable required field.
  init(_ payload: JWSTransactionDecodedPayload, environment: Environment) throws(SignedDataFault) {
    let original = try payload.requiredNumber(\.originalTransactionID)
    let transaction = try payload.requiredNumber(\.transactionID)
    let product = try payload.required(\.productID, payload.identifier(\.productID))
    let type = payload.type?.productType
    // Without its expiry, a subscription would look like a permanent purchase.
    if type == .autoRenewable { _ = try payload.required(\.expiresDate) }
    self.init(
      key: TransactionKey(
        line: OriginalTransactionKey(environment, OriginalTransactionID(original)),
        transactionID: TransactionID(transaction), productID: ProductID(product)),
      asOf: try payload.required(\.signedDate),
      kind: payload.transactionReason?.kind ?? .unknown,
      purchaseDate: try payload.required(\.purchaseDate),
      originalPurchaseDate: payload.originalPurchaseDate, expiresDate: payload.expiresDate,
      webOrderLineItemID: WebOrderLineItemID(reported: try payload.number(\.webOrderLineItemID)),
      productType: type,
      subscriptionGroup: try payload.identifier(\.subscriptionGroupIdentifier),
      quantity: try payload.integer(\.quantity, in: 1...Int(Int32.max)) ?? 1,
      appAccountToken: payload.appAccountToken.flatMap { UUID(uuidString: $0) },
      ownershipType: payload.inAppOwnershipType == .familyShared ? .familyShared : .purchased,
      periodType: payload.periodType,
      offerType: payload.reportedOfferType,
      offerID: try payload.identifier(\.offerIdentifier),
      storefront: payload.storefront.flatMap { $0.isThreeCapitals ? $0 : nil },
      isUpgraded: payload.isUpgraded ?? false, revocation: payload.revocation,
      priceMilliunits: payload.price.flatMap { ChargePrice.believable.contains($0) ? $0 : nil },
      currency: try payload.currencyCode(\.currency),
      isCommitment: payload.billingPlanType == monthly || payload.commitmentInfo != nil)
  }
}

extension JWSTransactionDecodedPayload {
  /// A trial counts as a trial even if it came with an offer code, as in receipts.
  fileprivate var periodType: PeriodType {
    if self.offerDiscountType == .freeTrial { return .trial }
    switch self.offerType {
    case nil: return self.offerIdentifier == nil ? .normal : .offer
    case 1: return .intro
    default: return .offer
    }
  }

  fileprivate var reportedOfferType: OfferType? {
    switch self.offerType {
    case 1: .introductory
    case 2: .promotional
    case 3: .offerCode
    case 4: .winBack
    default: nil
    }
  }

  /// Signed data is current, so a missing revocation means that there is none.
  fileprivate var revocation: RevocationStatus {
    guard let revocationDate = self.revocationDate else { return .notRevoked }
    return .revoked(
      Revocation(
        at: revocationDate, reason: self.revocationReason.map(String.init),
        // Longer than the column, and so not one of Apple's.
        type: self.revocationType.flatMap { 1...64 ~= $0.utf8.count ? $0 : nil },
        percentage: self.revocationPercentage))
  }
}

extension TransactionReason {
  fileprivate var kind: ChargeKind {
    switch self {
    case .purchase: .purchase
    case .renewal: .renewal
    default: .unknown
    }
  }
}

extension ProductTypeName {
  fileprivate var productType: ProductType? {
    switch self {
    case .autoRenewable: .autoRenewable
    case .nonConsumable: .nonConsumable
    case .consumable: .consumable
    case .nonRenewing: .nonRenewing
    default: nil
    }
  }
}

// Checks the fields that enter the ledger. Apple documents all as optional; required ones are
// enforced here by name, and one that is present but unusable is an error.
extension JSONPayload {
  typealias Text = KeyPath<Fields, JSONField<String>>

  func required<Value>(
    _ field: KeyPath<Fields, JSONField<Value>>
  ) throws(SignedDataFault) -> Value {
    try required(field, self[dynamicMember: field])
  }

  /// The value of a field that was checked otherwise.
  func required<Value, Checked>(
    _ field: KeyPath<Fields, JSONField<Value>>, _ value: Checked?
  ) throws(SignedDataFault) -> Checked {
    guard let value else { throw .missing(Fields.schema.name(field)) }
    return value
  }

  /// A text that can be part of a key; nil if it is absent or empty.
  func identifier(
    _ field: Text, upTo limit: Int = AppleIdentifier.longest
  ) throws(SignedDataFault) -> String? {
    guard let text = self[dynamicMember: field], !text.isEmpty else { return nil }
    if let fault = AppleIdentifier.fault(of: text, upTo: limit) {
      throw .unusable(Fields.schema.name(field), fault)
    }
    return text
  }

  /// A transaction ID or a web order line item ID.
  func number(_ field: Text) throws(SignedDataFault) -> String? {
    try identifier(field, upTo: AppleIdentifier.longestNumber)
  }

  func requiredNumber(_ field: Text) throws(SignedDataFault) -> String {
    try required(field, number(field))
  }

  func integer(
    _ field: KeyPath<Fields, JSONField<Int64>>, in range: ClosedRange<Int>
  ) throws(SignedDataFault) -> Int? {
    guard let number = self[dynamicMember: field] else { return nil }
    guard let value = Int(exactly: number), range.contains(value) else {
      throw .unusable(Fields.schema.name(field), "is out of range")
    }
    return value
  }

  /// ISO 4217: three capital letters.
  func currencyCode(_ field: Text) throws(SignedDataFault) -> String? {
    guard let text = self[dynamicMember: field], !text.isEmpty else { return nil }
    guard text.isThreeCapitals else {
      throw .unusable(Fields.schema.name(field), "is not a currency code")
    }
    return text
  }
}

extension RenewalStatus.Phase {
  /// The first matching row of Apple's data about a renewal that is due, as of a response, in any of
  /// its formats; nil if the end of the paid period is needed and unknown.
  ///
  /// | reported by Apple | phase |
  /// | --- | --- |
  /// | a grace period that ends after the paid period and after the response | grace |
  /// | is_in_billing_retry_period 1 | billing retry |
  /// | an expiration_intent, or 21006 with renewal off, and the paid period has ended | expired |
  /// | the same during the paid period | undisturbed; it explains why the subscription will end |
  /// | a grace period that has ended, without a sign of giving up | billing retry |
  /// | anything else | undisturbed |
  ///
  /// 21006 alone is not trusted: it has been seen for hours between an expiry and its renewal.
  ///
  /// - Parameter hasEnding: Whether there is an expiration intent, or 21006 with auto-renew off.
  static func reported(
    gracePeriodExpiresDate: Timestamp?, isInBillingRetryPeriod: Bool?, hasEnding: Bool,
    paidUntil: Timestamp?, asOf: Timestamp
  ) -> Self? {
    // A grace period follows the period that could not be renewed; earlier ones were recovered.
    let grace = gracePeriodExpiresDate.flatMap { grace in
      paidUntil.map { grace > $0 } ?? true ? grace : nil
    }
    if let grace, grace > asOf { return .gracePeriod(until: grace) }
    if isInBillingRetryPeriod == true { return .billingRetry }
    if hasEnding { return paidUntil.map { $0 <= asOf ? .expired : .undisturbed } }
    return grace != nil && isInBillingRetryPeriod == nil ? .billingRetry : .undisturbed
  }
}

/// The requirements for a text of Apple's that becomes part of a key.
enum AppleIdentifier {
  /// Of a name, in bytes.
  static let longest = 255
  /// Of one of Apple's numbers, in bytes.
  static let longestNumber = 128

  /// The problem with a text, such as "is longer than 255 bytes"; nil if it is short enough and has
  /// no control characters, which PostgreSQL or a terminal would not accept.
  static func fault(of text: String, upTo limit: Int = longest) -> String? {
    if text.utf8.count > limit { return "is longer than \(limit) bytes" }
    let isPrintable = text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
    return isPrintable ? nil : "contains control characters"
  }
}
