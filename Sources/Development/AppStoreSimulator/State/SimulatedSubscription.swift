import AppStore
import struct Foundation.UUID
import JSONText
import Subscriptions

/// One Apple ID's purchases under one original transaction id.
struct Line: Sendable {
  let id: OriginalTransactionID
  let customer: Int
  let app: Int
  let environment: Environment
  /// Nil for what is bought once.
  let group: String?
  let ownership: OwnershipType
  /// The purchaser's line, of which this is a family member's share.
  var sharedFrom: Int?
  /// The line that this one continues under another original id, after a migration.
  var previous: Int?
  /// The line that continues this one.
  var next: Int?
  /// In the order in which they were made.
  var charges: [Int] = []
  /// Set exactly on the purchaser's line of a subscription: shares follow it.
  var renewal: Renewal?
}

/// Whether, when and as what a subscription goes on.
struct Renewal: Sendable {
  enum Phase: Hashable, Sendable {
    case paid
    /// Apple could not collect and keeps trying.
    case retrying(since: Timestamp, graceUntil: Timestamp?)
    /// Why, in Apple's numbers: see `expiration_intent`.
    case expired(intent: Int)
  }

  enum PriceConsent: Sendable {
    case asked
    case accepted
  }

  var phase = Phase.paid
  var isOn = true
  /// When that was switched last.
  var switchedAt: Timestamp?
  /// What the next period is of.
  var product: SimulatedProduct
  /// Renewals carry the token of the purchase, or of the latest change of plan.
  var appAccountToken: UUID?
  /// Who last bought or changed something here.
  var account: AppAccountID?
  var priceConsent: PriceConsent?
  /// A discount on the next period.
  var offer: SimulatedOffer?
  /// When the renewal date was extended.
  var extensions: [Timestamp] = []
  /// Switched off during grace: then pending_renewal_info does not mention the line.
  var wasLeftDuringGrace = false
  /// Periods are counted from here, so that the 31st stays the 31st after a February.
  var anchor: Timestamp
  var periodsSinceAnchor = 0
  var renewalsInARow = 0
  /// Goes up with each schedule; what was planned under an older one is void.
  var schedule = 0

  /// What the next period costs.
  var price: Int64 { offer?.priceMilliunits ?? product.priceMilliunits }
}

/// One payment, or a family member's share in one.
struct Charge: Sendable {
  struct Revocation: Sendable {
    let at: Timestamp
    /// Apple's `cancellation_reason`: "1" a problem with the app, "0" other.
    let reason: String
    var reversedAt: Timestamp?
  }

  /// Changes with a migration alone.
  var line: Int
  let product: SimulatedProduct
  let kind: SimulatedCharge.Kind
  let transactionNumber: Int
  let webOrderLineItemID: WebOrderLineItemID?
  let madeAt: Timestamp
  let purchaseDate: Timestamp
  /// Changes with an extension alone.
  var expiresDate: Timestamp?
  let quantity: Int
  let periodType: PeriodType
  let offer: SimulatedOffer?
  let priceMilliunits: Int64
  /// Changes with Set App Account Token alone.
  var appAccountToken: UUID?
  let account: AppAccountID?
  /// Family members' charges made from this one.
  var shares: [Int] = []
  /// The ids that restores gave it.
  var aliases: [TransactionID] = []
  var upgradedAt: Timestamp?
  var revocations: [Revocation] = []
  /// When the app finished a consumable, which then leaves the receipts.
  var finishedAt: Timestamp?
  /// Orders charges by their last change, among those of all lines.
  var modification = 0
  /// What the app's server told about it after a request for a refund.
  var consumptionReports: [JSONValue] = []

  var transactionID: TransactionID { TransactionID(String(transactionNumber)) }

  /// The revocation in force as Apple knew it at `moment`.
  func revocation(asOf moment: Timestamp) -> Revocation? {
    revocations.last { $0.at <= moment && ($0.reversedAt.map { moment < $0 } ?? true) }
  }

  /// Whether it still counts: neither given back nor replaced by an upgrade.
  var stands: Bool {
    upgradedAt == nil && revocations.allSatisfy { $0.reversedAt != nil }
  }
}
