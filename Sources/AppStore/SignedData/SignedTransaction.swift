import JSONText
package import Subscriptions
import struct Foundation.UUID

/// A verified transaction of a configured app, with all fields that the ledger requires.
package struct SignedTransaction: Hashable, Sendable {
  package let payload: JWSTransactionDecodedPayload
  package let environment: Environment
  package let bundleID: String
  /// The transaction as evidence of its signing date.
  package let record: TransactionRecord
  /// The original transaction that this one continues, if Apple names one.
  package let previousLine: OriginalTransactionKey?

  /// Fails if a field is missing or unusable.
  ///
  /// - Parameters:
  ///   - payload: Must be verified.
  ///   - bundleID: Must be that of a configured app.
  init(
    _ payload: JWSTransactionDecodedPayload, environment: Environment, bundleID: String
  ) throws(SignedDataFault) {
    self.payload = payload
    self.environment = environment
    self.bundleID = bundleID
    record = try TransactionRecord(payload, environment: environment)
    let line = record.key.line
    let previous = try PayloadFields.number(
      payload.previousOriginalTransactionID, "previousOriginalTransactionId"
    ).map { OriginalTransactionKey(environment, OriginalTransactionID($0)) }
    previousLine = previous == line ? nil : previous
  }

  /// The transaction, and its link to an earlier original transaction.
  package var evidence: [Evidence] { evidence(kind: .unknown) }

  /// The same, with the kind of charge for a transaction that does not name it.
  func evidence(kind: ChargeKind) -> [Evidence] {
    var record = record
    if payload.transactionReason == nil { record.kind = kind }
    return [.transaction(record)]
      + (previousLine.map { [.link(line: record.key.line, previous: $0)] } ?? [])
  }
}

/// A verified renewal info.
///
/// It names no app, so it only counts together with a transaction of the same original transaction.
package struct SignedRenewalInfo: Hashable, Sendable {
  package let payload: JWSRenewalInfoDecodedPayload
  package let line: OriginalTransactionKey
  package let environment: Environment
  private let signedDate: Timestamp
  private let autoRenewProductID: ProductID?
  private let expirationIntent: Int?

  /// Fails if a field is missing or unusable.
  ///
  /// The payload must be verified.
  init(
    _ payload: JWSRenewalInfoDecodedPayload, environment: Environment
  ) throws(SignedDataFault) {
    typealias Fields = PayloadFields
    // A transaction also has the fields checked here, but says nothing about renewals.
    guard !payload.unknownFields.contains(where: { Self.otherFields.contains($0.key) }) else {
      throw SignedDataFault(.wrongType, "is another type of data signed by Apple")
    }
    self.payload = payload
    self.environment = environment
    let original = try Fields.required(
      Fields.number(payload.originalTransactionID, "originalTransactionId"),
      "originalTransactionId")
    line = OriginalTransactionKey(environment, OriginalTransactionID(original))
    signedDate = try Fields.required(payload.signedDate, "signedDate")
    autoRenewProductID = try Fields.identifier(payload.autoRenewProductID, "autoRenewProductId")
      .map { ProductID($0) }
    expirationIntent = try Fields.integer(
      payload.expirationIntent, "expirationIntent", in: 0...Int(Int16.max))
    _ = try Fields.integer(payload.autoRenewStatus, "autoRenewStatus", in: 0...1)
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

extension TransactionRecord {
  /// The transaction as evidence of its signing date; fails if a required field is missing or
  /// unusable.
  init(
    _ payload: JWSTransactionDecodedPayload, environment: Environment
  ) throws(SignedDataFault) {
    typealias Fields = PayloadFields
    let original = try Fields.required(
      Fields.number(payload.originalTransactionID, "originalTransactionId"),
      "originalTransactionId")
    let transaction = try Fields.required(
      Fields.number(payload.transactionID, "transactionId"), "transactionId")
    let product = try Fields.required(
      Fields.identifier(payload.productID, "productId"), "productId")
    let type = payload.type?.productType
    // Without its expiry, a subscription would look like a permanent purchase.
    if type == .autoRenewable { _ = try Fields.required(payload.expiresDate, "expiresDate") }
    self.init(
      key: TransactionKey(
        line: OriginalTransactionKey(environment, OriginalTransactionID(original)),
        transactionID: TransactionID(transaction), productID: ProductID(product)),
      asOf: try Fields.required(payload.signedDate, "signedDate"),
      kind: payload.transactionReason?.kind ?? .unknown,
      purchaseDate: try Fields.required(payload.purchaseDate, "purchaseDate"),
      originalPurchaseDate: payload.originalPurchaseDate, expiresDate: payload.expiresDate,
      webOrderLineItemID: WebOrderLineItemID(
        reported: try Fields.number(payload.webOrderLineItemID, "webOrderLineItemId")),
      productType: type,
      subscriptionGroup: try Fields.identifier(
        payload.subscriptionGroupIdentifier, "subscriptionGroupIdentifier"),
      quantity: try Fields.integer(payload.quantity, "quantity", in: 1...Int(Int32.max)) ?? 1,
      appAccountToken: Fields.token(payload.appAccountToken),
      ownershipType: payload.inAppOwnershipType == .familyShared ? .familyShared : .purchased,
      periodType: payload.periodType,
      offerID: try Fields.identifier(payload.offerIdentifier, "offerIdentifier"),
      isUpgraded: payload.isUpgraded ?? false, revocation: payload.revocation,
      priceMilliunits: payload.price.flatMap {
        ChargePrice.believable.contains($0) ? $0 : nil
      },
      currency: try Fields.currency(payload.currency, "currency"),
      isCommitment: payload.billingPlanType == .monthly || payload.commitmentInfo != nil)
  }
}

extension JWSTransactionDecodedPayload {
  /// A trial counts as a trial even if it came with an offer code, as in receipts.
  fileprivate var periodType: PeriodType {
    if offerDiscountType == .freeTrial { return .trial }
    switch offerType {
    case nil: return offerIdentifier == nil ? .normal : .offer
    case 1: return .intro
    default: return .offer
    }
  }

  /// Signed data is current, so a missing revocation means that there is none.
  fileprivate var revocation: RevocationStatus {
    guard let revocationDate else { return .notRevoked }
    return .revoked(
      Revocation(
        at: revocationDate, reason: revocationReason.map(String.init),
        // Longer than the column, and so not one of Apple's.
        type: revocationType.flatMap { 1...64 ~= $0.utf8.count ? $0 : nil },
        percentage: revocationPercentage))
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

/// Checks the payload fields that enter the ledger.
///
/// Apple documents all fields as optional; required ones are enforced here by name. A field that is
/// present but unusable is an error.
enum PayloadFields {
  static func required<Value>(_ value: Value?, _ field: String) throws(SignedDataFault) -> Value {
    guard let value else { throw .missing(field) }
    return value
  }

  /// A text that can be part of a key; nil if it is absent or empty.
  static func identifier(
    _ text: String?, _ field: String, upTo limit: Int = AppleIdentifier.longest
  ) throws(SignedDataFault) -> String? {
    guard let text, !text.isEmpty else { return nil }
    if let fault = AppleIdentifier.fault(of: text, upTo: limit) { throw .unusable(field, fault) }
    return text
  }

  /// A transaction ID or a web order line item ID.
  static func number(_ text: String?, _ field: String) throws(SignedDataFault) -> String? {
    try identifier(text, field, upTo: AppleIdentifier.longestNumber)
  }

  static func integer(
    _ number: Int64?, _ field: String, in range: ClosedRange<Int>
  ) throws(SignedDataFault) -> Int? {
    guard let number else { return nil }
    guard let value = Int(exactly: number), range.contains(value) else {
      throw .unusable(field, "is out of range")
    }
    return value
  }

  /// ISO 4217: three capital letters.
  static func currency(_ text: String?, _ field: String) throws(SignedDataFault) -> String? {
    guard let text, !text.isEmpty else { return nil }
    guard text.utf8.count == 3,
      text.utf8.allSatisfy((UInt8(ascii: "A")...UInt8(ascii: "Z")).contains)
    else { throw .unusable(field, "is not a currency code") }
    return text
  }

  /// Nil for anything but a UUID, because apps may set any value.
  static func token(_ text: String?) -> UUID? { text.flatMap { UUID(uuidString: $0) } }

  static func environment(
    _ environment: SignedEnvironment?, _ field: String, acceptsXcode: Bool
  ) throws(SignedDataFault) -> Environment {
    let named = try required(environment, field)
    guard let environment = named.environment else {
      throw SignedDataFault(.wrongEnvironment, "is for an unknown environment")
    }
    guard acceptsXcode || named.isSignedByApple else {
      throw SignedDataFault(
        .notSignedByApple, "comes from Xcode instead of Apple, which is not accepted")
    }
    return environment
  }
}

/// Apple's data about a renewal that is due, in any of its formats.
struct RenewalPhase {
  var gracePeriodExpiresDate: Timestamp?
  var isInBillingRetryPeriod: Bool?
  /// Whether Apple reports that the subscription has ended or will: an expiration intent, or status
  /// 21006 with auto-renew off.
  var hasEnding: Bool
  /// The end of the paid period, if known.
  var paidUntil: Timestamp?
  /// The date of Apple's response.
  var asOf: Timestamp

  /// The first matching row; nil if the end of the paid period is needed and unknown.
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
  var phase: RenewalStatus.Phase? {
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
  static let longest = 255  // In bytes; the size of the columns for names
  static let longestNumber = 128  // In bytes; the size of the columns for Apple's numbers

  /// The problem with a text, such as "is longer than 255 bytes"; nil if it can be an identifier.
  ///
  /// Identifiers must fit their column in `schema.sql` and contain no control characters, which
  /// PostgreSQL or a terminal would not accept.
  static func fault(of text: String, upTo limit: Int) -> String? {
    if text.utf8.count > limit { return "is longer than \(limit) bytes" }
    let isPrintable = text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
    return isPrintable ? nil : "contains control characters"
  }
}
