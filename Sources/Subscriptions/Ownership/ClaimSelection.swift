/// The charges of a submission that it claims.
///
/// A receipt lists everything that an Apple Account ever bought, in no order, and some of it may
/// belong to other accounts. All of it is recorded; only the purchases that the submission can be
/// about are claimed.
package enum ClaimSelection: Hashable, Sendable {
  /// The transaction that the app names.
  case transaction(TransactionID)
  case restore
  /// The latest of each group, and all of the group that have not ended.
  case latest
  /// Signed transactions, which are sent one by one.
  case submitted

  /// Selects from the merged records of a submission, by purchase date; never purchases after it
  /// was received, however late Apple verifies it.
  /// - Parameter receivedAt: The arrival of the submission, by Apple's clock.
  package func select(
    from records: [TransactionRecord], receivedAt: Timestamp, catalogue: Catalogue
  ) -> [TransactionRecord] {
    let eligible =
      records
      .filter { !Self.isPurchased($0, after: receivedAt) }
      .sorted { ($0.chargedAt, $0.key) < ($1.chargedAt, $1.key) }
    switch self {
    case .transaction(let id): return eligible.filter { $0.key.transactionID == id }
    case .restore, .submitted: return eligible
    case .latest:
      let groups = Dictionary(grouping: eligible) { Group(of: $0, in: catalogue) }
      return eligible.filter { record in
        let latest = groups[Group(of: record, in: catalogue)]?.last
        return record.key == latest?.key || record.isRunning(at: receivedAt, in: catalogue)
      }
    }
  }

  /// Whether a record was purchased after a submission was received, so that it can't be claimed;
  /// an early renewal dated ahead was not, if the answer is from the time of the submission.
  package static func isPurchased(_ record: TransactionRecord, after receivedAt: Timestamp) -> Bool
  {
    let isEarly =
      record.expiresDate != nil
      && record.chargedAt - record.asOf <= RuleConstants.standard.earlyCharge
    let charged = isEarly ? min(record.chargedAt, record.asOf) : record.chargedAt
    return receivedAt + .clockTolerance < charged
  }

  private enum Group: Hashable {
    case line(OriginalTransactionKey)
    case product(Environment, ProductID)
    /// A receipt lists a consumable until the app finishes it: each counts.
    case transaction(TransactionKey)

    init(of record: TransactionRecord, in catalogue: Catalogue) {
      self =
        switch record.type(in: catalogue) {
        case .autoRenewable: .line(record.key.line)
        case .nonRenewing, .nonConsumable:
          .product(record.key.line.environment, record.key.productID)
        case .consumable, nil: .transaction(record.key)
        }
    }
  }
}

extension TransactionRecord {
  package func type(in catalogue: Catalogue) -> ProductType? {
    ProductType.known(
      of: key.productID, as: productType, hasExpiry: expiresDate != nil, in: catalogue)
  }

  /// Whether the paid period has an end that is not reached at a moment.
  fileprivate func isRunning(at moment: Timestamp, in catalogue: Catalogue) -> Bool {
    if let expiresDate { return moment < expiresDate }
    guard type(in: catalogue) == .nonRenewing,
      let period = catalogue.product(key.productID, at: chargedAt)?.period
    else { return false }
    return moment < period.end(from: chargedAt)
  }
}
