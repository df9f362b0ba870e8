import Subscriptions

/// A ledger's results, independent of the order in which it learned the facts.
struct Outcome: Hashable {
  struct Fate: Hashable {
    var reports: Set<TransactionKey>
    var date: Timestamp
    var end: Timestamp?
    var owner: AccountKey?
    var rule: Decision.Rule?
    var reason: RenewalEvidence.Reason?
    var isProvisional: Bool?
    /// The transactions of the previous charge.
    var previous: Set<TransactionKey>
    var statusAsOf: Timestamp?
    var switchedOffAt: Timestamp?
    var revocation: Revocation?
    var supersededAt: Timestamp?
  }

  struct Bound: Hashable {
    var account: AccountKey?
    var since: Timestamp
  }

  struct Held: Hashable {
    var account: AccountKey
    var original: OriginalTransactionKey
    var reports: Set<TransactionKey>
    var startsAt: Timestamp
    var endsAt: Timestamp?
    var graceEndsAt: Timestamp?
    var revokedAt: Timestamp?
    var supersededAt: Timestamp?
    var renewal: Holding.Renewal?
    var periodType: PeriodType
  }

  var charges: [Fate]
  var bindings: [Bound]
  var holdings: Set<Held>
  var statuses: [RenewalStatus]

  init(_ ledger: Ledger) {
    let (line, rule) = (ledger.line, ledger.rule)
    func reports(_ id: Charge.ID?) -> Set<TransactionKey> {
      let position = id.flatMap { rule.position(of: $0) }
      return Set(position.map { rule.charges[$0].transactions } ?? [])
    }
    charges = rule.charges.map { charge in
      let decision = line.decisions[charge.id]?.decision
      return Fate(
        reports: Set(charge.transactions), date: charge.date, end: charge.end,
        owner: decision?.owner, rule: decision?.rule, reason: decision?.renewal.reason,
        isProvisional: decision?.isProvisional, previous: reports(decision?.renewal.previous),
        statusAsOf: decision?.renewal.statusAsOf, switchedOffAt: decision?.renewal.switchedOffAt,
        revocation: charge.revocation,
        supersededAt: charge.supersededAt)
    }
    bindings = ledger.bindings.map { Bound(account: $0.account, since: $0.boundAt) }
    holdings = Set(
      line.allHoldings(rule).map { account, holding in
        Held(
          account: account, original: holding.original, reports: reports(holding.charge),
          startsAt: holding.startsAt, endsAt: holding.endsAt,
          graceEndsAt: holding.graceEndsAt, revokedAt: holding.revokedAt,
          supersededAt: holding.supersededAt, renewal: holding.renewal,
          periodType: holding.periodType)
      })
    statuses = line.history.adding(line.repeated).statuses
  }
}
