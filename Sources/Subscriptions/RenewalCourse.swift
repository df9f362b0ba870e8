/// What Apple said about what follows each charge of a line, as a course of time.
///
/// ``AutoRenewal`` answers what was known by a moment, in the same words; a timeline shows all
/// moments.
struct RenewalCourse {
  /// A word on auto-renew.
  struct Switch: Hashable {
    var at: Timestamp
    var isOn: Bool
  }

  /// What Apple did after a charge failed at a period's end.
  struct Trouble: Hashable {
    /// Until when there was access all the same; nil: there was no grace period.
    var graceEnd: Timestamp?
    /// Until when Apple tried without access, from the end of what was paid for or of the grace
    /// period on; nil: it did not.
    var retryEnd: Timestamp?
  }

  private struct PhaseWord {
    var at: Timestamp
    var phase: RenewalStatus.Phase
    var isCommitment: Bool

    var graceEnd: Timestamp? {
      if case .gracePeriod(let until) = phase { until } else { nil }
    }
  }

  private let autoRenewal: AutoRenewal
  /// One for each date; of one date, off wins.
  private let switches: [Switch]
  /// One for each date; of one date, the gravest.
  private let phases: [PhaseWord]
  private let statuses: [RenewalStatus]

  init(_ history: LineHistory, charges: [Charge]) {
    autoRenewal = AutoRenewal(history: history, charges: charges)
    statuses = history.statuses
    var (switches, phases): ([Switch], [PhaseWord]) = ([], [])
    // By date, off after on.
    for status in statuses {
      if let isOn = status.autoRenews {
        if switches.last?.at == status.asOf { switches.removeLast() }
        switches.append(Switch(at: status.asOf, isOn: isOn))
      }
      if let phase = status.phase {
        if let last = phases.last, last.at == status.asOf {
          guard last.phase.gravity <= phase.gravity else { continue }
          phases.removeLast()
        }
        phases.append(
          PhaseWord(at: status.asOf, phase: phase, isCommitment: status.isCommitment))
      }
    }
    self.switches = switches
    self.phases = phases
  }

  // MARK: Auto-renew

  /// Whether the line was set to renew when a charge was made.
  ///
  /// It was, unless auto-renew was switched off so shortly before an automatic renewal that Apple
  /// had charged that already.
  func isOn(atChargeAt position: Int) -> Bool {
    let speaksFrom = autoRenewal.speaksFrom(position)
    let before = switches[..<switches.lowerBound(autoRenewal.charges[position].date, by: \.at)]
    var offSince: Timestamp?
    for word in before.reversed() {
      if word.isOn { break }
      offSince = word.at
      if word.at < speaksFrom { break }
    }
    return offSince.map { $0 < speaksFrom } ?? true
  }

  /// The words on auto-renew from a moment on and before another one.
  func switches(from start: Timestamp, before end: Timestamp?) -> ArraySlice<Switch> {
    let first = switches.lowerBound(start, by: \.at)
    let last = end.map { switches.lowerBound($0, by: \.at) } ?? switches.endIndex
    return switches[first..<max(first, last)]
  }

  // MARK: Billing

  /// What Apple said of trouble with what should have followed a charge.
  ///
  /// Trouble begins where the paid period ends, whenever Apple speaks of it first. Apple tries for
  /// sixty days at most (ninety on a commitment): after that, silence is the end of it.
  ///
  /// - Parameters:
  ///   - position: The charge's place.
  ///   - next: The date of the charge after it, from which on words are about that one.
  /// - Returns: Nil where nothing failed.
  func trouble(afterChargeAt position: Int, before next: Timestamp?) -> Trouble? {
    let charge = autoRenewal.charges[position]
    guard let paidEnd = charge.end else { return nil }
    let first = phases.lowerBound(charge.date, by: \.at)
    let last = next.map { phases.lowerBound($0, by: \.at) } ?? phases.endIndex
    let words = phases[first..<max(first, last)]

    var trouble = Trouble()
    var rest = words
    if let index = words.lastIndex(where: { $0.graceEnd != nil }), let until = words[index].graceEnd
    {
      rest = words[(index + 1)...]
      let end = rest.first.map { min(until, $0.at) } ?? until
      if end > paidEnd { trouble.graceEnd = end }
    }
    if let index = rest.lastIndex(where: { $0.phase == .billingRetry }) {
      let isCommitment = charge.isCommitment || rest[index].isCommitment
      let limit =
        paidEnd + (isCommitment ? AutoRenewal.commitmentBillingRetry : AutoRenewal.billingRetry)
      let end =
        rest.index(after: index) < rest.endIndex
        ? rest[index + 1].at : max(limit, rest[index].at)
      if end > trouble.graceEnd ?? paidEnd { trouble.retryEnd = end }
    }
    return trouble == Trouble() ? nil : trouble
  }

  // MARK: Why it ended

  /// Why nothing that was paid for followed a charge.
  ///
  /// - Parameters:
  ///   - position: The charge's place.
  ///   - next: The date of the charge after it.
  /// - Returns: What Apple gives as the reason, unless it said later that the line will renew; else
  ///   what the words on auto-renew and on billing come to.
  func endCause(ofChargeAt position: Int, before next: Timestamp?) -> SubscriptionTimeline.EndCause
  {
    let charge = autoRenewal.charges[position]
    for status in statuses.reversed() {
      if let next, status.asOf >= next { continue }
      guard status.asOf >= charge.date else { break }
      if let intent = status.expirationIntent {
        return ExpirationIntent(rawValue: intent)?.cause ?? .unknown
      }
      if status.autoRenews == true { break }
    }
    let words = switches(from: charge.date, before: next)
    let wasOn =
      words.last { word in charge.end.map { word.at <= $0 } ?? false }?.isOn
      ?? isOn(atChargeAt: position)
    if !wasOn { return .voluntary }
    if trouble(afterChargeAt: position, before: next) != nil { return .billing }
    return words.last?.isOn == false ? .voluntary : .unknown
  }
}

/// Apple's numbers for why a subscription ended.
private enum ExpirationIntent: Int {
  case customer = 1
  case billing
  case price
  case product
  case other

  var cause: SubscriptionTimeline.EndCause {
    switch self {
    case .customer: .voluntary
    case .billing: .billing
    case .price: .priceNotConsented
    case .product: .productWithdrawn
    case .other: .unknown
    }
  }
}

extension Array {
  /// The first position whose element is at or after a moment, by dates that never fall.
  fileprivate func lowerBound(_ moment: Timestamp, by date: (Element) -> Timestamp) -> Int {
    var (low, high) = (startIndex, endIndex)
    while low < high {
      let middle = (low + high) / 2
      if date(self[middle]) < moment { low = middle + 1 } else { high = middle }
    }
    return low
  }
}
