package import AppStore
import Foundation
import LedgerStorage
import Subscriptions

/// Grants on a receipt's own signature, while Apple can't be asked about it.
///
/// The signature proves the purchases but no later refunds: the access is limited in time, and no
/// charge is recorded; see <doc:LocalReceipts>.
package struct ProvisionalAccess: Sendable {
  package let receipts: LocalReceiptVerifier
  package let longest: Duration

  package init(receipts: LocalReceiptVerifier, longest: Duration) {
    self.receipts = receipts
    self.longest = longest
  }

  /// The evidence in a base64 receipt, with the transactions that the submission would claim, or
  /// nil if there are none.
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

  struct Proof: Sendable {
    let evidence: VerifiedEvidence
    let selected: [TransactionKey]
    /// The latest end of access.
    let limit: Timestamp
  }
}

extension ProvisionalAccess.Proof {
  /// The longest current grant for each entitlement, given the rehearsed recording.
  func grants(
    from recording: Recording, to account: AccountKey, catalogue: Catalogue, at now: Timestamp
  ) -> [ProvisionalGrant] {
    var grants: [ExactText: ProvisionalGrant] = [:]
    for key in selected {
      guard let original = recording.original(of: key),
        let holding = original.newHolding(of: key, by: account),
        holding.startsAt <= now + .clockTolerance, !holding.isRevoked(at: now)
      else { continue }
      let end = min(holding.end(in: catalogue) ?? limit, holding.revokedAt ?? limit, limit)
      guard now < end else { continue }
      for name in holding.entitlements(in: catalogue) ?? [] {
        if let known = grants[name], known.endsAt >= end { continue }
        grants[name] = ProvisionalGrant(entitlement: name.rawValue, endsAt: end, line: key.line)
      }
    }
    return grants.sorted { $0.key < $1.key }.map(\.value)
  }
}

extension RecordedOriginalTransaction {
  /// The holding that an account would gain from an unclaimed charge; nil: it has an owner.
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
