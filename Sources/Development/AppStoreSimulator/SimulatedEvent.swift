package import struct Foundation.UUID
package import Subscriptions

/// Something that happened in the simulated App Store, in the order in which it happened.
///
/// The list holds what notifications are made of: what Apple would tell, and about which charge.
package struct SimulatedEvent: Hashable, Sendable {
  /// What happened.
  package enum Kind: Hashable, Sendable {
    /// The first purchase in a group, or of a family member's share in it.
    case subscribed
    /// A purchase on a line that had lapsed.
    case resubscribed
    case renewed
    /// A renewal after billing retry.
    case recovered
    /// An upgrade, or a crossgrade of equal duration: charged at once.
    case upgraded
    /// The product of the next renewal, or its taking back.
    case renewalProductChanged(ProductID)
    case autoRenewTurnedOff
    case autoRenewTurnedOn
    /// Apple could not collect; access goes on until the date, where the app has a grace period.
    case renewalFailed(graceUntil: Timestamp?)
    case gracePeriodExpired
    /// Why, in Apple's numbers: see `expiration_intent`.
    case expired(intent: Int)
    case boughtOnce
    case refunded
    case refundReversed
    case familyAccessRevoked
    /// A charge got another transaction id on a device.
    case restored
    case priceIncreaseAsked
    case priceIncreaseAccepted
    /// An offer on a subscription that runs; see ``Redemption`` for what it does.
    case offerRedeemed(Redemption)
    /// The end of the period was moved without a charge.
    case renewalExtended(days: Int)
    /// The customer wants the money back, and Apple asks the app what it knows.
    case refundRequested(RefundRequestReason)
    case refundDeclined
    /// The line goes on under another original id.
    case migrated(from: OriginalTransactionID)

    /// A word for logs and for the control interface.
    package var name: String {
      switch self {
      case .subscribed: "subscribed"
      case .resubscribed: "resubscribed"
      case .renewed: "renewed"
      case .recovered: "recovered"
      case .upgraded: "upgraded"
      case .renewalProductChanged: "renewal_product_changed"
      case .autoRenewTurnedOff: "auto_renew_turned_off"
      case .autoRenewTurnedOn: "auto_renew_turned_on"
      case .renewalFailed: "renewal_failed"
      case .gracePeriodExpired: "grace_period_expired"
      case .expired: "expired"
      case .boughtOnce: "bought_once"
      case .refunded: "refunded"
      case .refundReversed: "refund_reversed"
      case .familyAccessRevoked: "family_access_revoked"
      case .restored: "restored"
      case .priceIncreaseAsked: "price_increase_asked"
      case .priceIncreaseAccepted: "price_increase_accepted"
      case .offerRedeemed: "offer_redeemed"
      case .renewalExtended: "renewal_extended"
      case .refundRequested: "refund_requested"
      case .refundDeclined: "refund_declined"
      case .migrated: "migrated"
      }
    }
  }

  /// What an offer on a running subscription does.
  package enum Redemption: String, Sendable {
    /// The next renewal of the same product costs less.
    case renewal
    /// A higher product begins at once.
    case upgrade
    /// The next renewal is of another product.
    case downgrade
  }

  /// Why a customer wants the money back: Apple's `consumptionRequestReason`.
  ///
  /// https://developer.apple.com/documentation/appstoreservernotifications/consumptionrequestreason
  package enum RefundRequestReason: String, CaseIterable, Sendable {
    case unintendedPurchase = "UNINTENDED_PURCHASE"
    case fulfillmentIssue = "FULFILLMENT_ISSUE"
    case unsatisfied = "UNSATISFIED_WITH_PURCHASE"
    case legal = "LEGAL"
    case other = "OTHER"
  }

  /// 1, 2, 3, … in the order of happening.
  package let number: Int
  package let at: Timestamp
  package let kind: Kind
  package let environment: Environment
  package let bundleID: String
  package let appleID: AppleID
  package let originalTransactionID: OriginalTransactionID
  /// The charge that it is about; for a restore the charge's new name.
  package let transactionID: TransactionID
  package let productID: ProductID
  /// Who was logged in where it was done; nil for Apple's own doing and for the Settings app.
  package let account: AppAccountID?
}

/// The truth about one charge, to compare other people's conclusions with.
package struct SimulatedCharge: Hashable, Sendable {
  /// Why it was charged.
  package enum Kind: String, Sendable {
    case purchase
    case renewal
    case recovery
  }

  package let environment: Environment
  package let bundleID: String
  package let appleID: AppleID
  package let originalTransactionID: OriginalTransactionID
  /// The charge's own id first, then those that restores gave it.
  package let transactionIDs: [TransactionID]
  package let webOrderLineItemID: WebOrderLineItemID?
  package let productID: ProductID
  package let productType: ProductType
  package let group: String?
  package let kind: Kind
  package let ownership: OwnershipType
  /// When Apple took the money: up to a day before a renewal's `purchaseDate`.
  package let madeAt: Timestamp
  package let purchaseDate: Timestamp
  package let expiresDate: Timestamp?
  package let priceMilliunits: Int64
  package let currency: String
  package let quantity: Int
  package let appAccountToken: UUID?
  /// Who really acted: logged in where it was bought; of a renewal, whoever last bought on the
  /// line.
  ///
  /// Nil where nobody was logged in, as in the Settings app.
  package let account: AppAccountID?
  package let upgradedAt: Timestamp?
  package let revokedAt: Timestamp?
  /// What the customer's invoice calls it; a family member has none.
  package let orderID: String?

  /// The charge's own id.
  package var transactionID: TransactionID { transactionIDs[0] }
  /// The line that it is on.
  package var line: LineID { LineID(environment, originalTransactionID) }
}

/// Something that cannot happen in the simulated App Store, with the reason in one sentence.
package struct SimulationError: Error, Hashable, CustomStringConvertible {
  /// The reason as a word, for programs.
  package enum Code: String, Sendable {
    case unknownApp = "unknown_app"
    case unknownProduct = "unknown_product"
    case unknownAppleID = "unknown_apple_id"
    case unknownDevice = "unknown_device"
    case unknownTransaction = "unknown_transaction"
    case unknownLine = "unknown_line"
    case alreadyExists = "already_exists"
    case notPossible = "not_possible"
    case paymentDeclined = "payment_declined"
  }

  package let code: Code
  package let description: String

  /// An error with its sentence for people.
  package init(_ code: Code, _ description: String) {
    self.code = code
    self.description = description
  }
}
