/// What Apple had said by a moment about what follows a charge.
extension AutoRenewal {
  /// Apple's last word on auto-renew before a moment, as far as it speaks about one charge's
  /// renewal.
  package struct AutoRenewWord: Hashable, Sendable {
    package var autoRenews: Bool
    /// When Apple last said so.
    package var asOf: Timestamp
    /// When Apple first said so without saying otherwise since: repeating *off* is not switching it
    /// off again.
    package var since: Timestamp
    /// Since when auto-renew is off, or was before it was switched on again; nil if it never was.
    package var offSince: Timestamp?
  }

  /// Finds the last word on auto-renew that speaks about what follows the charge at `position`.
  ///
  /// With none the charge itself is the word: *on*. Neither does an *off* speak that the charge has
  /// outlived: whoever bought, or whom Apple renewed more than a day after it, had switched on
  /// again.
  package func autoRenewWord(after position: Int, before moment: Timestamp?) -> AutoRenewWord? {
    let charge = charges[position]
    let speaksFrom = speaksFrom(position)
    let runs = autoRenewRuns(before: moment, reachingBackTo: speaksFrom)
    guard let last = runs.first else { return nil }

    // Of an off that the charge has outlived, only what was said after the charge counts.
    func offSince(_ run: AutoRenewRun) -> Timestamp? {
      run.since >= speaksFrom ? run.since : run.dates.last { $0 >= charge.date }
    }
    if last.autoRenews {
      return AutoRenewWord(
        autoRenews: true, asOf: last.asOf, since: last.since,
        offSince: runs.dropFirst().first.flatMap(offSince))
    }
    return offSince(last).map {
      AutoRenewWord(autoRenews: false, asOf: last.asOf, since: $0, offSince: $0)
    }
  }

  /// The product for which Apple last said that what follows the charge at `position` will be; nil:
  /// it did not say.
  package func announcedProduct(after position: Int) -> ProductID? {
    let start = speaksFrom(position)
    return history.statuses.last { $0.autoRenewProductID != nil && $0.asOf >= start }?
      .autoRenewProductID
  }

  /// From when on Apple's words can be about what follows the charge at `position`.
  func speaksFrom(_ position: Int) -> Timestamp {
    let date = charges[position].date
    return isAutomatic(position) ? date - Self.earlyCharge : date
  }

  /// Whether the charge at `position` was made by Apple and not by somebody's hand, as far as the
  /// charges alone can tell.
  private func isAutomatic(_ position: Int) -> Bool {
    let charge = charges[position]
    switch charge.kind {
    case .renewal: return true
    case .purchase: return false
    case .unknown:
      guard let previous = positionBefore(position), let end = charges[previous].end else {
        return false
      }
      return (charge.date - end).isWithin(Self.periodEndTolerance)
    }
  }

  /// An uninterrupted run of equal words on auto-renew.
  private struct AutoRenewRun {
    var autoRenews: Bool
    /// The dates of the words, latest first; never empty.
    var dates: [Timestamp]
    var asOf: Timestamp { dates[0] }
    var since: Timestamp { dates[dates.count - 1] }
  }

  /// The last two runs before a moment, latest first, as far as they reach back to `start`.
  private func autoRenewRuns(before moment: Timestamp?, reachingBackTo start: Timestamp)
    -> [AutoRenewRun]
  {
    var runs: [AutoRenewRun] = []
    for status in history.statuses.reversed() {
      if let moment, status.asOf >= moment { continue }
      guard let autoRenews = status.autoRenews else { continue }
      guard let earliest = runs.last else {
        runs = [AutoRenewRun(autoRenews: autoRenews, dates: [status.asOf])]
        continue
      }
      // One word from before the start is enough to see that a run reaches back beyond it.
      if earliest.since < start { break }
      // Of one date, off wins: an on of the same date interrupts nothing.
      if autoRenews == earliest.autoRenews || status.asOf == earliest.since {
        runs[runs.count - 1].dates.append(status.asOf)
      } else if runs.count == 2 {
        break
      } else {
        runs.append(AutoRenewRun(autoRenews: autoRenews, dates: [status.asOf]))
      }
    }
    return runs
  }

  /// Apple's last word on the phase, dated from `start` on and before `end`; of one date, the
  /// gravest.
  package func phaseWord(from start: Timestamp, before end: Timestamp? = nil) -> RenewalStatus? {
    var word: RenewalStatus?
    for status in history.statuses.reversed() {
      if let end, status.asOf >= end { continue }
      guard let phase = status.phase, status.asOf >= start else { continue }
      guard let current = word else {
        word = status
        continue
      }
      guard status.asOf == current.asOf else { break }
      if phase.gravity > current.phase?.gravity ?? 0 { word = status }
    }
    return word
  }
}
