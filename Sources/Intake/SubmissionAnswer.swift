package import Foundation
package import LedgerStorage
package import Subscriptions

/// Where a submission stands: what its sender is told.
package enum SubmissionAnswer: Sendable {
  case verified(Verified)
  /// Stored; Apple could not be reached, or answered something that will change, or it is just
  /// being decided.
  ///
  /// Without a next attempt it was given up, and the problem says so. The entitlements are what the
  /// account may use meanwhile; nil where nothing is ever granted provisionally.
  case pending(
    id: UUID, retryAt: Timestamp?, problem: SubmissionProblem?, entitlements: [Entitlement]?)
  case rejected(id: UUID, problem: SubmissionProblem)

  /// The answer to a submission that Apple vouches for.
  package struct Verified: Sendable {
    package var id: UUID
    package var environment: Environment
    /// The selected transactions.
    package var transactions: [ChargeReport]
    package var order: StoredOrder?
    package var warnings: [SubmissionWarning]
    /// What the account may use now.
    package var entitlements: [Entitlement]
  }
}

/// What the sender of a verified submission should know.
package enum SubmissionWarning: String, Codable, CaseIterable, Sendable {
  /// The named transaction is not in what was submitted; if that was a receipt, it is looked for
  /// again later.
  case transactionNotInReceipt = "transaction_not_in_receipt"
  /// Something in it is dated after the submission was received, and so not claimed; it is looked
  /// at again later.
  case purchasedLater = "purchased_later"
  case ownedByAnotherAccount = "owned_by_another_account"
  case orderUnknown = "order_unknown"
  /// The named order belongs to another account, or what was submitted for it does.
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

/// What is stored of the answer to a submission, so that asking for it again says the same.
struct SubmissionOutcome: Codable, Sendable {
  var selected: [TransactionKey]
  var newlyOwned: [TransactionKey]
  var warnings: [SubmissionWarning]
  var orderID: UUID?
}

/// What a verified submission came to when it was decided, for lists of submissions.
package struct SubmissionFindings: Hashable, Sendable {
  /// How many transactions it claimed.
  package let claimed: Int
  /// How many of them its account came to own by it.
  package let newlyOwned: Int
  /// What its sender was warned of.
  package let warnings: [SubmissionWarning]

  /// Reads what was stored; nil before the decision, and for what only a newer version can read.
  package init?(of submission: SubmissionSummary) {
    guard let stored = submission.outcome,
      let outcome = try? JSONDecoder().decode(SubmissionOutcome.self, from: Data(stored.utf8))
    else { return nil }
    claimed = outcome.selected.count
    newlyOwned = outcome.newlyOwned.count
    warnings = outcome.warnings
  }
}
