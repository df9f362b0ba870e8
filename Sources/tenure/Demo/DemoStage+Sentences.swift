import AppStoreSimulator
import Subscriptions

extension DemoStage {
  /// Says what happened at Apple's; nil for what the story need not know.
  func sentence(for event: SimulatedEvent) throws -> String? {
    let charge = try simulation.truth(of: event.transactionID)
    let price = SimulatedPrice(milliunits: charge.priceMilliunits, currency: charge.currency).text
    let paid = charge.expiresDate.map { "paid until \($0.day)" } ?? "for ever"
    let buyer = event.account?.rawValue ?? "Somebody"
    let (product, payer) = (event.productID, event.appleID)
    switch event.kind {
    case .subscribed, .boughtOnce:
      return "\(buyer) buys \(product): \(payer) pays \(price)."
    case .resubscribed:
      return "\(buyer) buys \(product), on the same Apple ID as before: \(payer) pays \(price)."
    case .upgraded:
      return "\(buyer) changes to \(product): \(payer) pays \(price), Apple refunds the old rest."
    case .renewed:
      return "Apple renews \(product): \(payer) pays \(price), \(paid)."
    case .recovered:
      return "Apple can charge at last: \(payer) pays \(price) for \(product), \(paid)."
    case .renewalProductChanged(let next):
      return "\(buyer) chooses \(next) from the next period on. Nothing is charged now."
    case .autoRenewTurnedOff:
      return "\(buyer) switches auto-renew off."
    case .autoRenewTurnedOn:
      return "\(buyer) switches auto-renew on again."
    case .renewalFailed:
      return "Apple can't collect from \(payer), and keeps trying."
    case .gracePeriodExpired:
      return "The grace period is over; Apple keeps trying."
    case .expired:
      return "\(product) of \(payer) expires."
    case .refunded:
      return "Apple refunds \(price) for \(product) of \(charge.purchaseDate.day) to \(payer)."
    case .refundReversed:
      return "Apple takes this refund back: \(payer) has paid \(price) after all."
    case .familyAccessRevoked:
      return "Apple revokes the family's \(product) from \(payer)."
    case .migrated(let previous):
      return "Apple moves \(previous) to a new original transaction id, "
        + "\(event.originalTransactionID)."
    case .restored, .priceIncreaseAsked, .priceIncreaseAccepted, .offerRedeemed,
      .renewalExtended, .refundRequested, .refundDeclined:
      return nil
    }
  }

  /// Says what Tenure answered to a submission.
  func tellAnswer(_ answer: TenureClient.Submission, to account: String) {
    guard !answer.isPending else {
      tell("Tenure has stored it (202): Apple can't be asked now, and the worker will go on.")
      return
    }
    let new = answer.newlyOwned.map { "\($0.productID) (\($0.id))" }
    var text =
      new.isEmpty
      ? "Tenure: verified; nothing in it is newly \(account)'s"
      : "Tenure: verified; \(new.joined(separator: " and ")) is now \(account)'s"
    if let order = answer.order { text += ", the order is \(order.status.rawValue)" }
    if let warnings = answer.warnings, !warnings.isEmpty {
      text += " [\(warnings.joined(separator: ", "))]"
    }
    tell(text + ".")
  }
}
