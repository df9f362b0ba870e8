import AppStore
import struct Foundation.UUID
package import LedgerStorage
package import Subscriptions

import struct Foundation.UUID

/// Set App Account Token.
extension AppStoreWriteBack {
  /// Replaces Apple's token by that of the account to which an original transaction is bound.
  ///
  /// Renewals and StoreKit carry it from then on. Nothing is sent if Apple has the token already or
  /// accepts none.
  package func sendOwnership(of line: OriginalTransactionKey, doing job: Job) async throws
    -> Outcome
  {
    var writeBack = WriteBack(.ownership, of: line, at: now(), outcome: .skipped(.unowned))
    guard let serverAPI = serverAPI(for: .ownership) else {
      return try await skip(writeBack, because: .turnedOff, ending: job)
    }
    guard let original = try await ledger.ownership.original(of: line),
      let charge = original.rule.charges.latestCharge,
      let owner = original.charge(of: charge.id)?.recorded.decision.owner
    else { return try await skip(writeBack, because: .unowned, ending: job) }
    // Of linked original transactions, the one that renews.
    writeBack.line = charge.id.line
    writeBack.account = owner
    guard let known = try await ledger.writeBacks.pendingOwnership(of: writeBack.line, to: owner)
    else {
      return try await skip(writeBack, because: .unowned, ending: job)
    }
    writeBack.bundleID = app(known.bundleID)
    if let reason = reason(against: charge, in: original, known) {
      return try await skip(writeBack, because: reason, ending: job)
    }
    guard let bundleID = writeBack.bundleID else {
      return try await skip(writeBack, because: .unknownApp, ending: job)
    }
    if known.isSent(owner, after: original.token(of: charge)) { return .nothingToSend }
    return try await send(writeBack, doing: job) {
      _ = try await serverAPI.setAppAccountToken(
        known.token, on: writeBack.line.originalTransactionID, of: bundleID,
        in: writeBack.line.environment)
    }
  }

  /// The reason not to send a token, if any.
  private func reason(
    against charge: Charge, in original: RecordedOriginalTransaction,
    _ known: WriteBackStore.PendingOwnership
  ) -> WriteBack.Reason? {
    if known.isErased { return .accountErased }
    if known.isMerged { return .accountMerged }
    if original.isFamilyShared(charge) { return .familyShared }
    return charge.type(in: services.catalogue.catalogue) == .consumable ? .consumable : nil
  }
}

extension RecordedOriginalTransaction {
  /// The latest token in Apple's evidence for a charge.
  fileprivate func token(of charge: Charge) -> Dated<UUID>? {
    charge.transactions.compactMap { line.history[$0]?.appAccountToken }
      .max { $0.asOf < $1.asOf }
  }
}

extension WriteBackStore.PendingOwnership {
  /// Whether Apple has the account's token already, by its evidence or by a later write-back.
  fileprivate func isSent(_ owner: AccountKey, after reported: Dated<UUID>?) -> Bool {
    if let lastSent, lastSent.at >= reported?.asOf ?? lastSent.at {
      return lastSent.account == owner
    }
    return reported?.value == token
  }
}
