import JSONText
package import Subscriptions
import struct Foundation.UUID

/// A transaction that Apple has signed, of an app that is served, with all that a ledger needs.
package struct SignedTransaction: Hashable, Sendable {
  package let payload: JWSTransactionDecodedPayload
  package let environment: Environment
  /// The configured app that it belongs to.
  package let bundleID: String
  /// The transaction in the vocabulary of the rules, as of the date at which it was signed.
  package let record: TransactionRecord
  /// The line that this one continues, where Apple names one.
  package let previousLine: LineID?

  /// - Parameters:
  ///   - payload: Its signature was verified.
  ///   - environment: Where it was made.
  ///   - bundleID: Compared with the configured apps.
  /// - Throws: ``SignedDataFault`` where a field is missing or can't be used.
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
    ).map { LineID(environment, OriginalTransactionID($0)) }
    previousLine = previous == line ? nil : previous
  }

  /// What it says: the transaction, and the link to an earlier line.
  package var evidence: [Evidence] { evidence(kind: .unknown) }

  /// The same; `kind` is that of a charge whose transaction doesn't tell.
  func evidence(kind: ChargeKind) -> [Evidence] {
    var record = record
    if payload.transactionReason == nil { record.kind = kind }
    return [.transaction(record)]
      + (previousLine.map { [.link(line: record.key.line, previous: $0)] } ?? [])
  }
}

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

extension TransactionRecord {
  /// The transaction as evidence of the date at which it was signed.
  ///
  /// - Throws: ``SignedDataFault`` naming the field, where it isn't said what was bought, when and
  ///   on which line.
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
    // A subscription without its expiry would pass for a purchase for ever.
    if type == .autoRenewable { _ = try Fields.required(payload.expiresDate, "expiresDate") }
    self.init(
      key: TransactionKey(
        line: LineID(environment, OriginalTransactionID(original)),
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
  /// A trial is a trial even when an offer code gave it, as in receipts.
  fileprivate var periodType: PeriodType {
    if offerDiscountType == .freeTrial { return .trial }
    switch offerType {
    case nil: return offerIdentifier == nil ? .normal : .offer
    case 1: return .intro
    default: return .offer
    }
  }

  /// What Apple signs is current: that no revocation is named means that there is none.
  fileprivate var revocation: RevocationStatus {
    guard let revocationDate else { return .notRevoked }
    return .revoked(
      Revocation(
        at: revocationDate, reason: revocationReason.map(String.init),
        // Longer names than the table's are none of Apple's.
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

/// Checks the fields of a payload that become part of the ledger.
///
/// Apple documents every field as optional; what a ledger cannot do without is missed here, by
/// name. A field that is there and means nothing is not taken for absent.
enum PayloadFields {
  static func required<Value>(_ value: Value?, _ field: String) throws(SignedDataFault) -> Value {
    guard let value else { throw .missing(field) }
    return value
  }

  /// A text that can be part of a key; nil for one that is absent or empty.
  static func identifier(
    _ text: String?, _ field: String, upTo limit: Int = AppleIdentifier.longest
  ) throws(SignedDataFault) -> String? {
    guard let text, !text.isEmpty else { return nil }
    if let fault = AppleIdentifier.fault(of: text, upTo: limit) { throw .unusable(field, fault) }
    return text
  }

  /// One of Apple's numbers: a transaction's, or that of a charge.
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
    else { throw .unusable(field, "is no currency") }
    return text
  }

  /// One that is no UUID counts as none: apps put into it what they like.
  static func token(_ text: String?) -> UUID? { text.flatMap { UUID(uuidString: $0) } }

  /// The environment in the rules' vocabulary.
  static func environment(
    _ environment: SignedEnvironment?, _ field: String, acceptsXcode: Bool
  ) throws(SignedDataFault) -> Environment {
    let named = try required(environment, field)
    guard let environment = named.environment else {
      throw SignedDataFault(.wrongEnvironment, "is of an environment that is not known")
    }
    guard acceptsXcode || named.isSignedByApple else {
      throw SignedDataFault(
        .notSignedByApple, "comes from Xcode and not from Apple, which is not accepted here")
    }
    return environment
  }
}

/// What Apple says of a period that could or could not be renewed, in any of its formats.
struct RenewalPhase {
  var gracePeriodExpiresDate: Timestamp?
  var isInBillingRetryPeriod: Bool?
  /// Whether Apple says that the line has ended or will: an expiration intent, or status 21006 with
  /// renewal off.
  var hasEnding: Bool
  /// The end of the paid period, as far as it is known.
  var paidUntil: Timestamp?
  /// The date of Apple's answer.
  var asOf: Timestamp

  /// The first row that matches; nil where the end of the paid period is needed and not known.
  ///
  /// | what Apple says | phase |
  /// | --- | --- |
  /// | a grace period that ends after the paid one and after the answer | grace |
  /// | is_in_billing_retry_period 1 | billing retry |
  /// | an expiration_intent, or 21006 with renewal off, and the paid period is over | expired |
  /// | the same, and the paid period runs | undisturbed: it says why the line will end |
  /// | a grace period that is over, and not a word of giving up | billing retry |
  /// | anything else | undisturbed |
  ///
  /// 21006 alone is not believed: it has been seen for hours between an expiry and its renewal.
  var phase: RenewalStatus.Phase? {
    // A grace period lies behind the period that could not be renewed; Apple recovered the rest.
    let grace = gracePeriodExpiresDate.flatMap { grace in
      paidUntil.map { grace > $0 } ?? true ? grace : nil
    }
    if let grace, grace > asOf { return .gracePeriod(until: grace) }
    if isInBillingRetryPeriod == true { return .billingRetry }
    if hasEnding { return paidUntil.map { $0 <= asOf ? .expired : .undisturbed } }
    return grace != nil && isInBillingRetryPeriod == nil ? .billingRetry : .undisturbed
  }
}

/// What a text of Apple's must be to become part of a key.
enum AppleIdentifier {
  /// In bytes: what a column for a name holds.
  static let longest = 255
  /// In bytes: what a column for one of Apple's numbers holds.
  static let longestNumber = 128

  /// What is wrong with a text: "is longer than 255 bytes"; nil if it can be an identifier.
  ///
  /// Neither longer than its column in `schema.sql`, nor with control characters, which PostgreSQL
  /// or a terminal would not take.
  static func fault(of text: String, upTo limit: Int) -> String? {
    if text.utf8.count > limit { return "is longer than \(limit) bytes" }
    let isPrintable = text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
    return isPrintable ? nil : "contains control characters"
  }
}
