/// A change that concerns one account, as the feed and the webhooks tell it.
///
/// A change that concerns two accounts is two events; neither names the other account.
package struct LedgerEvent: Hashable, Sendable {
  /// The closed set of what is told.
  package enum Kind: String, CaseIterable, Codable, Sendable {
    case transactionRecorded = "transaction.recorded"
    case ownerDecided = "transaction.owner_decided"
    case transactionClaimed = "transaction.claimed"
    case ownerCorrected = "transaction.owner_corrected"
    case transactionRevoked = "transaction.revoked"
    case transactionRestored = "transaction.restored"
    case bindingClosed = "binding.closed"
    case bindingOpened = "binding.opened"
    case entitlementGranted = "entitlement.granted"
    case entitlementExtended = "entitlement.extended"
    /// Its end is earlier than was told, and still to come.
    case entitlementShortened = "entitlement.shortened"
    case entitlementExpired = "entitlement.expired"
    case entitlementRevoked = "entitlement.revoked"
    case renewalStatusChanged = "renewal_status.changed"
    case inGracePeriod = "subscription.in_grace_period"
    case inBillingRetry = "subscription.in_billing_retry"
    case recovered = "subscription.recovered"
    case productChanged = "product.changed"
    case orderFulfilled = "order.fulfilled"
    case orderRefunded = "order.refunded"
    /// The charge that had fulfilled it fulfils another order, or is another account's.
    case orderReopened = "order.reopened"
    case orderExpired = "order.expired"
    /// The last that is told of an account.
    case accountErased = "account.erased"
  }

  package var kind: Kind
  /// When it happened: of what time brings, that moment; else when it was recorded.
  package var occurredAt: Timestamp
  /// Nil: it concerns a charge that nobody owns.
  package var account: AccountKey?
  package var data: EventData

  package init(
    _ kind: Kind, at occurredAt: Timestamp, account: AccountKey?, data: EventData
  ) {
    self.kind = kind
    self.occurredAt = occurredAt
    self.account = account
    self.data = data
  }
}

/// What an event tells beside its kind, moment and account; what does not concern it is nil.
///
/// It names no account, for events outlive those whom they concern.
package struct EventData: Hashable, Sendable {
  package var line: LineID?
  package var transactionID: TransactionID?
  package var productID: ProductID?
  /// Of `product.changed`, what it was before.
  package var previousProductID: ProductID?
  /// The order, as UUID in lower case.
  package var orderID: String?
  package var purchasedAt: Timestamp?
  package var expiresAt: Timestamp?
  package var revokedAt: Timestamp?
  package var graceEndsAt: Timestamp?
  /// Of `renewal_status.changed`, what it is now.
  package var autoRenewing: Bool?
  package var autoRenewProductID: ProductID?
  /// By which row of the rule the owner was decided.
  package var rule: Decision.Rule?
  /// Why, in a sentence that names no account.
  package var because: String?
  /// Of a charge whose owner was decided or corrected, whether it is the account's now.
  package var isOwner: Bool?
  /// Of a binding that moved and of a corrected owner, whose it is or was: `another_account` or
  /// `nobody`.
  package var counterpart: Counterpart?
  /// Of an entitlement's event, the entitlement now.
  package var entitlement: Entitlement?
  /// Of a binding that moved, what the account has now.
  package var entitlements: [Entitlement]?
  /// Of an account that was erased, the token by which the app server may know whose it was: a UUID
  /// in lower case.
  package var appAccountToken: String?

  /// The other side of a change, of which nothing more is told.
  package enum Counterpart: String, Codable, Sendable {
    case anotherAccount = "another_account"
    case nobody
  }

  package init() {}

  package init(line: LineID) { self.line = line }
}
