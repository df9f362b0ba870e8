import AppStore
import struct Foundation.UUID
package import LedgerStorage
package import Subscriptions

/// To whom a line belongs, from the account that it is bound to now to Apple's acknowledgement.
extension AppleTeller {
  /// Puts the token of the account to which a line is bound in the place of Apple's.
  ///
  /// Apple's renewals carry it from then on, and so does what the app asks StoreKit. Nothing is
  /// sent where Apple's latest word has the token already, nor where Apple takes none.
  ///
  /// - Parameters:
  ///   - line: The line.
  ///   - job: Claimed.
  /// - Returns: What came of it. The job is ended where it is told.
  /// - Throws: What the database says.
  package func tellOwnership(of line: LineID, doing job: Job) async throws -> Outcome {
    var telling = AppleTelling(.ownership, of: line, at: now(), outcome: .skipped(.unowned))
    guard let serverAPI = serverAPI(for: .ownership) else {
      return try await skip(telling, because: .turnedOff, ending: job)
    }
    guard let family = try await ledger.family(of: line),
      let charge = family.rule.charges.latestCharge,
      let owner = family.charge(of: charge.id)?.recorded.decision.owner
    else { return try await skip(telling, because: .unowned, ending: job) }
    // Of lines that Apple links, the one that goes on.
    telling.line = charge.id.line
    telling.account = owner
    guard let known = try await ledger.ownershipToTell(of: telling.line, to: owner) else {
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

  /// Why a line's owner is not to be told; nil: it is.
  private func reason(
    against charge: Charge, in family: RecordedFamily, _ known: Ledger.OwnershipToTell
  ) -> AppleTelling.Reason? {
    if known.isErased { return .accountErased }
    if known.isMerged { return .accountMerged }
    if family.isFamilyShared(charge) { return .familyShared }
    return charge.type(in: catalogue.catalogue) == .consumable ? .consumable : nil
  }
}

extension RecordedFamily {
  /// Apple's latest word on which token a charge carries, whichever of its transactions has it.
  fileprivate func token(of charge: Charge) -> Dated<UUID>? {
    charge.transactions.compactMap { line.history[$0]?.appAccountToken }
      .max { $0.asOf < $1.asOf }
  }
}

extension Ledger.OwnershipToTell {
  /// Whether Apple has the account's token already, by its own word or by what it took since.
  fileprivate func isTold(_ owner: AccountKey, after word: Dated<UUID>?) -> Bool {
    if let lastTold, lastTold.at >= word?.asOf ?? lastTold.at { return lastTold.account == owner }
    return word?.value == token
  }
}
