/// Which charges of what was submitted the submission claims.
///
/// A receipt lists what the Apple ID ever bought, in no order, and some of it may belong to others.
/// So everything in it is recorded, but only what the submission can be about is claimed.
package enum ClaimSelection: Hashable, Sendable {
  /// What the app says has just been bought.
  case transaction(TransactionID)
  /// The customer asked for everything.
  case restore
  /// The latest of each group, and whatever else of the group is still running.
  case latest
  /// Signed transactions were sent one by one: each is selected by being sent.
  case submitted

  /// Selects from the merged records of a submission.
  ///
  /// A submission never selects what was purchased after it was received, however late Apple
  /// verifies it.
  ///
  /// - Parameters:
  ///   - records: One record for each transaction.
  ///   - receivedAt: When the submission arrived, by Apple's clock.
  ///   - catalogue: Tells the types of products that Apple's receipts don't tell.
  /// - Returns: The selected records by purchase date.
  package func select(
    from records: [TransactionRecord], receivedAt: Timestamp, catalogue: Catalogue
  ) -> [TransactionRecord] {
    let eligible =
      records
      .filter { !Self.isPurchased($0, after: receivedAt) }
      .sorted { ($0.chargedAt, $0.key) < ($1.chargedAt, $1.key) }
    switch self {
    case .transaction(let id):
      return eligible.filter { $0.key.transactionID == id }
    case .restore, .submitted:
      return eligible
    case .latest:
      let groups = Dictionary(grouping: eligible) { Group(of: $0, in: catalogue) }
      return eligible.filter { record in
        let latest = groups[Group(of: record, in: catalogue)]?.last
        return record.key == latest?.key || record.isRunning(at: receivedAt, in: catalogue)
      }
    }
  }

  /// Whether something was purchased after a submission was received, so that it can't be claimed.
  ///
  /// Apple charges renewals up to a day early and dates them ahead: such a charge in an answer from
  /// the time of the submission had been made by then.
  package static func isPurchased(_ record: TransactionRecord, after receivedAt: Timestamp) -> Bool
  {
    let isEarly =
      record.expiresDate != nil && record.chargedAt - record.asOf <= AutoRenewal.earlyCharge
    let charged = isEarly ? min(record.chargedAt, record.asOf) : record.chargedAt
    return receivedAt + .clockTolerance < charged
  }

  /// What is looked at as one: the latest of a group stands for it.
  private enum Group: Hashable {
    case line(LineID)
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
  /// The product's type as far as it is known.
  package func type(in catalogue: Catalogue) -> ProductType? {
    ProductType.known(
      of: key.productID, as: productType, hasExpiry: expiresDate != nil, in: catalogue)
  }

  /// Whether what was paid for has an end that is not reached at a moment.
  fileprivate func isRunning(at moment: Timestamp, in catalogue: Catalogue) -> Bool {
    if let expiresDate { return moment < expiresDate }
    guard type(in: catalogue) == .nonRenewing,
      let period = catalogue.product(key.productID, at: chargedAt)?.period
    else { return false }
    return moment < period.end(from: chargedAt)
  }
}
