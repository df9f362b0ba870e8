/// Apple's statements about the renewal of each charge, over time: ``AutoRenewal`` uses those known
/// at a moment, and a timeline shows all of them.
package struct RenewalForecast: Sendable {
  struct Switch: Hashable {
    var at: Timestamp
    var isOn: Bool
  }

  /// Apple's latest statement about auto-renew that applies to the renewal of one charge.
  package struct AutoRenewStatus: Hashable, Sendable {
    package var autoRenews: Bool
    /// The date of the first answer of this value in a row: a repeated *off* is not a new one.
    package var since: Timestamp
    /// The start of the current *off*, or of the one before auto-renew was switched on again.
    package var offSince: Timestamp?

    fileprivate static func taking(_ next: Switch, after statement: Self?) -> Self {
      guard let statement, statement.autoRenews == next.isOn else {
        return Self(
          autoRenews: next.isOn, since: next.at,
          offSince: next.isOn ? statement?.offSince : next.at)
      }
      return statement
    }
  }

  /// Apple's retries after a failed renewal charge.
  struct Trouble: Hashable {
    /// Nil without a grace period.
    var graceEnd: Timestamp?
    /// The end of the billing retry without access, after the paid or grace period; nil without
    /// one.
    var retryEnd: Timestamp?
  }

  package struct PhaseStatement: Hashable, Sendable {
    package var at: Timestamp
    package var phase: RenewalStatus.Phase
    package var isCommitment: Bool
  }

  private let charges: [Charge]
  /// One per date; at equal dates off wins.
  private let switches: [Switch]
  /// One per date: the most severe.
  private let phases: [PhaseStatement]
  private let statuses: [RenewalStatus]
  /// For each charge, the latest statement before it that applies to its renewal; nil: it renews.
  private let statementsAtCharges: [AutoRenewStatus?]
  private let constants: RuleConstants

  init(_ history: EvidenceHistory, charges: [Charge], constants: RuleConstants = .standard) {
    (self.charges, self.constants) = (charges, constants)
    statuses = history.statuses
    var (switches, phases): ([Switch], [PhaseStatement]) = ([], [])
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
          PhaseStatement(at: status.asOf, phase: phase, isCommitment: status.isCommitment))
      }
    }
    (self.switches, self.phases) = (switches, phases)

    var statements: [AutoRenewStatus?] = []
    var statement: AutoRenewStatus?
    var rest = switches[...]
    for position in charges.indices {
      let charge = charges[position]
      while let next = rest.first, next.at < charge.date {
        statement = .taking(next, after: statement)
        rest.removeFirst()
      }
      let known = charges.applicable(statement, toRenewalOfChargeAt: position, constants)
      statements.append(known)
      if charge.isSubscription, !charge.neverBegan { statement = known }
    }
    statementsAtCharges = statements
  }

  // MARK: Auto-renew

  /// Finds the latest statement about auto-renew before a moment that applies to the renewal of the
  /// charge at `position`, which renews without one.
  ///
  /// An *off* no longer applies after a purchase, or after a renewal more than a day later.
  package func autoRenewStatement(after position: Int, before moment: Timestamp? = nil)
    -> AutoRenewStatus?
  {
    switches(from: charges[position].date, before: moment)
      .reduce(statementsAtCharges[position]) { .taking($1, after: $0) }
  }

  /// Whether auto-renew was on when a charge was made: off only if it was switched off within a day
  /// before an automatic renewal, after Apple had charged.
  func isOn(atChargeAt position: Int) -> Bool { statementsAtCharges[position]?.autoRenews ?? true }

  func switches(from start: Timestamp, before end: Timestamp?) -> ArraySlice<Switch> {
    switches.elements(from: start, before: end, by: \.at)
  }

  /// The product of the next renewal, by Apple's latest statement about the charge at `position`,
  /// or an earlier one that named the product of that charge.
  package func announcedProduct(after position: Int) -> ProductID? {
    let status = statuses.last { $0.autoRenewProductID != nil }
    guard let status, let product = status.autoRenewProductID else { return nil }
    let isAboutCharge = status.asOf >= charges.earliestStatementDate(about: position, constants)
    return isAboutCharge || product == charges[position].productID ? product : nil
  }

  func lastStatus(
    from start: Timestamp, before end: Timestamp? = nil, where condition: (RenewalStatus) -> Bool
  ) -> RenewalStatus? {
    statuses.elements(from: start, before: end, by: \.asOf).last(where: condition)
  }

  // MARK: Billing

  /// Finds the latest statement about billing, with the date since which Apple has made it.
  package func phaseStatement(from start: Timestamp, before end: Timestamp? = nil)
    -> PhaseStatement?
  {
    let phases = phases.elements(from: start, before: end, by: \.at)
    guard let last = phases.last else { return nil }
    func saysTheSame(_ other: PhaseStatement) -> Bool {
      (other.phase, other.isCommitment) == (last.phase, last.isCommitment)
    }
    return phases.lastIndex { !saysTheSame($0) }.map { phases[$0 + 1] } ?? phases.first
  }

  /// Finds the grace period and the billing retry after a charge and before the `next` one; nil if
  /// no charge failed.
  ///
  /// They start with the end of the paid period, whenever Apple first reports them. Apple retries
  /// for at most 60 days (90 on a commitment).
  func trouble(afterChargeAt position: Int, before next: Timestamp?) -> Trouble? {
    let charge = charges[position]
    guard let paidEnd = charge.end else { return nil }
    let phases = self.phases.elements(from: charge.date, before: next, by: \.at)

    var trouble = Trouble()
    var rest = phases
    if let index = phases.lastIndex(where: { $0.phase.graceEnd != nil }),
      let until = phases[index].phase.graceEnd
    {
      rest = phases[(index + 1)...]
      let end = rest.first.map { min(until, $0.at) } ?? until
      if end > paidEnd { trouble.graceEnd = end }
    }
    if let index = rest.lastIndex(where: { $0.phase == .billingRetry }) {
      let isCommitment = charge.isCommitment || rest[index].isCommitment
      let limit = paidEnd + constants.billingRetry(isCommitment: isCommitment)
      let end = index + 1 < rest.endIndex ? rest[index + 1].at : max(limit, rest[index].at)
      if end > trouble.graceEnd ?? paidEnd { trouble.retryEnd = end }
    }
    return trouble == Trouble() ? nil : trouble
  }

  // MARK: Why it ended

  /// By ``RenewalStatus/expirationIntent``.
  private static let endCauses: [Int: SubscriptionTimeline.EndCause] = [
    1: .voluntary, 2: .billing, 3: .priceNotConsented, 4: .productWithdrawn,
  ]

  /// The reason why no charge followed: Apple's, unless a later statement says that auto-renew is
  /// on; otherwise the one that follows from auto-renew and billing.
  func endCause(ofChargeAt position: Int, before next: Timestamp?) -> SubscriptionTimeline.EndCause
  {
    let charge = charges[position]
    for status in statuses.elements(from: charge.date, before: next, by: \.asOf).reversed() {
      if let intent = status.expirationIntent {
        return Self.endCauses[intent] ?? .unknown
      }
      if status.autoRenews == true { break }
    }
    let switches = self.switches(from: charge.date, before: next)
    let wasOn =
      switches.last { change in charge.end.map { change.at <= $0 } ?? false }?.isOn
      ?? isOn(atChargeAt: position)
    if !wasOn { return .voluntary }
    if trouble(afterChargeAt: position, before: next) != nil { return .billing }
    return switches.last?.isOn == false ? .voluntary : .unknown
  }
}

extension [Charge] {
  /// The earliest date of a statement that can apply to the renewal of the charge at `position`.
  fileprivate func earliestStatementDate(
    about position: Int, _ constants: RuleConstants
  ) -> Timestamp {
    let date = self[position].date
    return isAutomatic(position, constants) ? date - constants.earlyCharge : date
  }

  /// The latest statement before a charge, without an *off* too old to apply to its renewal.
  fileprivate func applicable(
    _ statement: RenewalForecast.AutoRenewStatus?, toRenewalOfChargeAt position: Int,
    _ constants: RuleConstants
  ) -> RenewalForecast.AutoRenewStatus? {
    guard var statement, let offSince = statement.offSince,
      offSince < earliestStatementDate(about: position, constants)
    else { return statement }
    guard statement.autoRenews else { return nil }
    statement.offSince = nil
    return statement
  }

  /// Whether the charges show an automatic renewal at `position`; see
  /// ``Decision/isAutomaticRenewal(_:)`` for the result with statuses and owners.
  private func isAutomatic(_ position: Int, _ constants: RuleConstants) -> Bool {
    let charge = self[position]
    switch charge.kind {
    case .renewal: return true
    case .purchase: return false
    case .unknown:
      guard let previous = positionBefore(position), let end = self[previous].end else {
        return false
      }
      return (charge.date - end).isWithin(constants.periodEnd)
    }
  }
}

extension Array {
  /// The elements dated from `start` on and before `end`, in an array by date.
  fileprivate func elements(
    from start: Timestamp, before end: Timestamp?, by date: (Element) -> Timestamp
  ) -> ArraySlice<Element> {
    let first = lowerBound(start, by: date)
    let last = end.map { lowerBound($0, by: date) } ?? endIndex
    return self[first..<Swift.max(first, last)]
  }

  private func lowerBound(_ moment: Timestamp, by date: (Element) -> Timestamp) -> Int {
    var (low, high) = (startIndex, endIndex)
    while low < high {
      let middle = (low + high) / 2
      if date(self[middle]) < moment { low = middle + 1 } else { high = middle }
    }
    return low
  }
}
