import JSONText
import LedgerStorage
import Subscriptions

extension JSONWriter {
  /// Writes a charge as the interface's TRANSACTION.
  ///
  /// - Parameters:
  ///   - report: The charge.
  ///   - catalogue: What tells the end of a non-renewing subscription, for Apple doesn't.
  mutating func transaction(_ report: ChargeReport, in catalogue: Catalogue) {
    object { $0.transactionMembers(report, in: catalogue) }
  }

  /// Writes the members of a TRANSACTION, for answers that add their own.
  mutating func transactionMembers(_ report: ChargeReport, in catalogue: Catalogue) {
    let (charge, transaction) = (report.charge, report.transaction)
    member("transaction_id", charge.id.transactionID)
    memberIfPresent("submitted_transaction_id", report.submittedTransactionID)
    member("original_transaction_id", charge.id.line.originalTransactionID)
    member("product_id", charge.productID)
    member("product_type", report.productType)
    member("quantity", transaction.quantity)
    member("purchased_at", charge.date)
    member("expires_at", report.end(in: catalogue))
    member("revoked_at", charge.revocation?.at)
    member("environment", charge.id.line.environment)
    member("ownership_type", transaction.ownershipType)
    member("period_type", transaction.periodType)
    memberIfPresent("price_milliunits", transaction.priceMilliunits)
    memberIfPresent("currency", transaction.currency)
    member("aliases", charge.aliases.map(\.transactionID))
    member("owner_account_id", report.ownerAccountID)
    key("decision")
    object { json in
      json.member("rule", report.recorded.decision.rule)
      json.member("because", report.because)
      json.member("decided_at", report.recorded.decidedAt)
      json.memberIfPresent("corrected_at", report.recorded.correctedAt)
    }
    member("newly_owned", report.isNewlyOwned)
  }
}

extension ChargeReport {
  /// The end of what was paid for; nil: never, or nothing that lasts.
  func end(in catalogue: Catalogue) -> Timestamp? {
    guard charge.end == nil, productType == .nonRenewing else { return charge.end }
    return catalogue.product(charge.productID, at: charge.date)?.period?.end(from: charge.date)
  }
}
