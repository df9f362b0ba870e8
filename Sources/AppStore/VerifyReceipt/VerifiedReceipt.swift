package import Subscriptions
import struct Foundation.UUID

/// A receipt that Apple vouches for, in the vocabulary of the rules.
package struct VerifiedReceipt: Hashable, Sendable {
  /// The environment whose endpoint vouched for it.
  package var environment: Environment
  /// The configured app that it belongs to.
  package var bundleID: String
  /// Apple's `status`: 0, or 21006 for an old receipt of an expired subscription.
  package var status: Int
  /// When Apple said so: `request_date_ms`, or the moment of the answer where that is missing.
  package var requestDate: Timestamp
  /// How far Apple's clock was ahead of ours when the answer came, at least.
  package var clockSkew: Duration
  /// Every transaction once, by purchase date.
  package var records: [TransactionRecord]
  /// At most one status per line.
  package var statuses: [LineID: RenewalStatus]
  /// What Apple listed and nobody could read; it stands in the exchange.
  package var unreadable: [UnreadableRecord]
  /// How many transactions carry an `app_account_token` that is no UUID, and so count as without.
  package var unusableAppAccountTokens: Int

  package init(
    environment: Environment, bundleID: String, status: Int = 0, requestDate: Timestamp,
    clockSkew: Duration = .zero, records: [TransactionRecord],
    statuses: [LineID: RenewalStatus] = [:],
    unreadable: [UnreadableRecord] = [],
    unusableAppAccountTokens: Int = 0
  ) {
    self.environment = environment
    self.bundleID = bundleID
    self.status = status
    self.requestDate = requestDate
    self.clockSkew = clockSkew
    self.records = records
    self.statuses = statuses
    self.unreadable = unreadable
    self.unusableAppAccountTokens = unusableAppAccountTokens
  }

  /// All of it, transactions first: the same for the same facts, however Apple orders them.
  package var evidence: [Evidence] {
    records.map { .transaction($0) }
      + statuses.sorted { $0.key < $1.key }.map { .renewalStatus($0.value, line: $0.key) }
  }
}

/// One entry of one of Apple's lists that could not be read.
package struct UnreadableRecord: Hashable, Comparable, Sendable, CustomStringConvertible {
  /// The list's name, as Apple writes it.
  package var list: String
  /// What is wrong with it, without its values.
  package var reason: String
  /// Nil if that can't be read either.
  package var purchaseDate: Timestamp?

  package init(list: String, reason: String, purchaseDate: Timestamp? = nil) {
    self.list = list
    self.reason = reason
    self.purchaseDate = purchaseDate
  }

  package var description: String { "\(list): \(reason)" }

  package static func < (lhs: UnreadableRecord, rhs: UnreadableRecord) -> Bool {
    (lhs.list, lhs.reason, lhs.purchaseDate?.milliseconds ?? .max)
      < (rhs.list, rhs.reason, rhs.purchaseDate?.milliseconds ?? .max)
  }

  /// Whether the entry is a purchase that is newer than all that could be read.
  ///
  /// Without a date it counts only where nothing could be read: old entries without one stay in a
  /// receipt forever, and every submission of it would be verified again and again.
  package func hidesPurchase(after newest: Timestamp?) -> Bool {
    guard !["pending_renewal_info", "top level"].contains(list) else { return false }
    guard let newest else { return true }
    return purchaseDate.map { newest < $0 } ?? false
  }
}

extension VerifiedReceipt {
  /// Translates what Apple answered into evidence.
  ///
  /// Steps 1 and 2 of the rule "Which charges does a submission claim?": both lists merged, every
  /// transaction once, by purchase date. `answeredAt` stands in for a missing `request_date`.
  init(
    _ contents: ReceiptAnswer.Contents, status: Int, environment: Environment, bundleID: String,
    answeredAt: Timestamp
  ) {
    let requestDate = contents.receipts.elements.compactMap(\.requestDate).max() ?? answeredAt
    var merger = TransactionMerger(environment: environment, requestDate: requestDate)
    for item in contents.currentItems { merger.add(current: item) }
    for body in contents.receipts.elements {
      guard let asOf = body.archivedAsOf else { continue }
      for item in body.archivedItems { merger.add(archived: item, asOf: asOf) }
    }
    let merged = merger.merged()
    self.init(
      environment: environment, bundleID: bundleID, status: status, requestDate: requestDate,
      clockSkew: max(requestDate - answeredAt, .zero), records: merged.records,
      unreadable: (contents.faults + merged.incomplete).sorted(),
      unusableAppAccountTokens: merged.unusableAppAccountTokens)
    let latest = Dictionary(grouping: merged.records, by: \.key.line).mapValues { records in
      records.max { ($0.chargedAt, $0.key) < ($1.chargedAt, $1.key) }
    }
    for (originalTransactionID, entries) in contents.renewals {
      let line = LineID(environment, OriginalTransactionID(originalTransactionID))
      statuses[line] = RenewalStatus(
        entries, latest: latest[line] ?? nil, asOf: requestDate, isExpired: status == 21006)
    }
  }
}

/// What an answer lists, sorted by how much its silence says.
extension ReceiptAnswer.Contents {
  /// What Apple knows now: `latest_receipt_info`, or an old answer's `latest_expired_receipt_info`.
  ///
  /// An old answer's cancellation stands at its top level, too, or only there.
  var currentItems: [ReceiptItem] {
    let listed = listedItems
    guard let cancellationDate else { return listed }
    let cancelled = listed.isEmpty ? receipts.elements.compactMap(\.transaction) : listed
    guard Set(cancelled).count == 1 else { return listed }
    return cancelled.map { item in
      guard item.cancellationDate == nil else { return item }
      var item = item
      item.cancellationDate = cancellationDate
      item.cancellationReason = cancellationReason
      return item
    }
  }

  private var listedItems: [ReceiptItem] {
    (latestReceiptInfo?.elements ?? []) + (latestExpiredReceiptInfo?.elements ?? [])
  }

  /// What Apple plans for each line, by `original_transaction_id`; a line can have several entries.
  ///
  /// An old answer plans at its top level, for the only line that it shows.
  var renewals: [String: [PendingRenewal]] {
    if let entries = pendingRenewalInfo?.elements, !entries.isEmpty {
      let named = entries.filter { $0.originalTransactionID != nil }
      return Dictionary(grouping: named) { $0.originalTransactionID ?? "" }
    }
    let shown = Set(
      (listedItems + receipts.elements.compactMap(\.transaction)).map(\.originalTransactionID))
    guard let renewal, !renewal.isSilent, let line = shown.first, shown.count == 1 else {
      return [:]
    }
    return [line: [renewal]]
  }

  /// The entries that could not be read.
  var faults: [UnreadableRecord] {
    let lists: [(String, [EntryFault])] = [
      ("receipt", receipts.faults + receipts.elements.compactMap(\.transactionFault)),
      ("in_app", receipts.elements.flatMap { $0.inApp?.faults ?? [] }),
      ("latest_receipt_info", latestReceiptInfo?.faults ?? []),
      ("latest_expired_receipt_info", latestExpiredReceiptInfo?.faults ?? []),
      ("pending_renewal_info", pendingRenewalInfo?.faults ?? []),
      (
        "pending_renewal_info",
        (pendingRenewalInfo?.elements ?? []).filter { $0.originalTransactionID == nil }
          .map { _ in EntryFault(reason: "original_transaction_id is missing") }
      ),
      ("top level", [renewalFault].compactMap { $0.map { EntryFault(reason: $0) } }),
    ]
    return lists.flatMap { list, faults in
      faults.map {
        UnreadableRecord(list: list, reason: $0.reason, purchaseDate: $0.purchaseDate)
      }
    }
  }
}

extension ReceiptBody {
  /// The transactions that the receipt itself held when it was made.
  var archivedItems: [ReceiptItem] {
    (inApp?.elements ?? []) + [transaction].compactMap(\.self)
  }

  /// The date of what the receipt itself says.
  ///
  /// Where it doesn't give its creation date, it is at least as young as the newest transaction in
  /// it, and nothing proves that it is younger.
  var archivedAsOf: Timestamp? {
    creationDate ?? archivedItems.map(\.purchaseDate).max()
  }
}

extension TransactionRecord {
  /// The entry as evidence of `asOf`; `otherwise` is what it means that no cancellation is named.
  ///
  /// Receipts don't say whether Apple renewed or the customer bought, nor the price, nor the type
  /// of the product.
  init(
    _ item: ReceiptItem, key: TransactionKey, asOf: Timestamp, otherwise: RevocationStatus
  ) {
    self.init(
      key: key, asOf: asOf, purchaseDate: item.purchaseDate,
      originalPurchaseDate: item.originalPurchaseDate, expiresDate: item.expiresDate,
      webOrderLineItemID: item.webOrderLineItemID,
      subscriptionGroup: item.subscriptionGroup, quantity: item.quantity ?? 1,
      appAccountToken: item.appAccountToken.flatMap { UUID(uuidString: $0) },
      ownershipType: item.ownershipType == "FAMILY_SHARED" ? .familyShared : .purchased,
      periodType: item.periodType, offerID: item.promotionalOfferID ?? item.offerCodeName,
      isUpgraded: item.isUpgraded ?? false,
      revocation: item.cancellationDate.map {
        .mentioned(at: $0, reason: item.cancellationReason)
      } ?? otherwise)
  }
}

extension ReceiptItem {
  /// A trial is a trial even when an offer code gave it.
  fileprivate var periodType: PeriodType {
    if isTrialPeriod == true { return .trial }
    if isInIntroOfferPeriod == true { return .intro }
    return promotionalOfferID != nil || offerCodeName != nil ? .offer : .normal
  }
}

extension RenewalStatus {
  /// What Apple plans for a line whose latest transaction is `latest`.
  ///
  /// Of several entries on one line, that of the latest transaction's product counts. `isExpired`:
  /// the answer's status was 21006. Nil without entries.
  init?(
    _ entries: [PendingRenewal], latest: TransactionRecord?, asOf: Timestamp, isExpired: Bool
  ) {
    let product = latest?.key.productID.rawValue
    let entry = entries.max {
      let (left, right) = ($0.productID == product, $1.productID == product)
      return left == right ? $0.sortKey.lexicographicallyPrecedes($1.sortKey) : right
    }
    guard let entry else { return nil }
    let phase = RenewalPhase(
      gracePeriodExpiresDate: entry.gracePeriodExpiresDate,
      isInBillingRetryPeriod: entry.isInBillingRetryPeriod,
      hasEnding: entry.expirationIntent != nil || (isExpired && entry.autoRenews == false),
      paidUntil: latest?.expiresDate, asOf: asOf)
    self.init(
      asOf: asOf, autoRenews: entry.autoRenews, phase: phase.phase,
      autoRenewProductID: entry.autoRenewProductID.map { ProductID($0) },
      expirationIntent: entry.expirationIntent)
  }
}
