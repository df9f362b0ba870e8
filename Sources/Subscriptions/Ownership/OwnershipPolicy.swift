/// A policy by which charges could be owned, to compare with the recorded owners.
///
/// Each policy is a pure function of the history, like ``OwnershipRule``. Under every policy a
/// charge that an administrator or an import assigned stays as assigned, merged accounts count as
/// one, and a submission or an import by an account counts for the whole original transaction.
package enum OwnershipPolicy: Hashable, Sendable {
  /// The present rule, ``OwnershipRule``, with its own constants or others.
  case presentRule(RuleConstants)
  /// The present rule without its exception for orders: what was switched off and on again stays
  /// with its subscriber until it lapses.
  case untilItLapses
  /// RevenueCat's "keep with original App User ID".
  ///
  /// | # | when | owner |
  /// | --- | --- | --- |
  /// | 1 | an account submitted the original transaction | the first, unless erased by then |
  /// | 2 | otherwise | none |
  case firstOwnerKeeps
  /// RevenueCat's "transfer to new App User ID".
  ///
  /// | # | when | owner |
  /// | --- | --- | --- |
  /// | 1 | an account submitted the original transaction | the latest, of all its charges |
  /// | 2 | otherwise | none |
  ///
  /// An account's repeated submissions of one transaction count once: the ledger records no more.
  case latestSubmitterTakes
  /// StoreKit 2's `appAccountToken` alone.
  ///
  /// | # | when | owner |
  /// | --- | --- | --- |
  /// | 1 | the charge carries a token that was issued to an account | it, unless erased by then |
  /// | 2 | otherwise | none |
  case tokenDecides
  /// Every account that submitted an original transaction owns all of it.
  case shared

  /// All policies, the present rule with its own constants.
  package static let all: [OwnershipPolicy] = [
    .presentRule(.standard), .untilItLapses, .firstOwnerKeeps, .latestSubmitterTakes,
    .tokenDecides, .shared,
  ]

  package var name: String {
    switch self {
    case .presentRule: "present-rule"
    case .untilItLapses: "until-it-lapses"
    case .firstOwnerKeeps: "first-owner-keeps"
    case .latestSubmitterTakes: "latest-submitter-takes"
    case .tokenDecides: "token-decides"
    case .shared: "shared"
    }
  }

  package var summary: String {
    switch self {
    case .presentRule:
      "A charge belongs to the account that still has auto-renew on, otherwise to the account that "
        + "submitted it; here with other limits, such as the days of billing retry."
    case .untilItLapses:
      "The present rule, but what was switched off and on again stays with its subscriber until it "
        + "lapses, even if another account ordered it."
    case .firstOwnerKeeps:
      "The first account to submit an original transaction owns all of it (RevenueCat: keep with "
        + "original App User ID)."
    case .latestSubmitterTakes:
      "The latest account to submit an original transaction owns all of it (RevenueCat: transfer "
        + "to new App User ID)."
    case .tokenDecides: "The account whose appAccountToken the charge carries owns it."
    case .shared: "Every account that submitted an original transaction owns all of it."
    }
  }

  /// - Parameter constants: The constants of the present rule; other policies have none.
  package init?(named name: String, constants: RuleConstants = .standard) {
    guard let policy = Self.all.first(where: { $0.name == name }) else { return nil }
    if case .presentRule = policy {
      self = .presentRule(constants)
    } else if constants == .standard {
      self = policy
    } else {
      return nil
    }
  }

  package struct Verdict: Hashable, Sendable {
    package enum Reason: Hashable, Sendable {
      /// By the present rule, or assigned by an administrator or an import.
      case decision(Decision)
      case submission(OwnershipPolicy)
      case token
    }

    /// In the order of their submissions; at most one, except with ``OwnershipPolicy/shared``.
    package var owners: [AccountKey]
    package var reason: Reason

    package func sentence(name: (AccountKey) -> String) -> String {
      let accounts = owners.map { "“\(name($0))”" }.joined(separator: ", ")
      switch reason {
      case .decision(let decision): return Explanation(decision, name: name).sentence
      case .token where owners.isEmpty: return "It carries no token issued to an account."
      case .token: return "It carries the token issued to \(accounts)."
      case .submission where owners.isEmpty:
        return "No account has submitted this original transaction."
      case .submission(.firstOwnerKeeps):
        return "\(accounts) was the first to submit this original transaction."
      case .submission(.latestSubmitterTakes):
        return "\(accounts) was the latest to submit this original transaction."
      case .submission: return "Submitted this original transaction: \(accounts)."
      }
    }
  }

  package func verdicts(on line: OriginalTransaction, recorded: OwnershipRule) -> [Verdict] {
    switch self {
    case .presentRule(let constants):
      // Under other constants, answers that only repeated recorded facts can matter.
      let history = constants == .standard ? line.history : line.history.adding(line.repeated)
      return Self.verdicts(OwnershipRule(history, constants: constants), on: recorded.charges)
    case .untilItLapses:
      var history = line.history
      history.orders = []
      return Self.verdicts(OwnershipRule(history), on: recorded.charges)
    case .firstOwnerKeeps, .latestSubmitterTakes, .tokenDecides, .shared:
      let submitters = line.history.submitters
      return zip(recorded.charges, recorded.decisions).map { charge, decision in
        // Row 0 of every policy.
        decision.rule == .administrator || decision.renewal.reason == .released
          ? Verdict(decision) : verdict(on: charge, among: submitters, line.history)
      }
    }
  }

  private static func verdicts(_ rule: OwnershipRule, on charges: [Charge]) -> [Verdict] {
    charges.map { charge in
      guard let position = rule.position(of: charge.id) else {
        preconditionFailure("Both have the charges of one history.")
      }
      return Verdict(rule.decisions[position])
    }
  }

  private func verdict(
    on charge: Charge, among submitters: [AccountKey], _ history: EvidenceHistory
  ) -> Verdict {
    if self == .tokenDecides {
      let buyer = history.buyer(by: charge.appAccountToken, asOf: charge.date)
      return Verdict(owners: buyer.map { [history.successor(of: $0)] } ?? [], reason: .token)
    }
    let present = submitters.filter { !history.isErased($0, by: charge.date) }
    let owners: [AccountKey] =
      switch self {
      case .firstOwnerKeeps: Array(present.prefix(1))
      case .latestSubmitterTakes: Array(present.suffix(1))
      default: present.reduce(into: []) { if !$0.contains($1) { $0.append($1) } }
      }
    return Verdict(owners: owners, reason: .submission(self))
  }
}

extension OwnershipPolicy.Verdict {
  fileprivate init(_ decision: Decision) {
    self.init(owners: [decision.owner].compactMap(\.self), reason: .decision(decision))
  }
}

extension EvidenceHistory {
  /// The accounts of submissions and imports in order, each at every one of them.
  fileprivate var submitters: [AccountKey] {
    actions.compactMap { action in
      switch action.action {
      case .claim(let claim): successor(of: claim.account)
      case .importedOverride(let ownerOverride): successor(of: ownerOverride.account)
      case .ownerOverride: nil
      }
    }
  }
}
