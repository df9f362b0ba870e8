/// A subscription's whole life: one state of one charge at every moment from the first charge on,
/// expected changes at their dates.
///
/// Linked original transactions are one subscription, and so are all products of one. Should paid
/// periods overlap, which Apple does not allow, the charge that began last counts.
package struct SubscriptionTimeline: Hashable, Sendable {
  /// The states that reports count.
  package enum State: String, Codable, CaseIterable, Sendable {
    case activeRenewing = "active_renewing"
    case activeCancelled = "active_cancelled"
    case trialRenewing = "trial_renewing"
    case trialCancelled = "trial_cancelled"
    /// Past the paid period, with access, while Apple retries the charge.
    case inGracePeriod = "in_grace_period"
    case inBillingRetry = "in_billing_retry"
    case expired
    /// Refunded or revoked, until the end of the paid time.
    case revoked
  }

  package enum EndCause: String, Codable, CaseIterable, Sendable {
    case voluntary
    case priceNotConsented = "price_not_consented"
    case billing
    case productWithdrawn = "product_withdrawn"
    case refunded
    case unknown
  }

  package struct Span: Hashable, Sendable {
    package var start: Timestamp
    /// The start of the next one; nil for the last.
    package var end: Timestamp?
    package var state: State
    /// The charge that runs, or that ran last.
    package var terms: ChargeTerms
    /// Nil where it did not end, or where a paid period follows.
    package var endCause: EndCause?

    /// Whether a paid charge runs, including its grace period.
    package var isPaid: Bool {
      [.activeRenewing, .activeCancelled].contains(state)
        || state == .inGracePeriod && terms.periodType != .trial
    }

    /// Whether a trial runs, including its grace period.
    package var isTrial: Bool {
      [.trialRenewing, .trialCancelled].contains(state)
        || state == .inGracePeriod && terms.periodType == .trial
    }

    package var isInTrouble: Bool { state == .inGracePeriod || state == .inBillingRetry }
  }

  /// The customer switched auto-renew off or on.
  package struct Switch: Hashable, Sendable {
    package var at: Timestamp
    package var isOn: Bool
    package var terms: ChargeTerms
  }

  /// Each ends where the next begins; none without subscriptions.
  package private(set) var spans: [Span] = []
  /// By date.
  package private(set) var switches: [Switch] = []

  init(of line: OriginalTransaction, rule: OwnershipRule, terms all: [ChargeTerms]) {
    let course = rule.course
    let runs = Run.runs(of: rule)
    let stretches = Stretch.stretches(of: runs)
    for (index, stretch) in stretches.enumerated() {
      let next = index + 1 < stretches.count ? stretches[index + 1] : nil
      let run = runs[stretch.run]
      let terms = all[run.position]
      guard stretch.isRunning, let end = next?.start else {
        spans += run.spans(afterwardsFrom: stretch.start, to: next?.start, terms)
        continue
      }
      spans += run.spans(from: stretch.start, to: end, terms, course)
      let following = next.flatMap { $0.isRunning ? all[runs[$0.run].position] : nil }
      if following.map({ $0.periodType == .trial }) ?? true {
        spans[spans.count - 1].endCause = run.endCause(course)
      }
    }
    switches = runs.flatMap { run in run.switches(all[run.position], course) }
  }

  package init(of line: OriginalTransaction, rule: OwnershipRule, in catalogue: Catalogue) {
    self.init(of: line, rule: rule, terms: line.terms(rule, in: catalogue))
  }

  struct Run {
    /// The charge's position among the rule's.
    var position: Int
    var start: Timestamp
    /// The revocation, the replacement, or the end of the paid period with grace, whichever comes
    /// first; the start for a charge that covers no time.
    var end: Timestamp
    /// Nil: not reported.
    var paidEnd: Timestamp?
    /// The billing retry, while the charge was neither revoked nor replaced.
    var trouble: RenewalForecast.Trouble?
    /// The date of the next charge.
    var next: Timestamp?
    var isRevoked: Bool
    var isRefunded: Bool
  }

  struct Stretch {
    var start: Timestamp
    /// The position among the runs of the charge that runs, or that ran last.
    var run: Int
    var isRunning: Bool
  }
}

extension SubscriptionTimeline.Run {
  static func runs(of rule: OwnershipRule) -> [Self] {
    let charges = rule.charges
    let positions = charges.positionsThatRan(
      among: charges.indices.filter { charges[$0].isSubscription })
    var next: Int?
    var runs: [Self] = []
    for (index, position) in positions.enumerated().reversed() {
      if index + 1 < positions.count,
        charges[positions[index + 1]].date > charges[position].date
      {
        next = positions[index + 1]
      }
      runs.append(Self(position, before: next, of: rule))
    }
    return runs.reversed()
  }

  private init(_ position: Int, before next: Int?, of rule: OwnershipRule) {
    let charge = rule.charges[position]
    self.position = position
    self.next = next.map { rule.charges[$0].date }
    start = charge.date
    paidEnd = charge.end
    var trouble = rule.course.trouble(afterChargeAt: position, before: self.next)
    let naturalEnd = charge.end.map { max($0, trouble?.graceEnd ?? $0) } ?? start
    if let next, let paidEnd, trouble?.retryEnd == nil {
      let (renewal, decision) = (rule.charges[next], rule.decisions[next])
      let limit = RuleConstants.standard.billingRetry(isCommitment: charge.isCommitment)
      if decision.isAutomaticRenewal(renewal.kind), renewal.date > naturalEnd + .gapTolerance,
        renewal.date <= paidEnd + limit,
        rule.course.phaseStatement(from: start, before: self.next)?.phase != .expired,
        [.unknown, .billing].contains(
          rule.course.endCause(ofChargeAt: position, before: self.next))
      {
        // Apple retried the charge, whether it reported that or not.
        trouble = RenewalForecast.Trouble(graceEnd: trouble?.graceEnd, retryEnd: renewal.date)
      }
    }
    let cutOff = [charge.revocation?.at, charge.supersededAt].compactMap(\.self).min()
    end = max(start, min(naturalEnd, cutOff ?? naturalEnd))
    isRevoked = charge.revocation.map { $0.at == cutOff && $0.at <= naturalEnd } ?? false
    isRefunded = isRevoked && charge.revocation?.isRefund == true
    if let cutOff, let retryEnd = trouble?.retryEnd {
      trouble?.retryEnd = cutOff > naturalEnd ? min(retryEnd, cutOff) : nil
    }
    self.trouble = trouble
  }

  // MARK: Spans

  func spans(
    from start: Timestamp, to end: Timestamp, _ terms: ChargeTerms, _ course: RenewalForecast
  ) -> [SubscriptionTimeline.Span] {
    func span(_ state: SubscriptionTimeline.State, from start: Timestamp, to end: Timestamp)
      -> SubscriptionTimeline.Span
    {
      SubscriptionTimeline.Span(start: start, end: end, state: state, terms: terms)
    }
    // A bridged gap belongs to the charge before it.
    let hasGrace = trouble?.graceEnd != nil
    let regularEnd = hasGrace ? max(start, min(end, paidEnd ?? end)) : end

    var spans: [SubscriptionTimeline.Span] = []
    var (isOn, since) = (course.isOn(atChargeAt: position), start)
    for change in course.switches(from: self.start, before: regularEnd) where change.isOn != isOn {
      if change.at > since {
        spans.append(span(state(isOn, terms), from: since, to: change.at))
        since = change.at
      }
      isOn = change.isOn
    }
    if since < regularEnd { spans.append(span(state(isOn, terms), from: since, to: regularEnd)) }
    if regularEnd < end { spans.append(span(.inGracePeriod, from: regularEnd, to: end)) }
    return spans
  }

  private func state(_ isOn: Bool, _ terms: ChargeTerms) -> SubscriptionTimeline.State {
    terms.periodType == .trial
      ? isOn ? .trialRenewing : .trialCancelled : isOn ? .activeRenewing : .activeCancelled
  }

  func spans(afterwardsFrom start: Timestamp, to end: Timestamp?, _ terms: ChargeTerms)
    -> [SubscriptionTimeline.Span]
  {
    var spans: [SubscriptionTimeline.Span] = []
    var since = start
    func append(_ state: SubscriptionTimeline.State, until moment: Timestamp) {
      let until = end.map { min($0, moment) } ?? moment
      guard since < until else { return }
      spans.append(SubscriptionTimeline.Span(start: since, end: until, state: state, terms: terms))
      since = until
    }
    if isRevoked {
      if let paidEnd { append(.revoked, until: paidEnd) }
    } else if let retryEnd = trouble?.retryEnd {
      append(.inBillingRetry, until: retryEnd)
    }
    if end.map({ since < $0 }) ?? true {
      spans.append(SubscriptionTimeline.Span(start: since, end: end, state: .expired, terms: terms))
    }
    return spans
  }

  func endCause(_ course: RenewalForecast) -> SubscriptionTimeline.EndCause {
    if isRefunded { return .refunded }
    if isRevoked { return .unknown }
    let cause = course.endCause(ofChargeAt: position, before: next)
    return cause == .unknown && trouble != nil ? .billing : cause
  }

  // MARK: Switches

  /// The switches before the next charge, as long as there was something to renew.
  func switches(_ terms: ChargeTerms, _ course: RenewalForecast) -> [SubscriptionTimeline.Switch] {
    var switches: [SubscriptionTimeline.Switch] = []
    var isOn = course.isOn(atChargeAt: position)
    let renewableUntil = max(end, trouble?.retryEnd ?? end)
    for change in course.switches(from: start, before: min(renewableUntil, next ?? renewableUntil))
    where change.isOn != isOn {
      isOn = change.isOn
      switches.append(SubscriptionTimeline.Switch(at: change.at, isOn: isOn, terms: terms))
    }
    return switches
  }
}

extension SubscriptionTimeline.Stretch {
  /// Assigns each moment to the charge that began last of those that run; if none does, to the one
  /// that ran last, or to one without any time from its date on.
  static func stretches(of runs: [SubscriptionTimeline.Run]) -> [Self] {
    var stretches: [Self] = []
    func append(_ run: Int, isRunning: Bool, at moment: Timestamp) {
      if let last = stretches.last, last.run == run, last.isRunning == isRunning { return }
      stretches.append(Self(start: moment, run: run, isRunning: isRunning))
    }
    var running: [Int] = []
    var next = runs.startIndex
    for moment in Set(runs.flatMap { [$0.start, $0.end] }).sorted() {
      var withoutTime: Int?
      while next < runs.endIndex, runs[next].start == moment {
        if runs[next].start < runs[next].end { running.append(next) } else { withoutTime = next }
        next += 1
      }
      while let last = running.last, runs[last].end <= moment { running.removeLast() }
      if let last = running.last {
        append(last, isRunning: true, at: moment)
      } else if let run = withoutTime ?? stretches.last?.run {
        append(run, isRunning: false, at: moment)
      }
    }
    return bridged(stretches)
  }

  /// Closes gaps of up to sixty seconds between two charges.
  private static func bridged(_ stretches: [Self]) -> [Self] {
    stretches.indices.filter { index in
      guard !stretches[index].isRunning, index > 0, stretches[index - 1].isRunning,
        index + 1 < stretches.count, stretches[index + 1].isRunning
      else { return true }
      let gap = stretches[index + 1].start - stretches[index].start
      return gap > .gapTolerance
    }.map { stretches[$0] }
  }
}
