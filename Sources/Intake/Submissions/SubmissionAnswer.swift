import AppStore
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

extension SubmissionOutcome {
  /// Works out what to tell the sender of a submission that was just recorded.
  ///
  /// - Parameters:
  ///   - result: What recording came to.
  ///   - submission: Who submitted, and what was named.
  ///   - selected: The transactions that were claimed.
  ///   - isEmpty: Whether there is no transaction at all, not even one that can't be read.
  ///   - lacksNamed: Whether the transaction that was named is not there.
  ///   - isUnclear: Whether a purchase may be in something that can't be read.
  ///   - leavesOutLater: Whether something was not claimed because it was purchased later.
  ///   - catalogue: The products that are described.
  ///   - sandboxAccess: Whose sandbox purchases grant anything.
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

    // Aliases are one charge, which is delivered once.
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
      // A notification may have given it to the account by its token before: the app is told now.
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

/// What an app server submits.
package struct SubmissionRequest: Sendable {
  package var accountID: String
  package var payload: SubmissionPayload
  package var transactionID: TransactionID?
  package var orderID: UUID?
  /// Whether the customer asked for everything that was ever bought.
  ///
  /// It changes nothing of signed data, each of which is selected anyway.
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

  /// The receipt in what was sent as one: Unity's apps send theirs in a wrapper, which Apple would
  /// refuse.
  package static func receiptData(in text: String) -> String { UnityReceipt.unwrapping(text) }
}
