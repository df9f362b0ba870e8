/// The ownership rule, replayed over everything known about an original transaction.
///
/// > A charge goes to the account that is still actively auto-renewing on that
/// > original_transaction_id. If there is none, it goes to the account that submitted it.
///
/// ```swift
/// let rule = OwnershipRule(history)
/// for (charge, decision) in zip(rule.charges, rule.decisions) { print(charge.id, decision.owner) }
/// ```
///
/// The result is a pure function of Apple's evidence as a set and of people's actions in order, so
/// the order in which evidence arrives does not matter:
/// - The decision table runs without claims over all charges by date.
/// - Each claim in order settles its charge, and the unsettled charges that depend on it are
///   decided again. Later claims never change a settled owner. An import's override is applied
///   among the claims: it settles the unsettled charges bought by then.
/// - Administrators override all of it from the effective date on. A released charge goes to the
///   next claimant, whichever account was renewing.
package struct OwnershipRule: Sendable {
  /// By date.
  package let charges: [Charge]
  package private(set) var decisions: [Decision]

  private let autoRenewal: AutoRenewal
  private let history: EvidenceHistory
  private let importedOverrides: [OriginalTransactionOverride]
  private let positions: [TransactionKey: Int]
  /// Whether later claims can't change the owner.
  private var isSettled: [Bool]
  private var ownerOverrides: [Int: [Placing]]

  /// An override, or a release with the account that has claimed the charge since.
  private struct Placing {
    var account: AccountKey?
    let effectiveFrom: Timestamp
    let isRelease: Bool
  }

  package init(_ history: EvidenceHistory, constants: RuleConstants = .standard) {
    let charges = Charge.charges(in: history)
    self.init(
      history, charges: charges, recorded: charges.map { _ in .undecided }, constants: constants)
    for position in charges.indices { decideWithoutClaim(position) }
    perform(history.actions)
    decidePlaced()
    followMerges()
  }

  /// - Parameter decisions: The decisions on `charges`, in their order.
  init(
    _ history: EvidenceHistory, charges: [Charge], recorded decisions: [Decision],
    constants: RuleConstants = .standard
  ) {
    (self.history, self.charges, self.decisions) = (history, charges, decisions)
    autoRenewal = AutoRenewal(history: history, charges: charges, constants: constants)
    importedOverrides = history.importedOverrides
    isSettled = decisions.map { !$0.isProvisional }

    var positions: [TransactionKey: Int] = [:]
    for (position, charge) in charges.enumerated() {
      for transaction in charge.transactions { positions[transaction] = position }
    }
    self.positions = positions
    var ownerOverrides: [Int: [Placing]] = [:]
    for case .ownerOverride(let ownerOverride) in history.actions.map(\.action) {
      guard let position = positions[ownerOverride.transaction] else { continue }
      ownerOverrides[position, default: []].append(
        Placing(
          account: ownerOverride.account, effectiveFrom: ownerOverride.effectiveFrom,
          isRelease: ownerOverride.isRelease))
    }
    self.ownerOverrides = ownerOverrides
  }

  package func position(of transaction: TransactionKey) -> Int? { positions[transaction] }

  package var course: RenewalForecast { autoRenewal.course }

  // MARK: The table

  /// Decides the unsettled charges again that depend on the charge at `start`, which changed: a
  /// decision depends only on the owner of the charge before.
  private mutating func sweep(after start: Int) {
    var changed: Set = [start]
    var last = start
    for position in charges.indices.suffix(from: start + 1) {
      guard let previous = charges.positionBefore(position), previous >= start else { continue }
      if previous > last { break }
      guard !isSettled[position], changed.contains(previous) else { continue }
      let before = decisions[position]
      decideWithoutClaim(position)
      if decisions[position] != before || isSettled[position] {
        changed.insert(position)
        last = position
      }
    }
  }

  private mutating func decideWithoutClaim(_ position: Int) {
    let decision = decisionWithoutClaim(at: position)
    decisions[position] = decision
    isSettled[position] = !decision.isProvisional
  }

  /// Rows 1, 1t, 3 and 4.
  private func decisionWithoutClaim(at position: Int) -> Decision {
    let renewal = renewalEvidence(at: position)
    if let account = renewal.account {
      return Decision(
        owner: account, rule: .activelyAutoRenewing, renewal: renewal,
        isProvisional: renewal.switchedOffAt != nil || restsOnProvisionalOwner(position))
    }
    // Row 0 precedes row 1t: a token yields to an import.
    if let account = buyerByToken(at: position),
      !importedOverrides.contains(where: { $0.covers(charges[position]) })
    {
      // A claim of the charge before could still show that its claimant was renewing.
      return Decision(
        owner: account, rule: .appAccountToken, renewal: renewal,
        isProvisional: restsOnProvisionalOwner(position))
    }
    let charge = charges[position]
    if let account = history.buyer(by: charge.appAccountToken, asOf: charge.date) {
      return Decision(owner: account, rule: .appAccountToken, renewal: renewal, isProvisional: true)
    }
    return Decision(owner: nil, rule: .unclaimed, renewal: renewal, isProvisional: true)
  }

  /// Rows 1, 1t and 2.
  private func decision(at position: Int, by claim: Claim) -> Decision {
    var renewal = renewalEvidence(at: position)
    if let account = renewal.account, account != claim.account,
      autoRenewal.wasSwitchedOn(byOrderBehind: claim, beforeChargeAt: position)
    {
      renewal.account = nil
      renewal.reason = .orderedByAnotherAccount
    }
    if let account = renewal.account {
      return Decision(owner: account, rule: .activelyAutoRenewing, renewal: renewal)
    }
    if let account = buyerByToken(at: position) {
      return Decision(owner: account, rule: .appAccountToken, renewal: renewal)
    }
    return Decision(owner: claim.account, rule: .submitter, renewal: renewal)
  }

  /// Row 1t: the account whose token the buyer's app passed with this payment, and not with an
  /// earlier one, because renewals inherit the token of the purchase.
  private func buyerByToken(at position: Int) -> AccountKey? {
    let charge = charges[position]
    guard let token = charge.appAccountToken, charge.kind != .renewal,
      !charges[..<position].contains(where: { $0.appAccountToken == token })
    else { return nil }
    return history.buyer(by: token, asOf: charge.date)
  }

  private func renewalEvidence(at position: Int) -> RenewalEvidence {
    autoRenewal.evidence(forChargeAt: position, owner: owner(at:asOf:))
  }

  private func restsOnProvisionalOwner(_ position: Int) -> Bool {
    guard let previous = charges.positionBefore(position) else { return false }
    return ownerOverride(at: previous, asOf: charges[position].date) == nil && !isSettled[previous]
  }

  /// The owner of a charge as of a moment; overrides count from their effective dates on.
  private func owner(at position: Int, asOf moment: Timestamp) -> AccountKey? {
    let owner =
      ownerOverride(at: position, asOf: moment).map(\.account) ?? decisions[position].owner
    return owner.map { history.successor(of: $0, asOf: moment) }
  }

  private func ownerOverride(at position: Int, asOf moment: Timestamp) -> Placing? {
    ownerOverrides[position]?.last { $0.effectiveFrom <= moment }
  }

  // MARK: Actions

  /// Applies actions in order, at one moment by their charges' dates, and decides dependents again.
  private mutating func perform(_ actions: [RecordedAction]) {
    let ordered = actions.compactMap { action in
      // An override of all charges precedes actions on one of them.
      guard let transaction = action.action.transaction else {
        return (position: -1, action: action)
      }
      return positions[transaction].map { (position: $0, action: action) }
    }.sorted {
      ($0.action.recorded.at, $0.position, $0.action) < (
        $1.action.recorded.at, $1.position, $1.action
      )
    }
    // The number of overrides of each charge that have taken effect.
    var placed: [Int: Int] = [:]
    for (position, action) in ordered {
      switch action.action {
      case .ownerOverride: placed[position, default: 0] += 1
      case .claim(let claim):
        if let count = placed[position] {
          guard ownerOverrides[position]?[count - 1].account == nil else { continue }
          ownerOverrides[position]?[count - 1].account = claim.account
        } else {
          guard !isSettled[position] else { continue }
          decisions[position] = decision(at: position, by: claim)
          isSettled[position] = true
        }
        sweep(after: position)
      case .importedOverride(let ownerOverride): settle(by: ownerOverride, sparing: placed.keys)
      }
    }
  }

  private mutating func settle(
    by ownerOverride: OriginalTransactionOverride, sparing placed: some Collection<Int>
  ) {
    let settled = charges.indices.filter {
      !isSettled[$0] && !placed.contains($0) && ownerOverride.covers(charges[$0])
    }
    for position in settled {
      decisions[position] = Decision(
        owner: ownerOverride.account, rule: .administrator, renewal: renewalEvidence(at: position))
      isSettled[position] = true
    }
    for position in settled { sweep(after: position) }
  }

  /// Row 0: the last override of a charge; a released charge goes to its next claimant.
  private mutating func decidePlaced() {
    for (position, ownerOverrides) in ownerOverrides {
      guard let last = ownerOverrides.last else { continue }
      var renewal = decisions[position].renewal
      guard last.isRelease else {
        decisions[position] = Decision(owner: last.account, rule: .administrator, renewal: renewal)
        isSettled[position] = true
        continue
      }
      renewal = RenewalEvidence(reason: .released, previous: renewal.previous)
      decisions[position] = Decision(
        owner: last.account, rule: last.account == nil ? .unclaimed : .submitter,
        renewal: renewal, isProvisional: last.account == nil)
      isSettled[position] = last.account != nil
    }
  }

  private mutating func followMerges() {
    guard !history.merges.isEmpty else { return }
    for position in charges.indices {
      guard let owner = decisions[position].owner else { continue }
      let successor = history.successor(of: owner)
      guard successor != owner else { continue }
      if decisions[position].renewal.account == owner {
        decisions[position].renewal.account = successor
      }
      decisions[position].owner = successor
    }
  }

  /// Takes every decision as recorded and computes none; nil if a charge has none.
  package init?(_ history: EvidenceHistory, recorded: [Charge.ID: Decision]) {
    let charges = Charge.charges(in: history)
    let decisions = charges.compactMap { recorded[$0.id] }
    guard decisions.count == charges.count else { return nil }
    self.init(history, charges: charges, recorded: decisions)
  }

  package init(recordedOn line: OriginalTransaction) {
    self =
      OwnershipRule(line.history, recorded: line.decisions.mapValues(\.decision))
      ?? OwnershipRule(line.history)
  }
}
