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
