/// What Apple said about what follows each charge of a line, as a course of time.
///
/// ``AutoRenewal`` asks what was known by a moment; a timeline shows all moments.
package struct RenewalCourse: Sendable {
  /// A word on auto-renew.
  struct Switch: Hashable {
    var at: Timestamp
    var isOn: Bool
  }

  /// Apple's last word on auto-renew, as far as it speaks about one charge's renewal.
  package struct AutoRenewWord: Hashable, Sendable {
    package var autoRenews: Bool
    /// When Apple last said so.
    package var asOf: Timestamp
    /// When Apple first said so without saying otherwise since: repeating *off* is not switching it
    /// off again.
    package var since: Timestamp
    /// Since when auto-renew is off, or was before it was switched on again; nil if it never was.
    package var offSince: Timestamp?

    /// Takes in the next word by date.
    fileprivate static func taking(_ next: Switch, after word: Self?) -> Self {
      guard var word, word.autoRenews == next.isOn else {
        return Self(
          autoRenews: next.isOn, asOf: next.at, since: next.at,
          offSince: next.isOn ? word?.offSince : next.at)
      }
      word.asOf = next.at
      return word
    }
  }

  /// What Apple did after a charge failed at a period's end.
  struct Trouble: Hashable {
    /// Until when there was access all the same; nil: there was no grace period.
    var graceEnd: Timestamp?
    /// Until when Apple tried without access, from the end of what was paid for or of the grace
    /// period on; nil: it did not.
    var retryEnd: Timestamp?
  }

  /// A word on the phase.
  package struct PhaseWord: Hashable, Sendable {
    package var at: Timestamp
    package var phase: RenewalStatus.Phase
    package var isCommitment: Bool

    fileprivate var graceEnd: Timestamp? {
      if case .gracePeriod(let until) = phase { until } else { nil }
    }
  }

  private let charges: [Charge]
  /// One for each date; of one date, off wins.
  private let switches: [Switch]
  /// One for each date; of one date, the gravest.
  private let phases: [PhaseWord]
  private let statuses: [RenewalStatus]
  /// What the words dated before each charge say about what follows it; nil: nothing, and the
  /// charge itself is the word, *on*.
  private let wordsAtCharges: [AutoRenewWord?]

  init(_ history: LineHistory, charges: [Charge]) {
    self.charges = charges
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

    var words: [AutoRenewWord?] = []
    var word: AutoRenewWord?
    var rest = switches[...]
    for position in charges.indices {
      let charge = charges[position]
      while let next = rest.first, next.at < charge.date {
        word = .taking(next, after: word)
        rest.removeFirst()
      }
      let known = charges.word(word, outlivedByChargeAt: position)
      words.append(known)
      if charge.isSubscription, !charge.neverBegan { word = known }
    }
    wordsAtCharges = words
  }

  // MARK: Auto-renew

  /// Finds the last word on auto-renew before a moment that speaks about what follows the charge at
  /// `position`.
  ///
  /// With none the charge itself is the word: *on*. An *off* that a charge has outlived says
  /// nothing either: to buy, or to be renewed more than a day later, takes switching on again,
  /// whether Apple said so or not.
  package func autoRenewWord(after position: Int, before moment: Timestamp? = nil)
    -> AutoRenewWord?
  {
    switches(from: charges[position].date, before: moment)
      .reduce(wordsAtCharges[position]) { .taking($1, after: $0) }
  }

  /// Whether the line was set to renew when a charge was made.
  ///
  /// It was, unless auto-renew was switched off so shortly before an automatic renewal that Apple
  /// had already charged.
  func isOn(atChargeAt position: Int) -> Bool { wordsAtCharges[position]?.autoRenews ?? true }

  /// The words on auto-renew from a moment on and before another one.
  func switches(from start: Timestamp, before end: Timestamp?) -> ArraySlice<Switch> {
    switches.elements(from: start, before: end, by: \.at)
  }

  /// The product for which Apple last announced what follows the charge at `position`; nil: none.
  package func announcedProduct(after position: Int) -> ProductID? {
    lastStatus(from: charges.speaksFrom(position)) { $0.autoRenewProductID != nil }?
      .autoRenewProductID
  }

  /// The last status dated from `start` on and before `end` that satisfies a condition.
  func lastStatus(
    from start: Timestamp, before end: Timestamp? = nil, where condition: (RenewalStatus) -> Bool
  ) -> RenewalStatus? {
    statuses.elements(from: start, before: end, by: \.asOf).last(where: condition)
  }

  // MARK: Billing

  /// Apple's last word on the phase, dated from `start` on and before `end`.
  package func phaseWord(from start: Timestamp, before end: Timestamp? = nil) -> PhaseWord? {
    phases.elements(from: start, before: end, by: \.at).last
  }

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
    let charge = charges[position]
    guard let paidEnd = charge.end else { return nil }
    let words = phases.elements(from: charge.date, before: next, by: \.at)

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
    let charge = charges[position]
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

extension [Charge] {
  /// From when on Apple's words can be about what follows the charge at `position`.
  fileprivate func speaksFrom(_ position: Int) -> Timestamp {
    let date = self[position].date
    return isAutomatic(position) ? date - AutoRenewal.earlyCharge : date
  }

  /// What is left of the last word before the charge at `position`: an *off* dated before Apple's
  /// words can be about what follows is over.
  fileprivate func word(
    _ word: RenewalCourse.AutoRenewWord?, outlivedByChargeAt position: Int
  ) -> RenewalCourse.AutoRenewWord? {
    guard var word, let offSince = word.offSince, offSince < speaksFrom(position) else {
      return word
    }
    guard word.autoRenews else { return nil }
    word.offSince = nil
    return word
  }

  /// Whether the charge at `position` was made by Apple and not by the customer's hand, as far as
  /// the charges alone show.
  private func isAutomatic(_ position: Int) -> Bool {
    let charge = self[position]
    switch charge.kind {
    case .renewal: return true
    case .purchase: return false
    case .unknown:
      guard let previous = positionBefore(position), let end = self[previous].end else {
        return false
      }
      return (charge.date - end).isWithin(.gapTolerance)
    }
  }
}

extension Array {
  /// The elements dated from `start` on and before `end`, by dates that never fall.
  fileprivate func elements(
    from start: Timestamp, before end: Timestamp?, by date: (Element) -> Timestamp
  ) -> ArraySlice<Element> {
    let first = lowerBound(start, by: date)
    let last = end.map { lowerBound($0, by: date) } ?? endIndex
    return self[first..<Swift.max(first, last)]
  }

  /// The first position whose element is at or after a moment.
  private func lowerBound(_ moment: Timestamp, by date: (Element) -> Timestamp) -> Int {
    var (low, high) = (startIndex, endIndex)
    while low < high {
      let middle = (low + high) / 2
      if date(self[middle]) < moment { low = middle + 1 } else { high = middle }
    }
    return low
  }
}
