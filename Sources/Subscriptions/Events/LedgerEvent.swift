/// A change that concerns one account, for the feed and the webhooks; never names another one.
package struct LedgerEvent: Hashable, Sendable {
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
    /// Its end is earlier than was published, and still in the future.
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
    /// The last event of an account.
    case accountErased = "account.erased"
  }

  package var kind: Kind
  /// The moment of a change caused by time; else the recording date.
  package var occurredAt: Timestamp
  /// Nil: a charge without an owner.
  package var account: AccountKey?
  package var data: EventData

  package init(_ kind: Kind, at occurredAt: Timestamp, account: AccountKey?, data: EventData) {
    (self.kind, self.occurredAt, self.account, self.data) = (kind, occurredAt, account, data)
  }
}

/// The details of an event, nil where they don't apply; without accounts, which events outlive.
package struct EventData: Hashable, Sendable {
  package var line: OriginalTransactionKey?
  package var transactionID: TransactionID?
  package var productID: ProductID?
  /// The charge's terms as far as Apple reports them, without an owner.
  package var terms: ChargeTerms?
  /// For `product.changed`.
  package var previousProductID: ProductID?
  /// A UUID in lower case.
  package var orderID: String?
  package var purchasedAt: Timestamp?
  package var expiresAt: Timestamp?
  package var revokedAt: Timestamp?
  package var graceEndsAt: Timestamp?
  /// The new value, for `renewal_status.changed`.
  package var autoRenewing: Bool?
  package var autoRenewProductID: ProductID?
  package var rule: Decision.Rule?
  /// The reason in a sentence without account names.
  package var because: String?
  /// Whether the account owns the charge now, for decided and corrected owners.
  package var isOwner: Bool?
  /// The other side of a moved binding or a corrected owner.
  package var counterpart: Counterpart?
  package var entitlement: Entitlement?
  package var entitlements: [Entitlement]?
  /// A UUID in lower case by which the app server may know an erased account.
  package var appAccountToken: String?

  package enum Counterpart: String, Codable, Sendable {
    case anotherAccount = "another_account"
    case noAccount = "nobody"
  }

  package init(line: OriginalTransactionKey? = nil) { self.line = line }
}
