package import Foundation
package import Subscriptions

/// A warning to the sender of a verified submission.
package enum SubmissionWarning: String, Codable, CaseIterable, Sendable {
  /// The submission lacks the named transaction; if it was a receipt, the transaction is looked for
  /// again later.
  case transactionNotInReceipt = "transaction_not_in_receipt"
  /// Something in it is dated after the submission was received, and so not claimed; it is looked
  /// at again later.
  case purchasedLater = "purchased_later"
  case ownedByAnotherAccount = "owned_by_another_account"
  case orderUnknown = "order_unknown"
  /// The named order, or the purchase submitted for it, belongs to another account.
  case orderAccountMismatch = "order_account_mismatch"
  /// No charge in the submission pays for the named order's product.
  case orderProductMismatch = "order_product_mismatch"
  /// The named order is fulfilled by another charge, or the charge fulfils another named order.
  case orderAlreadyFulfilled = "order_already_fulfilled"
  /// A transaction that is newer than the readable ones can't be read; a receipt is verified again
  /// later.
  case unreadableTransaction = "unreadable_transaction"
  case unknownProduct = "unknown_product"
  case sandboxNotGranted = "sandbox_not_granted"
  case noTransactions = "no_transactions"
  case appAccountTokenOfAnotherAccount = "app_account_token_of_another_account"
}

/// The stored answer to a verified submission, so that asking for it again gives the same.
package struct SubmissionOutcome: Codable, Sendable {
  /// The transactions that it claimed.
  package private(set) var selected: [TransactionKey]
  /// Those of them that its account came to own by it, one of each charge.
  package private(set) var newlyOwned: [TransactionKey]
  package private(set) var warnings: [SubmissionWarning]
  /// The order that it named or fulfilled.
  package private(set) var orderID: UUID?

  /// JSON.
  var text: String {
    get throws { String(decoding: try JSONEncoder().encode(self), as: UTF8.self) }
  }
}

extension SubmissionOutcome {
  init(
    _ recording: Recording, _ orders: OrderMatching,
    of verified: SubmissionStore.VerifiedSubmission, terms: AccessTerms
  ) {
    let submission = verified.submission
    selected = verified.selected
    orderID = orders.fulfilledOrder ?? submission.orderID
    newlyOwned = []
    var found = verified.warnings
    switch orders.namedOrder {
    case nil, .matched(.fulfilled): break
    case .unknown:
      found.insert(.orderUnknown)
      orderID = orders.fulfilledOrder
    case .matched(.accountMismatch): found.insert(.orderAccountMismatch)
    case .matched(.productMismatch): found.insert(.orderProductMismatch)
    case .matched(.alreadyFulfilled): found.insert(.orderAlreadyFulfilled)
    }

    // Aliases are one charge, which is delivered once.
    var seen: Set<Charge.ID> = []
    for key in selected {
      guard let original = recording.original(of: key),
        let (charge, recorded) = original.charge(of: key)
      else { continue }
      if recorded.decision.owner != submission.account, recorded.decision.owner != nil {
        found.insert(.ownedByAnotherAccount)
      }
      if let holder = original.line.history.holder(of: charge.appAccountToken),
        holder != submission.account
      {
        found.insert(.appAccountTokenOfAnotherAccount)
      }
      if terms.catalogue[charge.productID] == nil { found.insert(.unknownProduct) }
      if !terms.grantsAccess(in: key.line.environment, to: submission.accountID) {
        found.insert(.sandboxNotGranted)
      }
      // A notification may have given it to the account by its token before.
      let isNewlyOwned =
        recorded.decision.owner == submission.account
        && (original.changes.contains {
          $0.charge == charge.id && ($0.changesOwner || $0.action == .claimed)
        }
          || recorded.decision.rule == .appAccountToken
            && original.hasFirstClaim(by: submission.account, on: charge))
      if seen.insert(charge.id).inserted, isNewlyOwned { newlyOwned.append(key) }
    }
    warnings = SubmissionWarning.allCases.filter(found.contains)
  }
}
