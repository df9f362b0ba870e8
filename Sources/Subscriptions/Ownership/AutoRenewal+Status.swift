/// A date at which auto-renew is said to have been switched off, by somebody who can't prove it.
///
/// Notifications of version 1 tell when the customer switched (`auto_renew_status_change_date`),
/// which Apple's own answer about a receipt does not. But they are unsigned: whoever knows the
/// shared secret could write any date. So the date is used only where Apple's word for the same
/// state stands beside it, and no later decision can turn out otherwise for it.
package struct ReportedSwitchOff: Hashable, Sendable {
  package var line: LineID
  package var at: Timestamp

  package init(line: LineID, at: Timestamp) {
    self.line = line
    self.at = at
  }
}

extension Line {
  /// The evidence that a reported date makes once Apple's word is recorded on this line; nil where
  /// it is not believed, or tells nothing new.
  ///
  /// It is evidence if all of this holds, *P* being the line's latest charge:
  /// - Apple's last word is *off*. The date moves it back, and never says *on*: an earlier *on*
  ///   could take a charge from whoever bought it.
  /// - The date lies before Apple's *off*, at or after *P*, and after any *on* of Apple's: so no
  ///   charge that is known is decided with it, and it contradicts nothing. Nor does Apple name a
  ///   token between: tokens count from the *off* on.
  /// - Apple's *off* lies more than 24 hours, and the minute's tolerance, before the end of *P*.
  ///   Whether an *off* is older than a day decides about a charge at the end; here Apple's own is.
  ///
  /// - Parameter evidence: Evidence that is about to be recorded.
  package func evidence(of report: ReportedSwitchOff, knowing evidence: [Evidence] = [])
    -> Evidence?
  {
    var history = history
    for item in evidence {
      switch item {
      case .transaction(let record):
        history.add(record, recorded: RecordingOrder(at: record.asOf, number: .max))
      case .renewalStatus(let status, _): history.add(status)
      case .link: break
      }
    }
    let renewal = AutoRenewal(history: history, charges: Charge.charges(in: history))
    // Beside a charge that is dated later and never began, it could be about either.
    guard let position = renewal.charges.indices.last,
      position == renewal.charges.latestPosition,
      let statement = renewal.course.autoRenewStatement(after: position), !statement.autoRenews
    else { return nil }
    let latest = renewal.charges[position]
    let margin = AutoRenewal.earlyCharge + .gapTolerance
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
