import Foundation
import LedgerStorage
import Subscriptions

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
