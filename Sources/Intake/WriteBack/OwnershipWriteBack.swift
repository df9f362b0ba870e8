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
  package func tellOwnership(of line: OriginalTransactionKey, doing job: Job) async throws
    -> Outcome
  {
    var telling = WriteBack(.ownership, of: line, at: now(), outcome: .skipped(.unowned))
    guard let serverAPI = serverAPI(for: .ownership) else {
      return try await skip(telling, because: .turnedOff, ending: job)
    }
    guard let family = try await ledger.ownership.family(of: line),
      let charge = family.rule.charges.latestCharge,
      let owner = family.charge(of: charge.id)?.recorded.decision.owner
    else { return try await skip(telling, because: .unowned, ending: job) }
    // Of linked original transactions, the one that renews.
    telling.line = charge.id.line
    telling.account = owner
    guard let known = try await ledger.writeBacks.ownershipToTell(of: telling.line, to: owner)
    else {
      return try await skip(telling, because: .unowned, ending: job)
    }
    telling.bundleID = app(known.bundleID)
    if let reason = reason(against: charge, in: family, known) {
      return try await skip(telling, because: reason, ending: job)
    }
    guard let bundleID = telling.bundleID else {
      return try await skip(telling, because: .unknownApp, ending: job)
    }
    if known.isTold(owner, after: family.token(of: charge)) { return .nothingToTell }
    return try await tell(telling, doing: job) {
      _ = try await serverAPI.setAppAccountToken(
        known.token, on: telling.line.originalTransactionID, of: bundleID,
        in: telling.line.environment)
    }
  }

  /// The reason not to send a token, if any.
  private func reason(
    against charge: Charge, in family: RecordedOriginalTransaction,
    _ known: WriteBackStore.PendingOwnership
  ) -> WriteBack.Reason? {
    if known.isErased { return .accountErased }
    if known.isMerged { return .accountMerged }
    if family.isFamilyShared(charge) { return .familyShared }
    return charge.type(in: catalogue.catalogue) == .consumable ? .consumable : nil
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
  fileprivate func isTold(_ owner: AccountKey, after word: Dated<UUID>?) -> Bool {
    if let lastTold, lastTold.at >= word?.asOf ?? lastTold.at { return lastTold.account == owner }
    return word?.value == token
  }
}
