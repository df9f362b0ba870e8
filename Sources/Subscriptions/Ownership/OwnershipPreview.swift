/// Who would own what is bought or renewed on a line now: to warn before the customer pays.
package struct OwnershipPreview: Sendable {
  /// Were the account to buy on the line now and submit it.
  package let purchase: Decision
  /// Were Apple to renew the line now, with nobody acting.
  package let renewal: Decision

  /// - Parameters:
  ///   - line: The line as it is recorded; without charges, everything is the buyer's.
  ///   - account: Who thinks of buying.
  ///   - id: The line's id.
  ///   - now: The moment of the purchase.
  package init(of line: Line, account: AccountKey, id: LineID, at now: Timestamp) {
    let latest = OwnershipRule(line.history).charges.last
    purchase = Self.decision(
      kind: .purchase, on: line, like: latest, id: id, claimedBy: account, at: now)
    renewal = Self.decision(
      kind: .renewal, on: line, like: latest, id: id, claimedBy: nil, at: now)
  }

  private static func decision(
    kind: ChargeKind, on line: Line, like latest: Charge?, id: LineID,
    claimedBy account: AccountKey?, at now: Timestamp
  ) -> Decision {
    let key = TransactionKey(
      line: id, transactionID: "preview", productID: latest?.productID ?? "preview")
    // A renewal that is charged early is dated ahead; nothing can be dated before what it follows.
    let date = max(now, (latest?.date ?? now) + .milliseconds(1))
    var history = line.history
    var record = TransactionRecord(
      key: key, asOf: date, kind: kind, purchaseDate: date, productType: latest?.productType)
    // What is bought once has no period, and buying it again restores it.
    if latest?.isSubscription ?? true {
      // An end and a line item of its own, lest it be taken for another report of a known charge.
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
