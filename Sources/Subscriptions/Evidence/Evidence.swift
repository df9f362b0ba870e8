package import struct Foundation.UUID

/// Anything verified that Apple said, with the date at which it was true.
package enum Evidence: Hashable, Codable, Sendable {
  /// A charge, as one answer of Apple's describes it.
  case transaction(TransactionRecord)
  /// Whether and as what a line will renew.
  case renewalStatus(RenewalStatus, line: LineID)
  /// Apple says that one line continues another (`previousOriginalTransactionId`).
  case link(line: LineID, previous: LineID)

  /// The line that the evidence is about.
  package var line: LineID {
    switch self {
    case .transaction(let record): record.key.line
    case .renewalStatus(_, let line), .link(let line, _): line
    }
  }
}

/// Why a charge was made, as far as Apple says so.
package enum ChargeKind: String, Codable, Sendable {
  /// Apple renewed: `transactionReason` RENEWAL, DID_RENEW, DID_RECOVER.
  case renewal
  /// The customer acted: `transactionReason` PURCHASE, SUBSCRIBED, INITIAL_BUY,
  /// INTERACTIVE_RENEWAL.
  case purchase
  /// Receipts don't say.
  case unknown
}

/// Whose purchase it is within an Apple family: Apple's `in_app_ownership_type`.
package enum OwnershipType: String, Codable, Sendable {
  case purchased
  case familyShared = "family_shared"
}

/// What the customer paid for the period: the regular price, or less.
package enum PeriodType: String, Codable, Sendable {
  case normal
  case trial
  case intro
  case offer
}

/// What one answer says of a transaction's revocation.
package enum RevocationStatus: Hashable, Codable, Sendable {
  /// The source is too old to know, as a receipt's `in_app` is.
  case notSaid
  /// An unsigned answer about a receipt contains no revocation. Such answers lag.
  case notMentioned
  /// An unsigned answer about a receipt contains a revocation, which may have been reversed since.
  case mentioned(at: Timestamp, reason: String?)
  /// Apple signed that there is none.
  case notRevoked
  /// Apple signed that the charge is refunded, or withdrawn from the family.
  case revoked(Revocation)

  /// A signed revocation without a type and a share.
  package static func revoked(at moment: Timestamp, reason: String?) -> Self {
    .revoked(Revocation(at: moment, reason: reason))
  }

  /// The revocation that the answer contains.
  package var revocation: Revocation? {
    switch self {
    case .notSaid, .notMentioned, .notRevoked: nil
    case .mentioned(let moment, let reason): Revocation(at: moment, reason: reason)
    case .revoked(let revocation): revocation
    }
  }
}

/// One transaction as one answer of Apple's describes it.
package struct TransactionRecord: Hashable, Codable, Sendable {
  package var key: TransactionKey
  /// The date at which Apple said so: `request_date_ms`, `signedDate`, or the receipt's creation.
  package var asOf: Timestamp
  package var kind: ChargeKind
  package var purchaseDate: Timestamp
  package var originalPurchaseDate: Timestamp?
  /// The end of the paid period; nil for what has none.
  package var expiresDate: Timestamp?
  package var webOrderLineItemID: WebOrderLineItemID?
  /// Only where Apple names it: receipts don't.
  package var productType: ProductType?
  package var subscriptionGroup: String?
  package var quantity: Int
  package var appAccountToken: UUID?
  package var ownershipType: OwnershipType
  package var periodType: PeriodType
  package var offerID: String?
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
    offerID: String? = nil, isUpgraded: Bool = false, revocation: RevocationStatus = .notSaid,
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
    self.offerID = offerID
    self.isUpgraded = isUpgraded
    self.revocation = revocation
    self.priceMilliunits = priceMilliunits
    self.currency = currency
    self.isCommitment = isCommitment
  }

  /// When the charge was made.
  ///
  /// Receipts restored before 2015 carry the restore's date, which lies after the expiry: there the
  /// original purchase date is the charge's.
  package var chargedAt: Timestamp {
    guard let expiresDate, purchaseDate > expiresDate else { return purchaseDate }
    return originalPurchaseDate ?? purchaseDate
  }
}

/// What Apple said at one date about the future of a line.
package struct RenewalStatus: Hashable, Codable, Sendable {
  /// What Apple said about the period after the last one paid for.
  package enum Phase: Hashable, Codable, Sendable {
    /// Nothing is wrong.
    case undisturbed
    /// The charge failed; access goes on until the date while Apple tries again.
    case gracePeriod(until: Timestamp)
    /// The charge failed and Apple tries again, without access.
    case billingRetry
    /// Apple has given up, or was told to.
    case expired
  }

  /// The date of Apple's answer, or of the change itself where Apple gives it.
  package var asOf: Timestamp
  /// Apple's `auto_renew_status`, never a notification's subtype; nil: not said.
  package var autoRenews: Bool?
  /// Nil: not said.
  package var phase: Phase?
  /// The product that the next renewal is for.
  package var autoRenewProductID: ProductID?
  /// Why the line ended or will end, in Apple's numbers.
  ///
  /// 1: the customer, 2: billing, 3: the price, 4: the product, 5: something else.
  package var expirationIntent: Int?
  /// The token that renewals will carry.
  package var appAccountToken: UUID?
  package var isCommitment: Bool

  package init(
    asOf: Timestamp, autoRenews: Bool?, phase: Phase? = nil,
    autoRenewProductID: ProductID? = nil, expirationIntent: Int? = nil,
    appAccountToken: UUID? = nil, isCommitment: Bool = false
  ) {
    self.asOf = asOf
    self.autoRenews = autoRenews
    self.phase = phase
    self.autoRenewProductID = autoRenewProductID
    self.expirationIntent = expirationIntent
    self.appAccountToken = appAccountToken
    self.isCommitment = isCommitment
  }
}
