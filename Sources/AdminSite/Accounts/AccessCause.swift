import LedgerStorage
import Subscriptions

/// The causes of an account's entitlements, from the ledger: why access ended, and who has what
/// came after it.
struct AccessCauses: Sendable {
  private let account: Account
  private let charges: EntitlementCharges
  private let lost: [AccountCharge]
  private let names: [AccountKey: String]
  private let catalogue: Catalogue

  /// A sentence with the account that it names, if there is another.
  struct Cause: Sendable {
    var sentence: String
    var counterpart: String?

    /// The sentence with a link to the account.
    var pieces: [TextPiece] {
      counterpart.flatMap { name in
        ["belongs to \(name)", "moved to \(name)", "merged into “\(name)”"].lazy
          .compactMap { sentence.linking(.account(name), in: $0) }.first
      } ?? [(sentence, nil)]
    }
  }

  /// - Parameters:
  ///   - lost: The charges that the account has lost, latest loss first.
  ///   - lines: Original transactions with charges whose moves are told.
  init(
    of entitlements: [Entitlement], of account: Account, lost: [AccountCharge],
    moved lines: Set<OriginalTransactionKey>, in ledger: Ledger, _ catalogue: Catalogue
  ) async throws {
    (self.account, self.lost, self.catalogue) = (account, lost, catalogue)
    charges = try await EntitlementCharges(
      of: entitlements, moved: lines.union(lost.prefix(1).map(\.id.line)), in: ledger)
    names = try await ledger.ownership.accountIDs(
      of: charges.movingAccounts.union(lost.prefix(1).compactMap(\.owner)))
  }

  /// How a charge left an account, as the page of the one that lost it or of its present owner has
  /// it.
  func move(of charge: Charge.ID, from loser: AccountKey, at moment: Timestamp) -> ChargeMove {
    let loss = charges.loss(of: charge, from: loser, at: moment)
    let owner = loss?.change.decision.owner
    func link(_ account: AccountKey) -> TextPiece {
      let name = names[account] ?? "erased"
      return (name, AdminURL.account(name))
    }
    let target: [TextPiece] =
      switch (owner, loser == account.key) {
      case (nil, true): [("Released", nil)]
      case (nil, false): [("Released from ", nil), link(loser)]
      case (let owner?, true): [("Moved to ", nil), link(owner)]
      case (_?, false): [("Moved here from ", nil), link(loser)]
      }
    return ChargeMove(
      target: target, at: moment, occasion: loss.flatMap(Self.occasion) ?? "",
      decision: loss?.change.decision)
  }

  /// The times in which the account owned a charge that it has or lost.
  func times(owning charge: Charge.ID) -> [AccessPeriods.Ownership] {
    charges.times(of: charge, by: account.key)
  }

  /// The charges that were lost together last, since a moment; nil without any.
  func move(since start: Timestamp?) -> Cause? {
    guard let latest = lost.first, let lostAt = latest.lostAt, start.map({ $0 <= lostAt }) ?? true
    else { return nil }
    let number = lost.count { $0.owner == latest.owner && $0.lostAt == latest.lostAt }
    let owner = latest.owner.map { names[$0] ?? "erased" }
    let reason = charges.loss(of: latest.id, from: account.key).map(Self.reason) ?? ""
    return Cause(
      sentence: "\(Count.text(number, "charge")) "
        + (owner.map { "moved to \($0)" } ?? (number == 1 ? "was released" : "were released"))
        + " on \(lostAt.dayName)\(reason).",
      counterpart: owner)
  }

  func cause(of entitlement: Entitlement) -> Cause {
    guard let (charge, recorded, original) = charges.charge(behind: entitlement) else {
      return Cause(sentence: entitlement.inWords)
    }
    if entitlement.isActive {
      let changes = [change(to: charge, in: original), nextChange(after: charge, in: original)]
      return Cause(
        sentence: ([entitlement.inWords] + changes.compactMap(\.self)).joined(separator: " "))
    }
    switch entitlement.endedBecause {
    case .refunded:
      let refund =
        "\(entitlement.inWords.dropLast()): \(charge.productID), charged \(charge.date.dayName)."
      return following(charge, in: original, after: refund, saying: [.earlierChargeRevoked])
    case .replaced: return replacement(of: charge, in: original, ending: entitlement)
    case .moved where entitlement.hasMoved:
      return move(of: charge, to: recorded.decision, in: original, ending: entitlement)
    // A move after the end has a sentence of its own: see `move(since:)`.
    case .billing where entitlement.state == .expired, .expired, .moved:
      return expiry(of: charge, in: original, ending: entitlement)
    case .billing, .familySharingEnded, .grantEnded, .grantRevoked, nil:
      return Cause(sentence: entitlement.inWords)
    }
  }

  func badge(of entitlement: Entitlement) -> Badge {
    charges.badge(of: entitlement, from: account.key)
  }

  // MARK: Causes

  /// The latest change of the product in the account's uninterrupted time up to a charge.
  private func change(to charge: Charge, in original: RecordedOriginalTransaction) -> String? {
    let charges = original.rule.charges.filter {
      $0.isSubscription && !$0.neverBegan && $0.date <= charge.date
    }
    func follows(_ index: Int) -> Bool {
      let (earlier, later) = (charges[index - 1], charges[index])
      let reaches = earlier.end.map { $0 >= later.date } ?? false
      return (reaches || earlier.supersededAt != nil)
        && [earlier, later].allSatisfy {
          original.line.decisions[$0.id]?.decision.owner == account.key
        }
    }
    guard charge.isSubscription,
      let index = charges.indices.dropFirst().reversed().prefix(while: follows).first(where: {
        charges[$0].productID != charges[$0 - 1].productID
      })
    else { return nil }
    let (old, new) = (charges[index - 1].productID, charges[index].productID)
    let verb: String =
      switch (catalogue[old]?.level, catalogue[new]?.level) {
      case (let from?, let to?) where to < from: "Upgraded"
      case (let from?, let to?) where to > from: "Downgraded"
      default: "Changed"
      }
    return "\(verb) from \(old) to \(new) on \(charges[index].date.dayName)."
  }

  /// The product that Apple will renew as, if it is another one.
  private func nextChange(after charge: Charge, in original: RecordedOriginalTransaction)
    -> String?
  {
    let state = OriginalTransactionState(line: original.line, rule: original.rule)
    guard state.latest?.id == charge.id, state.autoRenews == true,
      let next = state.autoRenewProductID, next != charge.productID
    else { return nil }
    return "It will renew as \(next)."
  }

  private func replacement(
    of charge: Charge, in original: RecordedOriginalTransaction, ending entitlement: Entitlement
  ) -> Cause {
    let lost = "Lost access\(on(entitlement.endedAt)): "
    let successor = original.rule.charges.first { other in
      other.productID != charge.productID && other.isSubscription
        && charge.supersededAt.map { $0 <= other.date + Charge.upgradeTolerance } ?? false
    }
    guard let successor, let decision = original.line.decisions[successor.id]?.decision else {
      return Cause(sentence: "\(lost)\(charge.productID) was replaced.")
    }
    let upgrade = "\(lost)upgraded to \(successor.productID)"
    guard let owner = decision.owner else {
      return Cause(sentence: "\(upgrade); no account has claimed the upgrade yet.")
    }
    guard owner != account.key else { return Cause(sentence: "\(upgrade).") }
    let who = ownership(decision, in: original)
    return Cause(
      sentence: "\(upgrade); the upgrade belongs to \(who.owner)"
        + "\(who.why.map { " (\($0))" } ?? "").",
      counterpart: who.name)
  }

  private func expiry(
    of charge: Charge, in original: RecordedOriginalTransaction, ending entitlement: Entitlement
  ) -> Cause {
    let offSince = original.autoRenewOff(after: charge, ending: entitlement)
    // The first sentence has said that the paid period had ended, or that auto-renew was off.
    return following(
      charge, in: original, after: entitlement.inWords(offSince: offSince),
      saying: offSince != nil ? [.boughtAfterPeriodEnd, .autoRenewOff] : [.boughtAfterPeriodEnd])
  }

  /// A sentence on the end of access, with who has what followed the charge.
  ///
  /// - Parameter said: The reasons that the sentence has given.
  private func following(
    _ charge: Charge, in original: RecordedOriginalTransaction, after ended: String,
    saying said: Set<RenewalEvidence.Reason>
  ) -> Cause {
    func following(_ id: Charge.ID) -> (charge: Charge, decision: Decision)? {
      original.rule.charges.lazy.compactMap { other in
        original.line.decisions[other.id].map { (charge: other, decision: $0.decision) }
      }.first { $0.decision.renewal.previous == id }
    }
    let next = following(charge.id)
    guard var next else { return Cause(sentence: ended) }
    let name = next.decision.isAutomaticRenewal(next.charge.kind) ? "renewal" : "purchase"
    let subject = "\(ended) The \(name) of \(next.charge.date.dayName)"
    guard let owner = next.decision.owner else {
      var later = 0
      while let after = following(next.charge.id), after.decision.owner == nil {
        (next, later) = (after, later + 1)
      }
      let rest =
        later == 0 ? " is unclaimed" : " and \(Count.text(later, "later charge")) are unclaimed"
      let end = next.charge.end.map { " (paid through \($0.dayName))" } ?? ""
      return Cause(sentence: "\(subject)\(rest)\(end).")
    }
    guard owner != account.key else { return Cause(sentence: ended) }
    let who = ownership(next.decision, in: original)
    let why = said.contains(next.decision.renewal.reason) ? nil : who.why
    return Cause(
      sentence: "\(subject) belongs to \(who.owner)\(why.map { ": \($0)" } ?? "").",
      counterpart: who.name)
  }

  private func move(
    of charge: Charge, to decision: Decision, in original: RecordedOriginalTransaction,
    ending entitlement: Entitlement
  ) -> Cause {
    // It may have moved on since.
    let loss = charges.loss(of: charge.id, from: account.key)
    let owner = (loss?.change.decision ?? decision).owner.map { original.names[$0] ?? "erased" }
    let target = owner.map { "moved to \($0)" } ?? "released"
    return Cause(
      sentence: "Lost \(entitlement.name)\(on(entitlement.endedAt)): \(target)"
        + "\(loss.map(Self.reason) ?? "").",
      counterpart: owner)
  }

  private static func reason(_ loss: (change: OwnershipChange, source: EntrySource)) -> String {
    occasion(loss)
      ?? Explanation(loss.change.decision) { _ in "" }.clause.map { ", \($0)" } ?? ""
  }

  /// What brought a loss; nil for a claim, whose reason is the decision's.
  private static func occasion(_ loss: (change: OwnershipChange, source: EntrySource)) -> String? {
    switch (loss.change.action, loss.source.kind) {
    case (_, .administrator): " by an administrator"
    case (_, .import): " by an import"
    case (.corrected, .notification): " when Apple's late renewal notice arrived"
    case (.corrected, .poll): " when Apple was polled for the renewal status"
    case (.corrected, _): " when a later submission proved the earlier owner wrong"
    case (_, _): nil
    }
  }

  private func ownership(_ decision: Decision, in original: RecordedOriginalTransaction)
    -> (owner: String, why: String?, name: String?)
  {
    func name(_ key: AccountKey?) -> String? { key.map { original.names[$0] ?? "erased" } }
    let explanation = Explanation(decision) { original.names[$0] ?? "erased" }
    let previous = decision.renewal.previous.flatMap { original.line.decisions[$0]?.decision.owner }
    let owner = name(decision.owner) ?? "no account"
    return (
      explanation.clause.map { "\(owner), \($0)" } ?? owner,
      explanation.lapse(of: name(previous)), name(decision.owner)
    )
  }
}

/// A charge's move from an account to another one or to none.
struct ChargeMove: Sendable {
  /// For example `Moved to klara`, with a link.
  fileprivate var target: [TextPiece]
  fileprivate var at: Timestamp
  /// For example ` by an administrator`, or empty.
  fileprivate var occasion: String
  /// The decision that took it.
  var decision: Decision?

  /// A sentence with links, or its beginning if what brought the move is said apart.
  func pieces(isExplained: Bool) -> [TextPiece] {
    target + [(" on \(at.dayName)\(isExplained ? "" : "\(occasion).")", nil)]
  }

  /// For example `moved to klara by an administrator`.
  var inWords: String {
    let text = target.map(\.text).joined()
    return text.prefix(1).lowercased() + text.dropFirst() + occasion
  }
}

/// The charges behind entitlements.
struct EntitlementCharges: Sendable {
  private let originals: [OriginalTransactionKey: RecordedOriginalTransaction]
  /// The items of original transactions whose charges moved to other accounts, each one's in order.
  private let items: [HistoryItem]

  /// - Parameter moved: Other original transactions whose charges moved.
  init(
    of entitlements: [Entitlement], moved: Set<OriginalTransactionKey> = [], in ledger: Ledger
  ) async throws {
    originals = try await ledger.ownership.originals(of: Set(entitlements.compactMap(\.line)))
    items = try await ledger.ownership.history(
      of: moved.union(entitlements.filter(\.hasMoved).compactMap(\.line)))
  }

  /// The accounts that lost charges, and those that got them.
  fileprivate var movingAccounts: Set<AccountKey> {
    Set(
      items.flatMap { item, _ -> [AccountKey] in
        guard case .ownership(let change) = item.content, let loser = change.previousOwner else {
          return []
        }
        return [loser] + [change.decision.owner].compactMap(\.self)
      })
  }

  fileprivate typealias Found = (
    charge: Charge, recorded: OriginalTransaction.RecordedDecision,
    original: RecordedOriginalTransaction
  )

  fileprivate func charge(behind entitlement: Entitlement) -> Found? {
    guard let line = entitlement.line, let original = originals[line] else { return nil }
    return original.charge(behind: entitlement).map { ($0.charge, $0.recorded, original) }
  }

  /// The change that took a charge from an account at a moment; the latest for nil.
  fileprivate func loss(of charge: Charge.ID, from account: AccountKey, at moment: Timestamp? = nil)
    -> (change: OwnershipChange, source: EntrySource)?
  {
    items.reversed().lazy.compactMap { item, source in
      if case .ownership(let change) = item.content, change.charge == charge,
        change.previousOwner == account, change.changesOwner,
        moment.map({ $0 == item.recordedAt }) ?? true
      {
        (change: change, source: source)
      } else {
        nil
      }
    }.first
  }

  /// The times in which an account owned a charge; one from its beginning unless it has moved.
  fileprivate func times(of charge: Charge.ID, by account: AccountKey)
    -> [AccessPeriods.Ownership]
  {
    var times: [AccessPeriods.Ownership] = []
    var hasMoved = false
    for (item, _) in items {
      guard case .ownership(let change) = item.content, change.charge == charge,
        change.changesOwner
      else { continue }
      if change.previousOwner == account, !times.isEmpty {
        times[times.count - 1].until = item.recordedAt
      }
      if change.decision.owner == account {
        times.append((hasMoved ? item.recordedAt : nil, nil))
      }
      hasMoved = true
    }
    return times.isEmpty ? [(nil, nil)] : times
  }

  /// The state, and why one ended; what was released has not moved, even if it has an owner again.
  func badge(of entitlement: Entitlement, from account: AccountKey) -> Badge {
    guard entitlement.hasMoved, let found = charge(behind: entitlement),
      (loss(of: found.charge.id, from: account)?.change.decision ?? found.recorded.decision).owner
        == nil
    else { return Badge(entitlement) }
    return Badge(text: "Released", tone: Tone.warning)
  }
}

extension RecordedOriginalTransaction {
  fileprivate func charge(behind entitlement: Entitlement)
    -> (charge: Charge, recorded: OriginalTransaction.RecordedDecision)?
  {
    line.history.transactions.map(\.key).lazy
      .filter { $0.transactionID == entitlement.transactionID && $0.line == entitlement.line }
      .compactMap(charge(of:)).first
  }

  /// Since when auto-renew was off when a subscription expired; nil if that was not the reason.
  fileprivate func autoRenewOff(after charge: Charge, ending entitlement: Entitlement)
    -> Timestamp?
  {
    guard charge.isSubscription, entitlement.state == .expired,
      [.expired, .moved].contains(entitlement.endedBecause)
    else { return nil }
    // As it was at the end: a refund and the end of billing retry switch auto-renew off, too.
    let statement = rule.position(of: charge.id).flatMap {
      rule.course.autoRenewStatement(after: $0, before: charge.end)
    }
    return statement?.autoRenews == false ? statement?.since : nil
  }

  /// The source and next change of one of its entitlements, and why it expired.
  func inWords(_ entitlement: Entitlement) -> String {
    entitlement.inWords(
      offSince: charge(behind: entitlement).flatMap {
        autoRenewOff(after: $0.charge, ending: entitlement)
      })
  }
}

private func on(_ moment: Timestamp?) -> String { moment.map { " on \($0.dayName)" } ?? "" }

extension Entitlement {
  /// The original transaction; nil for a grant.
  var line: OriginalTransactionKey? {
    originalTransactionID.flatMap { id in environment.map { OriginalTransactionKey($0, id) } }
  }

  /// Whether the move to another account, or the release, was what ended access.
  fileprivate var hasMoved: Bool { state == .revoked && endedBecause == .moved }

  /// As ``inWords``, with the date on which auto-renew was switched off before it expired.
  fileprivate func inWords(offSince: Timestamp?) -> String {
    offSince.map { "\(inWords.dropLast()): auto-renew had been off since \($0.dayName)." }
      ?? inWords
  }

  /// Its source and next change, as a sentence.
  var inWords: String {
    switch source {
    case .grant: grantInWords
    case .provisional: "Provisional until Apple can verify the submission."
    case .appStore: purchaseInWords
    }
  }

  private var grantInWords: String {
    let granted = "\(name) was granted by an administrator"
    return switch state {
    case .revoked: "\(granted); revoked\(on(endedAt))."
    case .expired: "\(granted); expired\(on(endedAt))."
    default: "\(granted)\(accessEndsAt.map { ", \($0.lastDayName)" } ?? "")."
    }
  }

  private var purchaseInWords: String {
    let product = productID?.rawValue ?? "The purchase"
    switch state {
    case .active where expiresAt == nil: return "\(product) does not expire."
    case .active where willRenew: return "\(product) renews\(on(expiresAt))."
    case .active: return "\(product) expires\(on(expiresAt)) and will not renew."
    case .inGracePeriod:
      return "\(product) could not be charged\(on(expiresAt)); access continues while Apple "
        + "retries."
    case .inBillingRetry:
      let since = endedAt == expiresAt ? "then" : endedAt?.dayName ?? "then"
      return
        "\(product) could not be charged\(on(expiresAt)); access has been suspended since \(since) "
        + "while Apple retries."
    case .revoked where endedBecause == .moved:
      return
        "\(product) has belonged to another account\(endedAt.map { " since \($0.dayName)" } ?? "")."
    case .revoked where endedBecause == .familySharingEnded:
      return "Family Sharing\(productID.map { " of \($0)" } ?? "") ended\(on(endedAt))."
    case .revoked: return "Refunded by Apple\(on(endedAt))."
    case .expired where endedBecause == .billing:
      let end = endedAt == expiresAt ? "access" : "the grace period"
      return "\(product) could not be charged; \(end) ended\(on(endedAt))."
    case .expired: return "\(product) expired\(on(endedAt))."
    }
  }
}
