/// A date at which auto-renew is said to have been switched off, without proof.
///
/// Version 1 notifications name it (`auto_renew_status_change_date`), but anyone with the shared
/// secret could write any date. It is used only next to Apple's own status, and where no later
/// decision can depend on it.
package struct AutoRenewOffDate: Hashable, Sendable {
  package var line: OriginalTransactionKey
  package var at: Timestamp

  package init(line: OriginalTransactionKey, at: Timestamp) {
    (self.line, self.at) = (line, at)
  }
}

extension OriginalTransaction {
  /// The evidence that a reported date makes, next to Apple's statuses and `evidence` that is about
  /// to be recorded; nil where it is not believed or adds nothing.
  ///
  /// It is evidence if all of this holds, *P* being the latest charge:
  /// - Apple's latest status is *off*. The date moves it back, and never says *on*: an earlier *on*
  ///   could take a charge from its buyer.
  /// - The date lies before Apple's *off*, at or after *P*, and after any *on*: so no known charge
  ///   is decided with it. Nor does Apple name a token in between: tokens count from the *off* on.
  /// - Apple's *off* lies more than 24 hours and a minute before the end of *P*: whether an *off*
  ///   is older than a day decides about a charge at the end, and here Apple's own is.
  package func evidence(of report: AutoRenewOffDate, knowing evidence: [Evidence] = [])
    -> Evidence?
  {
    var history = history.adding(repeated)
    for item in evidence {
      switch item {
      case .transaction(let record):
        history.add(record, recorded: RecordingOrder(at: record.asOf, number: .max))
      case .renewalStatus(let status, _): history.add(status)
      case .link: break
      }
    }
    let renewal = AutoRenewal(history: history, charges: Charge.charges(in: history))
    // With a later charge that never began, it could be about either.
    guard let position = renewal.charges.indices.last,
      position == renewal.charges.latestPosition,
      let statement = renewal.course.autoRenewStatement(after: position), !statement.autoRenews
    else { return nil }
    let latest = renewal.charges[position]
    let margin = RuleConstants.standard.earlyCharge + .gapTolerance
    guard latest.isSubscription, let end = latest.end, statement.since + margin < end,
      latest.date <= report.at, report.at < statement.since,
      !history.statuses.contains(where: { status in
        status.asOf >= report.at
          && (status.autoRenews == true && status.asOf <= statement.since
            || status.appAccountToken != nil && status.asOf < statement.since)
      })
    else { return nil }
    return .renewalStatus(RenewalStatus(asOf: report.at, autoRenews: false), line: report.line)
  }
}
