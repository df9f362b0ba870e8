/// The owners of a purchase and of a renewal made now: a warning before the customer pays.
package struct OwnershipPreview: Sendable {
  /// The decision if the account bought now and submitted the purchase.
  package let purchase: Decision
  /// The decision if Apple renewed now, without a claim.
  package let renewal: Decision

  /// - Parameter line: The original transaction as recorded; without charges the buyer owns
  ///   everything.
  package init(
    of line: OriginalTransaction, account: AccountKey, id: OriginalTransactionKey, at now: Timestamp
  ) {
    let latest = OwnershipRule(line.history).charges.last
    purchase = Self.decision(
      kind: .purchase, on: line, like: latest, id: id, claimedBy: account, at: now)
    renewal = Self.decision(kind: .renewal, on: line, like: latest, id: id, claimedBy: nil, at: now)
  }

  private static func decision(
    kind: ChargeKind, on line: OriginalTransaction, like latest: Charge?,
    id: OriginalTransactionKey, claimedBy account: AccountKey?, at now: Timestamp
  ) -> Decision {
    let key = TransactionKey(
      line: id, transactionID: "preview", productID: latest?.productID ?? "preview")
    // A renewal that is charged early is dated ahead; the next charge can't be dated before it.
    let date = max(now, (latest?.date ?? now) + .milliseconds(1))
    var history = line.history
    var record = TransactionRecord(
      key: key, asOf: date, kind: kind, purchaseDate: date, productType: latest?.productType)
    // A one-time purchase has no period, and buying it again restores it.
    if latest?.isSubscription ?? true {
      // Its own end and line item, so that it reports no known charge.
      let ends = history.transactions.compactMap(\.expiresDate?.value)
      record.expiresDate = max(date, ends.max() ?? date) + .milliseconds(1)
      record.webOrderLineItemID = "preview"
    }
    let recorded = RecordingOrder(at: Timestamp(milliseconds: .max), number: .max)
    history.add(record, recorded: recorded)
    if let account {
      let claim = Claim(account: account, transaction: key, receivedAt: date)
      history.add(.claim(claim), recorded: recorded)
    }
    let rule = OwnershipRule(history)
    guard let position = rule.position(of: key) else {
      preconditionFailure("The charge was just added.")
    }
    return rule.decisions[position]
  }
}
