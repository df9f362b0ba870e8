import AppStore
import struct Foundation.UUID
import JSONText
import Subscriptions

import struct Foundation.UUID

/// The purchases of one Apple ID under one original transaction ID.
struct SimulatedSubscription: Sendable {
  let id: OriginalTransactionID
  let customer: Int
  let app: Int
  let environment: Environment
  /// Nil for one-time purchases.
  let group: String?
  let ownership: OwnershipType
  /// The purchaser's original transaction, if this is a family member's share.
  var sharedFrom: Int?
  /// The original transaction that this one continues after a migration.
  var previous: Int?
  /// The original transaction that continues this one.
  var next: Int?
  var charges: [Int] = []  // In booking order
  /// Only set for the purchaser of a subscription; shares follow it.
  var renewal: Renewal?
}

struct Renewal: Sendable {
  enum Phase: Hashable, Sendable {
    case paid
    /// A payment failed and is being retried.
    case retrying(since: Timestamp, graceUntil: Timestamp?)
    /// The intent is Apple's `expiration_intent`.
    case expired(intent: Int)
  }

  enum PriceConsent: Sendable {
    case asked
    case accepted
  }

  var phase = Phase.paid
  var isOn = true
  var switchedAt: Timestamp?
  var product: SimulatedProduct
  /// Renewals keep the token of the purchase or of the latest change of plan.
  var appAccountToken: UUID?
  var account: AppAccountID?
  var priceConsent: PriceConsent?
  var offer: SimulatedOffer?
  /// The dates on which the renewal date was extended.
  var extensions: [Timestamp] = []
  /// Switched off during grace; pending_renewal_info then omits the subscription.
  var wasLeftDuringGrace = false
  /// The start for counting periods, so that the 31st remains the 31st after February.
  var anchor: Timestamp
  var periodsSinceAnchor = 0
  var renewalsInARow = 0
  /// Incremented with each schedule; steps of older schedules are void.
  var schedule = 0

  var price: Int64 { offer?.priceMilliunits ?? product.priceMilliunits }
}

/// A payment, or a family member's share of one.
struct Charge: Sendable {
  struct Revocation: Sendable {
    let at: Timestamp
    /// Apple's `cancellation_reason`: "1" a problem with the app, "0" other.
    let reason: String
    var reversedAt: Timestamp?
  }

  /// Only changed by a migration.
  var line: Int
  let product: SimulatedProduct
  let kind: SimulatedCharge.Kind
  let transactionNumber: Int
  let webOrderLineItemID: WebOrderLineItemID?
  let madeAt: Timestamp
  let purchaseDate: Timestamp
  /// Only changed by an extension.
  var expiresDate: Timestamp?
  let quantity: Int
  let periodType: PeriodType
  let offer: SimulatedOffer?
  let priceMilliunits: Int64
  /// Only changed by Set App Account Token.
  var appAccountToken: UUID?
  let account: AppAccountID?
  /// The family members' shares of this charge.
  var shares: [Int] = []
  /// The IDs assigned by restores.
  var aliases: [TransactionID] = []
  var upgradedAt: Timestamp?
  var revocations: [Revocation] = []
  /// When the app finished a consumable, which then disappears from receipts.
  var finishedAt: Timestamp?
  /// Orders all charges by their last change.
  var modification = 0
  /// The consumption information that the app's server sent after a refund request.
  var consumptionReports: [JSONValue] = []

  var transactionID: TransactionID { TransactionID(String(transactionNumber)) }

  /// The revocation in effect at `moment`.
  func revocation(asOf moment: Timestamp) -> Revocation? {
    revocations.last { $0.at <= moment && ($0.reversedAt.map { moment < $0 } ?? true) }
  }

  /// Whether the charge counts: neither refunded nor upgraded.
  var stands: Bool {
    upgradedAt == nil && revocations.allSatisfy { $0.reversedAt != nil }
  }
}
