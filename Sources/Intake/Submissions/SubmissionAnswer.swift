import AppStore
package import Foundation
package import LedgerStorage
package import Subscriptions

/// The status of a submission, as its sender sees it.
package enum SubmissionAnswer: Sendable {
  case verified(Verified)
  /// Stored, and being decided or waiting for Apple.
  ///
  /// Without `retryAt` retries have stopped, and the problem explains it. The entitlements are those
  /// that the account has until then; nil if provisional access is turned off.
  case pending(
    id: UUID, retryAt: Timestamp?, problem: SubmissionProblem?, entitlements: [Entitlement]?)
  case rejected(id: UUID, problem: SubmissionProblem)

  /// The answer to a verified submission.
  package struct Verified: Sendable {
    package var id: UUID
    package var environment: Environment
    /// The transactions that the submission claimed.
    package var transactions: [ChargeReport]
    package var order: StoredOrder?
    package var warnings: [SubmissionWarning]
    package var entitlements: [Entitlement]
  }
}

/// A warning to the sender of a verified submission.
package enum SubmissionWarning: String, Codable, CaseIterable, Sendable {
  /// The named transaction was not submitted; a receipt is verified again later.
  case transactionNotInReceipt = "transaction_not_in_receipt"
  /// A purchase dated after the submission was not claimed; the submission is verified again later.
  case purchasedLater = "purchased_later"
  case ownedByAnotherAccount = "owned_by_another_account"
  case orderUnknown = "order_unknown"
  /// The named order, or the charge submitted for it, belongs to another account.
  case orderAccountMismatch = "order_account_mismatch"
  /// No charge in the submission pays for the named order's product.
  case orderProductMismatch = "order_product_mismatch"
  /// Another charge fulfilled the named order, or the charge fulfilled another named order.
  case orderAlreadyFulfilled = "order_already_fulfilled"
  /// A transaction newer than the readable ones is unreadable; a receipt is verified again later.
  case unreadableTransaction = "unreadable_transaction"
  case unknownProduct = "unknown_product"
  case sandboxNotGranted = "sandbox_not_granted"
  case noTransactions = "no_transactions"
  case appAccountTokenOfAnotherAccount = "app_account_token_of_another_account"
}

/// The stored part of the answer to a submission, so that later answers are the same.
struct SubmissionOutcome: Codable, Sendable {
  var selected: [TransactionKey]
  var newlyOwned: [TransactionKey]
  var warnings: [SubmissionWarning]
  var orderID: UUID?
}

/// The outcome of a verified submission, for lists of submissions.
package struct SubmissionFindings: Hashable, Sendable {
  /// The number of transactions that it claimed.
  package let claimed: Int
  /// The number of them that its account came to own.
  package let newlyOwned: Int
  package let warnings: [SubmissionWarning]

  /// Nil before the decision, and for an outcome that only a newer version can read.
  package init?(of submission: SubmissionSummary) {
    guard let stored = submission.outcome,
      let outcome = try? JSONDecoder().decode(SubmissionOutcome.self, from: Data(stored.utf8))
    else { return nil }
    claimed = outcome.selected.count
    newlyOwned = outcome.newlyOwned.count
    warnings = outcome.warnings
  }
}

extension SubmissionOutcome {
  /// The outcome of a submission that was just recorded.
  ///
  /// `isEmpty`: there is no transaction, not even an unreadable one. `lacksNamed`: the named
  /// transaction is missing. `isUnclear`: an unreadable record may be a purchase. `leavesOutLater`: a
  /// later purchase was not claimed.
  init(
    _ result: Ledger.RecordedSubmission, of submission: Submission, selected: [TransactionKey],
    isEmpty: Bool, lacksNamed: Bool, isUnclear: Bool, leavesOutLater: Bool, catalogue: Catalogue,
    sandboxAccess: SandboxAccess
  ) {
    self.selected = selected
    orderID = result.fulfilledOrder ?? submission.orderID
    newlyOwned = []
    var found: Set<SubmissionWarning> = []
    if isEmpty { found.insert(.noTransactions) }
    if lacksNamed { found.insert(.transactionNotInReceipt) }
    if isUnclear { found.insert(.unreadableTransaction) }
    if leavesOutLater { found.insert(.purchasedLater) }
    switch result.namedOrder {
    case nil, .matched(.fulfilled): break
    case .unknown:
      found.insert(.orderUnknown)
      orderID = result.fulfilledOrder
    case .matched(.accountMismatch): found.insert(.orderAccountMismatch)
    case .matched(.productMismatch): found.insert(.orderProductMismatch)
    case .matched(.alreadyFulfilled): found.insert(.orderAlreadyFulfilled)
    }

    // Aliases are one charge, delivered once.
    var seen: Set<Charge.ID> = []
    for key in selected {
      guard let family = result.recording.family(of: key),
        let (charge, recorded) = family.charge(of: key)
      else { continue }
      if recorded.decision.owner != submission.account, recorded.decision.owner != nil {
        found.insert(.ownedByAnotherAccount)
      }
      if let holder = family.line.history.holder(of: charge.appAccountToken),
        holder != submission.account
      {
        found.insert(.appAccountTokenOfAnotherAccount)
      }
      if catalogue[charge.productID] == nil { found.insert(.unknownProduct) }
      if !sandboxAccess.grants(key.line.environment, to: submission.accountID) {
        found.insert(.sandboxNotGranted)
      }
      // A notification may have assigned it by its token before, but the app learns of it only now.
      let isNewlyOwned =
        recorded.decision.owner == submission.account
        && (family.changes.contains {
          $0.charge == charge.id && ($0.changesOwner || $0.action == .claimed)
        }
          || recorded.decision.rule == .appAccountToken
            && family.hasFirstClaim(by: submission.account, on: charge))
      if seen.insert(charge.id).inserted, isNewlyOwned { newlyOwned.append(key) }
    }
    warnings = SubmissionWarning.allCases.filter(found.contains)
  }
}

/// A submission of an app server.
package struct SubmissionRequest: Sendable {
  package var accountID: String
  package var payload: SubmissionPayload
  package var transactionID: TransactionID?
  package var orderID: UUID?
  /// Whether to claim every purchase in a receipt; all signed transactions are claimed anyway.
  package var isRestore: Bool
  package var bundleID: String?

  package init(
    accountID: String, payload: SubmissionPayload, transactionID: TransactionID? = nil,
    orderID: UUID? = nil, isRestore: Bool = false, bundleID: String? = nil
  ) {
    self.accountID = accountID
    self.payload = payload
    self.transactionID = transactionID
    self.orderID = orderID
    self.isRestore = isRestore
    self.bundleID = bundleID
  }

  /// The receipt, without the wrapper of Unity apps, which Apple does not accept.
  package static func receiptData(in text: String) -> String { UnityReceipt.unwrapping(text) }
}
