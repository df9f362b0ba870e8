package import AppStore
import Foundation
import LedgerStorage
import Subscriptions

/// What is granted on the word of a receipt alone, while Apple can't be asked about it.
///
/// Apple has signed the receipt, so what it lists was bought; but it is as old as it is, and does
/// not tell what was refunded since. Hence an end, and never a charge: see <doc:LocalReceipts>.
package struct ProvisionalAccess: Sendable {
  /// What checks the signature.
  package let receipts: LocalReceiptVerifier
  /// The longest that it lasts, counted from the submission.
  package let longest: Duration

  package init(receipts: LocalReceiptVerifier, longest: Duration) {
    self.receipts = receipts
    self.longest = longest
  }

  /// What a receipt proves to a submission that Apple could not be asked about.
  ///
  /// - Parameters:
  ///   - receiptData: The receipt, base64.
  ///   - submission: Whose, and what was named.
  ///   - catalogue: What tells products' types.
  ///   - now: Nothing counts that is over by now.
  /// - Returns: What would be recorded if Apple said the same, with the selected transactions that
  ///   run; nil where there are none.
  /// - Throws: ``LocalReceiptRefusal``.
  func proof(
    in receiptData: String, for submission: Submission, catalogue: Catalogue, at now: Timestamp
  ) throws -> Proof? {
    let receipt = try receipts.verify(receiptData, bundleID: submission.bundleID).get()
    let limit = min(
      submission.receivedAt + longest, receipt.expiresAt ?? Timestamp.writable.upperBound)
    guard now < limit else { return nil }
    let evidence = VerifiedEvidence(
      source: .receipt, environment: receipt.environment,
      evidence: receipt.records.map { .transaction($0) }, records: receipt.records,
      selection: .latest, canGrow: true)
    let selected = evidence.selected(
      by: submission,
      named: submission.transactionID.map { VerifiedEvidence.NamedTransaction(listed: $0) },
      catalogue: catalogue)
    guard !selected.isEmpty else { return nil }
    return Proof(evidence: evidence, selected: selected, limit: limit)
  }

  /// What a verified receipt proves to one submission.
  struct Proof: Sendable {
    let evidence: VerifiedEvidence
    /// What the submission would claim.
    let selected: [TransactionKey]
    /// The latest end.
    let limit: Timestamp
  }
}

extension ProvisionalAccess.Proof {
  /// The recording that is rehearsed.
  func arrival(of submission: Submission) -> Arrival {
    Arrival(
      evidence: evidence.evidence,
      claim: Arrival.AccountClaim(
        account: submission.account, transactions: selected, receivedAt: submission.receivedAt),
      source: EntrySource(evidence.source, id: submission.id.uuidString.lowercased()))
  }

  /// One grant for each entitlement, the longest that there is.
  ///
  /// - Parameters:
  ///   - recording: What recording the proof would come to.
  ///   - account: Who has submitted.
  ///   - catalogue: Which product grants what.
  ///   - now: What is over by now grants nothing.
  /// - Returns: The grants by entitlement.
  func grants(
    from recording: Recording, to account: AccountKey, catalogue: Catalogue, at now: Timestamp
  ) -> [ProvisionalGrant] {
    var grants: [ExactText: ProvisionalGrant] = [:]
    for key in selected {
      guard let family = recording.family(of: key),
        let holding = family.newHolding(of: key, by: account),
        holding.startsAt <= now + .clockTolerance, !holding.isRevoked(at: now)
      else { continue }
      let end = min(holding.end(in: catalogue) ?? limit, holding.revokedAt ?? limit, limit)
      guard now < end else { continue }
      for name in holding.entitlements(in: catalogue) ?? [] {
        if let known = grants[name], known.endsAt >= end { continue }
        grants[name] = ProvisionalGrant(
          entitlement: name.rawValue, endsAt: end, line: key.line)
      }
    }
    return grants.sorted { $0.key < $1.key }.map(\.value)
  }
}

extension RecordedFamily {
  /// What an account would hold of a charge that was nobody's before; nil if that is not so.
  ///
  /// A charge that the ledger knows as somebody's stays it, and grants what it grants without us.
  fileprivate func newHolding(of key: TransactionKey, by account: AccountKey) -> Holding? {
    guard let position = rule.position(of: key),
      changes.contains(where: {
        $0.charge == rule.charges[position].id && $0.previousOwner == nil
          && $0.decision.owner == account
      })
    else { return nil }
    return line.holding(ofChargeAt: position, in: rule)
  }
}
