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
  /// How far Apple's clock is ahead of ours, at least.
  var clockSkew: Duration = .zero
  /// When Apple signed the latest of what was submitted; nil: nothing in it is signed.
  var signedAt: Timestamp?

  /// When a submission was received, by Apple's clock where that is later than ours.
  ///
  /// What was signed was signed before it was received.
  private func receivedAt(_ submission: Submission) -> Timestamp {
    let receivedAt = submission.receivedAt + clockSkew
    return max(receivedAt, signedAt ?? receivedAt)
  }

  /// A transaction that a submission names.
  struct NamedTransaction: Sendable {
    /// The id under which it is here.
    var listed: TransactionID
    /// The transaction itself, where it is only here under another id of its charge.
    var alias: TransactionKey?
  }

  /// Finds the transaction that a submission names, under its id or under another id that the
  /// ledger knows as the same charge; nil if none is named, or it is not here.
  func transaction(namedBy submission: Submission, in ledger: Ledger) async throws
    -> NamedTransaction?
  {
    guard let id = submission.transactionID else { return nil }
    if records.contains(where: { $0.key.transactionID == id }) {
      return NamedTransaction(listed: id)
    }
    for line in try await ledger.lines(of: id) where line.environment == environment {
      guard let family = try await ledger.family(of: line) else { continue }
      for key in family.line.history.transactions.map(\.key) where key.transactionID == id {
        let names = family.charge(of: key)?.charge.transactions ?? []
        if let record = records.first(where: { names.contains($0.key) }) {
          return NamedTransaction(listed: record.key.transactionID, alias: key)
        }
      }
    }
    return nil
  }

  /// The transactions that a submission claims.
  ///
  /// - Parameters:
  ///   - submission: The submission.
  ///   - named: The transaction that it names; nil if it names none, or is decided as if it did.
  ///   - catalogue: The types of products that Apple's receipts don't report.
  /// - Returns: The transactions by purchase date.
  func selected(
    by submission: Submission, named: NamedTransaction?, catalogue: Catalogue
  ) -> [TransactionKey] {
    let selection: ClaimSelection =
      if let named {
        .transaction(named.listed)
      } else if submission.isRestore { .restore } else { selection }
    let selected = selection.select(
      from: records, receivedAt: receivedAt(submission), catalogue: catalogue
    ).map(\.key)
    guard let alias = named?.alias, !selected.isEmpty else { return selected }
    return [alias]
  }

  /// Whether something that the submission could claim is left out because it was purchased later.
  ///
  /// - Parameters:
  ///   - submission: The submission.
  ///   - named: The only transaction that it can claim; nil: there is none such.
  /// - Returns: Whether there is such a purchase.
  func leavesOutLaterPurchases(of submission: Submission, named: NamedTransaction?) -> Bool {
    let receivedAt = receivedAt(submission)
    return records.contains { record in
      ClaimSelection.isPurchased(record, after: receivedAt)
        && named.map { $0.listed == record.key.transactionID } ?? true
    }
  }

  /// Whether a purchase that is newer than everything here can't be read.
  var hidesPurchase: Bool {
    let newest = records.map(\.purchaseDate).max()
    return unreadable.contains { $0.hidesPurchase(after: newest) }
  }
}

extension VerifiedEvidence {
  /// What Apple answered about a receipt.
  init(_ receipt: VerifiedReceipt) {
    self.init(
      source: .receipt, environment: receipt.environment, evidence: receipt.evidence,
      bundleID: receipt.bundleID, records: receipt.records, selection: .latest,
      unreadable: receipt.unreadable, canGrow: true, clockSkew: receipt.clockSkew)
  }
}
