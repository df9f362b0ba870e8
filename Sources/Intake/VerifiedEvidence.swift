import AppStore
import LedgerStorage
import Subscriptions

/// What a verified submission proves, whichever way it was verified.
struct VerifiedEvidence: Sendable {
  /// As what it came.
  var source: EntrySource.Kind
  var environment: Environment
  var evidence: [Evidence]
  /// The app that it is about; nil where none is named, or several are.
  var bundleID: String?
  /// The transactions in it, one record for each.
  var records: [TransactionRecord]
  /// What is selected where no transaction is named and no restore was asked for.
  var selection: ClaimSelection
  /// What Apple listed and nobody could read.
  var unreadable: [UnreadableRecord] = []
  /// Whether verifying the same again can prove more: Apple's answers lag.
  var canGrow: Bool

  /// Which transactions a submission claims.
  func selected(by submission: Submission, catalogue: Catalogue) -> [TransactionKey] {
    let selection: ClaimSelection =
      if let id = submission.transactionID {
        .transaction(id)
      } else if submission.isRestore { .restore } else { selection }
    return selection.select(
      from: records, receivedAt: submission.receivedAt, catalogue: catalogue
    ).map(\.key)
  }

  /// Whether the submission names a transaction that is not here.
  func lacksTransaction(namedBy submission: Submission) -> Bool {
    guard let id = submission.transactionID else { return false }
    return !records.contains { $0.key.transactionID == id }
  }
}

extension VerifiedEvidence {
  /// What Apple answered about a receipt.
  init(_ receipt: VerifiedReceipt) {
    self.init(
      source: .receipt, environment: receipt.environment, evidence: receipt.evidence,
      bundleID: receipt.bundleID, records: receipt.records, selection: .latest,
      unreadable: receipt.unreadable, canGrow: true)
  }
}
