import Foundation
import Intake
import LedgerStorage
import Subscriptions

extension SubmissionRow {
  init(_ submission: SubmissionSummary) {
    let findings = SubmissionFindings(of: submission)
    self.init(
      submissionID: submission.id.uuidString.lowercased(),
      receivedAt: Moment(submission.receivedAt), state: Badge(submission),
      kind: submission.kindInWords, outcome: submission.outcomeInWords(findings),
      warnings: (findings?.warnings ?? []).map { $0.inWords(submission) },
      href: submission.status == .rejected ? PageAddress.rejected : nil)
  }
}

extension SubmissionSummary {
  /// What was sent, and what was asked for with it.
  fileprivate var kindInWords: String {
    var words =
      switch kind {
      case .receipt: "A receipt"
      case .signedTransaction: "Signed transactions"
      default: "What is kept no more"
      }
    if isRestore { words += ", to restore all of it" }
    if let transactionID { words += ", for transaction \(transactionID)" }
    return words
  }

  fileprivate func outcomeInWords(_ findings: SubmissionFindings?) -> String {
    switch status {
    case .verified:
      let inWhat = environment == .sandbox ? ", in the sandbox." : "."
      return ["Apple vouches for it\(inWhat)", findings?.inWords].compactMap(\.self)
        .joined(separator: " ")
    case .rejected:
      let told = problem?.detail ?? "Apple does not vouch for it."
      guard let problem else { return told }
      let status = problem.appleStatus.map { ", Apple's status \($0)" } ?? ""
      return "\(told) Rejected as \(problem.code)\(status)."
    case .pending:
      return (problem?.detail ?? "Apple was not asked yet.")
        + " Tried \(Count.text(attempts, "time"))"
        + (retryAt.map { "; again \(Moment($0).text)." } ?? ", and given up.")
    }
  }
}

extension SubmissionFindings {
  fileprivate var inWords: String {
    guard claimed > 0 else { return "It claimed nothing." }
    return
      "It claimed \(Count.text(claimed, "transaction")), of which \(newlyOwned) became its own."
  }
}

extension SubmissionWarning {
  /// Of what the sender was warned, as it was when the submission was decided.
  fileprivate func inWords(_ submission: SubmissionSummary) -> String {
    switch self {
    case .transactionNotInReceipt:
      "The transaction that its app named is not in what it sent"
        + (submission.retryAt.map { "; it is looked for again \(Moment($0).text)." } ?? ".")
    case .purchasedLater:
      "It contains a purchase dated after it was received, which it does not claim"
        + (submission.retryAt.map { "; it is checked again \(Moment($0).text)." } ?? ".")
    case .ownedByAnotherAccount: "Another account owned what it claimed."
    case .orderUnknown: "The named order does not exist."
    case .orderAccountMismatch: "The named order, or the purchase, belongs to another account."
    case .orderProductMismatch: "No purchase in the submission is of the named order's product."
    case .orderAlreadyFulfilled: "The named order, or the purchase, was matched before."
    case .unreadableTransaction:
      "The latest transaction can't be read"
        + (submission.retryAt.map { "; it is looked at again \(Moment($0).text)." } ?? ".")
    case .unknownProduct:
      "A product was not in the catalogue: it grants nothing until it is described there."
    case .sandboxNotGranted: "It is of the sandbox, which grants this account nothing."
    case .noTransactions: "The receipt is empty: it lists no purchase."
    case .appAccountTokenOfAnotherAccount:
      "A transaction carries the app account token of another account."
    }
  }
}
