package import Subscriptions
import struct Foundation.UUID

package struct VerifiedReceipt: Hashable, Sendable {
  package var environment: Environment
  package var bundleID: String
  /// 0, or 21006 for an old receipt of an expired subscription.
  package var status: Int
  /// `request_date_ms`, or the time of the response if it is missing.
  package var requestDate: Timestamp
  /// The minimum by which Apple's clock was ahead of ours.
  package var clockSkew: Duration
  /// Each transaction once, by purchase date.
  package var records: [TransactionRecord]
  /// At most one status per original transaction.
  package var statuses: [OriginalTransactionKey: RenewalStatus] = [:]
  /// Entries that could not be read; the exchange contains them.
  package var unreadable: [UnreadableRecord]
  /// The number of transactions with an `app_account_token` that is not a UUID and is ignored.
  package var unusableAppAccountTokens: Int

  /// Transactions first; independent of the order in Apple's response.
  package var evidence: [Evidence] {
    records.map { .transaction($0) }
      + statuses.sorted { $0.key < $1.key }.map { .renewalStatus($0.value, line: $0.key) }
  }
}

package struct UnreadableRecord: Hashable, Comparable, Sendable, CustomStringConvertible {
  package var list: String
  /// The problem, without values.
  package var reason: String
  /// Nil if it can't be read either.
  package var purchaseDate: Timestamp?

  package var description: String { "\(list): \(reason)" }

  package static func < (lhs: UnreadableRecord, rhs: UnreadableRecord) -> Bool {
    (lhs.list, lhs.reason, lhs.purchaseDate?.milliseconds ?? .max)
      < (rhs.list, rhs.reason, rhs.purchaseDate?.milliseconds ?? .max)
  }

  /// Whether the entry is a purchase newer than all that could be read; without a date only if
  /// there is none, because an old entry stays in a receipt and would cause endless verification.
  package func hidesPurchase(after newest: Timestamp?) -> Bool {
    guard !["pending_renewal_info", "top level"].contains(list) else { return false }
    guard let newest else { return true }
    return purchaseDate.map { newest < $0 } ?? false
  }
}

extension VerifiedReceipt {
  /// Translates a response into evidence.
  ///
  /// Steps 1 and 2 of the rule "Which charges does a submission claim?": both lists are merged, and
  /// each transaction appears once, by purchase date. `answeredAt` replaces a missing
  /// `request_date`.
  init(
    _ contents: ReceiptResponse.Contents, status: Int, environment: Environment, bundleID: String,
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
      let line = OriginalTransactionKey(environment, OriginalTransactionID(originalTransactionID))
      statuses[line] = RenewalStatus(
        entries, latest: latest[line] ?? nil, asOf: requestDate, isExpired: status == 21006)
    }
  }
}

// The lists of a response, by the meaning of an absent entry.
extension ReceiptResponse.Contents {
  /// Current transactions: `latest_receipt_info`, or an old response's
  /// `latest_expired_receipt_info`, which also, or only, has the cancellation at its top level.
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

  /// Renewals by `original_transaction_id`, of which an old response has one at the top level.
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

  var faults: [UnreadableRecord] {
    let renewals = pendingRenewalInfo?.elements ?? []
    return receipts.faults + receipts.elements.compactMap(\.transactionFault)
      + receipts.elements.flatMap { $0.inApp?.faults ?? [] } + (latestReceiptInfo?.faults ?? [])
      + (latestExpiredReceiptInfo?.faults ?? []) + (pendingRenewalInfo?.faults ?? [])
      + renewals.filter { $0.originalTransactionID == nil }.map { _ in
        UnreadableRecord(
          list: "pending_renewal_info", reason: "original_transaction_id is missing")
      } + (renewalFault.map { [UnreadableRecord(list: "top level", reason: $0)] } ?? [])
  }
}

extension ReceiptBody {
  var archivedItems: [ReceiptItem] { (inApp?.elements ?? []) + [transaction].compactMap(\.self) }

  /// The date of the receipt's own data: its creation, or else that of its newest transaction.
  var archivedAsOf: Timestamp? { creationDate ?? archivedItems.map(\.purchaseDate).max() }
}

extension TransactionRecord {
  /// The entry as evidence of `asOf`; `otherwise` applies if no cancellation is named.
  init(_ item: ReceiptItem, key: TransactionKey, asOf: Timestamp, otherwise: RevocationStatus) {
    self.init(
      key: key, asOf: asOf, purchaseDate: item.purchaseDate,
      originalPurchaseDate: item.originalPurchaseDate, expiresDate: item.expiresDate,
      webOrderLineItemID: item.webOrderLineItemID, productType: item.productType,
      subscriptionGroup: item.subscriptionGroup, quantity: item.quantity ?? 1,
      appAccountToken: item.appAccountToken.flatMap { UUID(uuidString: $0) },
      ownershipType: item.ownershipType == "FAMILY_SHARED" ? .familyShared : .purchased,
      periodType: item.periodType, offerType: item.offerType,
      offerID: item.promotionalOfferID ?? item.offerCodeName,
      isUpgraded: item.isUpgraded ?? false,
      revocation: item.cancellationDate.map {
        .mentioned(at: $0, reason: item.cancellationReason)
      } ?? otherwise)
  }
}

extension ReceiptItem {
  func key(in environment: Environment) -> TransactionKey {
    TransactionKey(
      line: OriginalTransactionKey(environment, OriginalTransactionID(originalTransactionID)),
      transactionID: TransactionID(transactionID), productID: ProductID(productID))
  }

  /// A trial counts as a trial even if it came with an offer code.
  fileprivate var periodType: PeriodType {
    if isTrialPeriod == true { return .trial }
    if isInIntroOfferPeriod == true { return .intro }
    return promotionalOfferID != nil || offerCodeName != nil ? .offer : .normal
  }

  fileprivate var offerType: OfferType? {
    if offerCodeName != nil { return .offerCode }
    if promotionalOfferID != nil { return .promotional }
    return isTrialPeriod == true || isInIntroOfferPeriod == true ? .introductory : nil
  }
}

extension RenewalStatus {
  /// The renewal status of an original transaction, by the entry of the product of its `latest`
  /// transaction; `isExpired` means status 21006; nil without entries.
  init?(_ entries: [PendingRenewal], latest: TransactionRecord?, asOf: Timestamp, isExpired: Bool) {
    let product = latest?.key.productID.rawValue
    let entry = entries.max {
      let (left, right) = ($0.productID == product, $1.productID == product)
      return left == right ? $0.sortKey.lexicographicallyPrecedes($1.sortKey) : right
    }
    guard let entry else { return nil }
    let phase = Phase.reported(
      gracePeriodExpiresDate: entry.gracePeriodExpiresDate,
      isInBillingRetryPeriod: entry.isInBillingRetryPeriod,
      hasEnding: entry.expirationIntent != nil || (isExpired && entry.autoRenews == false),
      paidUntil: latest?.expiresDate, asOf: asOf)
    self.init(
      asOf: asOf, autoRenews: entry.autoRenews, phase: phase,
      autoRenewProductID: entry.autoRenewProductID.map { ProductID($0) },
      expirationIntent: entry.expirationIntent)
  }
}
