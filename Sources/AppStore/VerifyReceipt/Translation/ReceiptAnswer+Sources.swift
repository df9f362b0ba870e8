import Subscriptions

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
