package import struct Foundation.UUID

/// One transaction as one of Apple's answers describes it.
package struct TransactionRecord: Hashable, Codable, Sendable {
  package var key: TransactionKey
  /// The date of the answer: `request_date_ms`, `signedDate`, or the receipt's creation.
  package var asOf: Timestamp
  package var kind: ChargeKind
  package var purchaseDate: Timestamp
  package var originalPurchaseDate: Timestamp?
  /// The end of the paid period, if any.
  package var expiresDate: Timestamp?
  package var webOrderLineItemID: WebOrderLineItemID?
  /// Not in receipts.
  package var productType: ProductType?
  package var subscriptionGroup: String?
  package var quantity: Int
  package var appAccountToken: UUID?
  package var ownershipType: OwnershipType
  package var periodType: PeriodType
  package var offerType: OfferType?
  package var offerID: String?
  /// ISO 3166-1 alpha-3; not in receipts.
  package var storefront: String?
  package var isUpgraded: Bool
  package var revocation: RevocationStatus
  package var priceMilliunits: Int64?
  package var currency: String?
  /// One of the twelve payments of an annual commitment, which Apple retries for longer.
  package var isCommitment: Bool

  package init(
    key: TransactionKey, asOf: Timestamp, kind: ChargeKind = .unknown, purchaseDate: Timestamp,
    originalPurchaseDate: Timestamp? = nil, expiresDate: Timestamp? = nil,
    webOrderLineItemID: WebOrderLineItemID? = nil, productType: ProductType? = nil,
    subscriptionGroup: String? = nil, quantity: Int = 1, appAccountToken: UUID? = nil,
    ownershipType: OwnershipType = .purchased, periodType: PeriodType = .normal,
    offerType: OfferType? = nil, offerID: String? = nil, storefront: String? = nil,
    isUpgraded: Bool = false, revocation: RevocationStatus = .notSaid,
    priceMilliunits: Int64? = nil, currency: String? = nil, isCommitment: Bool = false
  ) {
    self.key = key
    self.asOf = asOf
    self.kind = kind
    self.purchaseDate = purchaseDate
    self.originalPurchaseDate = originalPurchaseDate
    self.expiresDate = expiresDate
    self.webOrderLineItemID = webOrderLineItemID
    self.productType = productType
    self.subscriptionGroup = subscriptionGroup
    self.quantity = quantity
    self.appAccountToken = appAccountToken
    self.ownershipType = ownershipType
    self.periodType = periodType
    self.offerType = offerType
    self.offerID = offerID
    self.storefront = storefront
    self.isUpgraded = isUpgraded
    self.revocation = revocation
    self.priceMilliunits = priceMilliunits
    self.currency = currency
    self.isCommitment = isCommitment
  }

  /// The date of the charge: the purchase date, or the original one if that lies after the expiry,
  /// because receipts restored before 2015 contain the restore's date.
  package var chargedAt: Timestamp {
    guard let expiresDate, purchaseDate > expiresDate else { return purchaseDate }
    return originalPurchaseDate ?? purchaseDate
  }
}

/// A value that Apple may change, with the date of its answer; the latest answer wins.
package struct Dated<Value: Hashable & Sendable>: Hashable, Sendable {
  package var value: Value
  package var asOf: Timestamp

  package init(_ value: Value, asOf: Timestamp) {
    (self.value, self.asOf) = (value, asOf)
  }
}

/// All of Apple's answers about one transaction, merged in any order: changeable values are dated,
/// and of others the smaller wins should two answers disagree.
package struct StoreTransaction: Hashable, Sendable {
  package let key: TransactionKey
  /// The first recorded transaction of a charge names it.
  package let recorded: RecordingOrder

  package var kind: ChargeKind
  package var purchaseDate: Timestamp
  package var chargedAt: Timestamp
  package var webOrderLineItemID: WebOrderLineItemID?
  package var productType: ProductType?
  package var quantity: Int
  package var ownershipType: OwnershipType
  package var periodType: PeriodType
  package var offerType: OfferType?
  package var offerID: String?
  package var storefront: String?
  package var priceMilliunits: Int64?
  package var currency: String?
  package var isCommitment: Bool
  /// The date of the first answer with `isUpgraded`; never reset.
  package var upgradedAsOf: Timestamp?

  package var expiresDate: Dated<Timestamp>?
  package var appAccountToken: Dated<UUID>?
  package var revocation: RevocationHistory

  package init(_ record: TransactionRecord, recorded: RecordingOrder) {
    key = record.key
    self.recorded = recorded
    kind = record.kind
    purchaseDate = record.purchaseDate
    chargedAt = record.chargedAt
    webOrderLineItemID = record.webOrderLineItemID
    productType = record.productType
    quantity = record.quantity
    ownershipType = record.ownershipType
    periodType = record.periodType
    offerType = record.offerType
    offerID = record.offerID
    storefront = record.storefront
    priceMilliunits = record.priceMilliunits
    currency = record.currency
    isCommitment = record.isCommitment
    upgradedAsOf = record.isUpgraded ? record.asOf : nil
    expiresDate = record.expiresDate.map { Dated($0, asOf: record.asOf) }
    appAccountToken = record.appAccountToken.map { Dated($0, asOf: record.asOf) }
    revocation = RevocationHistory(record)
  }

  /// Whether it was recorded first; identifiers decide at equal moments on linked ones.
  package func wasRecorded(before other: StoreTransaction) -> Bool {
    (recorded, key) < (other.recorded, other.key)
  }

  package var isSubscription: Bool {
    ProductType.known(of: key.productID, as: productType, hasExpiry: expiresDate != nil)
      == .autoRenewable
  }

  package mutating func merge(_ record: TransactionRecord) {
    let other = StoreTransaction(record, recorded: recorded)
    kind = min(kind, other.kind)
    purchaseDate = min(purchaseDate, other.purchaseDate)
    chargedAt = min(chargedAt, other.chargedAt)
    webOrderLineItemID = least(webOrderLineItemID, other.webOrderLineItemID)
    productType = least(productType, other.productType)
    quantity = min(quantity, other.quantity)
    ownershipType = min(ownershipType, other.ownershipType)
    periodType = min(periodType, other.periodType)
    offerType = least(offerType, other.offerType)
    offerID = least(offerID, other.offerID)
    storefront = least(storefront, other.storefront)
    priceMilliunits = least(priceMilliunits, other.priceMilliunits)
    currency = least(currency, other.currency)
    isCommitment = isCommitment || other.isCommitment
    upgradedAsOf = least(upgradedAsOf, other.upgradedAsOf)
    expiresDate = latest(expiresDate, other.expiresDate, <)
    appAccountToken = latest(appAccountToken, other.appAccountToken, <)
    revocation.merge(other.revocation)
  }

  /// Whether both hold the same facts, whatever the dates of the answers.
  func statesTheSame(as other: StoreTransaction) -> Bool {
    var copy = self
    if let dated = other.expiresDate { copy.expiresDate?.asOf = dated.asOf }
    if let dated = other.appAccountToken { copy.appAccountToken?.asOf = dated.asOf }
    if copy.revocation.statesTheSame(as: other.revocation) { copy.revocation = other.revocation }
    return copy == other
  }
}

/// The moment of recording, and the item's number in its original transaction.
package struct RecordingOrder: Hashable, Comparable, Codable, Sendable {
  package var at: Timestamp
  package var number: Int

  package init(at: Timestamp, number: Int) {
    (self.at, self.number) = (at, number)
  }

  package static func < (lhs: RecordingOrder, rhs: RecordingOrder) -> Bool {
    (lhs.at, lhs.number) < (rhs.at, rhs.number)
  }
}

/// The later of two dated values; at equal dates, the one that the order puts last.
func latest<Value>(
  _ lhs: Dated<Value>?, _ rhs: Dated<Value>?, _ isBefore: (Value, Value) -> Bool
) -> Dated<Value>? {
  guard let lhs, let rhs else { return lhs ?? rhs }
  if lhs.asOf != rhs.asOf { return lhs.asOf < rhs.asOf ? rhs : lhs }
  return isBefore(lhs.value, rhs.value) ? rhs : lhs
}

func least<Value: Comparable>(_ lhs: Value?, _ rhs: Value?) -> Value? {
  guard let lhs, let rhs else { return lhs ?? rhs }
  return min(lhs, rhs)
}

/// A value that merging two answers decides on by its place in an order: the first one is preferred.
package protocol PreferenceOrdered: Comparable {
  static var order: [Self] { get }
}

extension PreferenceOrdered {
  package static func < (lhs: Self, rhs: Self) -> Bool { lhs.place < rhs.place }

  private var place: Int { Self.order.firstIndex(of: self) ?? Self.order.count }
}

/// Known before unknown, so that merging prefers knowledge.
extension ChargeKind: PreferenceOrdered {
  package static let order: [ChargeKind] = [.purchase, .renewal, .unknown]
}

/// Particular before the default, which old answers omit.
extension PeriodType: PreferenceOrdered {
  package static let order: [PeriodType] = [.trial, .intro, .offer, .normal]
}

/// Introductory last, because receipts also call a trial by offer code introductory.
extension OfferType: PreferenceOrdered {
  package static let order: [OfferType] = [.offerCode, .promotional, .winBack, .introductory]
}

/// Particular before the default, which old answers omit.
extension OwnershipType: PreferenceOrdered {
  package static let order: [OwnershipType] = [.familyShared, .purchased]
}
