package import struct Foundation.UUID
package import Subscriptions

/// An event in the simulated App Store, the source of notifications.
package struct SimulatedEvent: Hashable, Sendable {
  package enum Kind: Hashable, Sendable {
    /// The first purchase in a group, or of a family member's share.
    case subscribed
    case resubscribed
    case renewed
    case recovered
    /// An upgrade, or a crossgrade of the same duration, charged immediately.
    case upgraded
    /// Sets the product of the next renewal, or resets it.
    case renewalProductChanged(ProductID)
    case autoRenewTurnedOff
    case autoRenewTurnedOn
    /// A payment failed; with a grace period, access continues until the date.
    case renewalFailed(graceUntil: Timestamp?)
    case gracePeriodExpired
    /// The intent is Apple's `expiration_intent`.
    case expired(intent: Int)
    case boughtOnce
    case refunded
    case refundReversed
    case familyAccessRevoked
    /// A charge received another transaction ID on a device.
    case restored
    case priceIncreaseAsked
    case priceIncreaseAccepted
    /// An offer for an active subscription; ``Redemption`` has its effect.
    case offerRedeemed(Redemption)
    /// The period's end was moved without a charge.
    case renewalExtended(days: Int)
    /// The customer requests a refund, and Apple asks the app for information.
    case refundRequested(RefundRequestReason)
    case refundDeclined
    /// The subscription continues under another original transaction ID.
    case migrated(from: OriginalTransactionID)

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

  /// The effect of an offer on an active subscription.
  package enum Redemption: String, Sendable {
    /// A discount on the next renewal of the same product.
    case renewal
    case upgrade
    /// Another product at the next renewal.
    case downgrade
  }

  /// The reason for a requested refund, Apple's `consumptionRequestReason`.
  ///
  /// https://developer.apple.com/documentation/appstoreservernotifications/consumptionrequestreason
  package enum RefundRequestReason: String, CaseIterable, Sendable {
    case unintendedPurchase = "UNINTENDED_PURCHASE"
    case fulfillmentIssue = "FULFILLMENT_ISSUE"
    case unsatisfied = "UNSATISFIED_WITH_PURCHASE"
    case legal = "LEGAL"
    case other = "OTHER"
  }

  package let number: Int  // Counted from 1
  package let at: Timestamp
  package let kind: Kind
  package let environment: Environment
  package let bundleID: String
  package let appleID: AppleID
  package let originalTransactionID: OriginalTransactionID
  /// The charge concerned; for a restore, its new ID.
  package let transactionID: TransactionID
  package let productID: ProductID
  /// The account logged in where the action took place; nil for Apple's actions and in Settings.
  package let account: AppAccountID?
}

/// The truth about one charge, for comparison with conclusions drawn from Apple's data.
package struct SimulatedCharge: Hashable, Sendable {
  package enum Kind: String, Sendable {
    case purchase
    case renewal
    case recovery
  }

  package let environment: Environment
  package let bundleID: String
  package let appleID: AppleID
  package let originalTransactionID: OriginalTransactionID
  /// The charge's own ID first, then the IDs of restores.
  package let transactionIDs: [TransactionID]
  package let webOrderLineItemID: WebOrderLineItemID?
  package let productID: ProductID
  package let productType: ProductType
  package let group: String?
  package let kind: Kind
  package let ownership: OwnershipType
  /// The time of payment, up to a day before a renewal's `purchaseDate`.
  package let madeAt: Timestamp
  package let purchaseDate: Timestamp
  package let expiresDate: Timestamp?
  package let priceMilliunits: Int64
  package let currency: String
  package let quantity: Int
  package let appAccountToken: UUID?
  /// The account that acted: the one logged in at the purchase or, for a renewal, at the last
  /// purchase.
  ///
  /// Nil if no account was logged in, as in Settings.
  package let account: AppAccountID?
  package let upgradedAt: Timestamp?
  package let revokedAt: Timestamp?
  /// The ID on the customer's invoice; a family member has none.
  package let orderID: String?

  package var transactionID: TransactionID { transactionIDs[0] }
  package var line: OriginalTransactionKey {
    OriginalTransactionKey(environment, originalTransactionID)
  }
}

/// An action that is not possible in the simulated App Store.
package struct SimulationError: Error, Hashable, CustomStringConvertible {
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

  package init(_ code: Code, _ description: String) {
    self.code = code
    self.description = description
  }
}
