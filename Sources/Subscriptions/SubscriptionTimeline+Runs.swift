extension SubscriptionTimeline {
  /// One charge of the subscription, and how long it runs.
  struct Run {
    /// The charge's place among the rule's.
    var position: Int
    var start: Timestamp
    /// Taken back, replaced, or the end of the paid period with its grace period: what comes first.
    ///
    /// The start, for a charge that covers no time.
    var end: Timestamp
    /// The end of the paid period; nil: Apple did not say.
    var paidEnd: Timestamp?
    /// What Apple tried after the paid period, as long as the charge was neither taken back nor
    /// replaced.
    var trouble: RenewalCourse.Trouble?
    /// The date of the next charge.
    var next: Timestamp?
    /// Whether it ended because it was revoked.
    var isRevoked: Bool
    /// Whether money was refunded then.
    var isRefunded: Bool
  }

  /// A stretch of time that one charge decides.
  struct Stretch {
    var start: Timestamp
    /// The place of the charge that runs, or that ran last, among the runs.
    var run: Int
    var isRunning: Bool
  }
}

extension SubscriptionTimeline.Run {
  /// The runs of all charges of subscriptions that ran, by date.
  static func runs(of charges: [Charge], _ course: RenewalCourse) -> [Self] {
    let positions = charges.positionsThatRan(
      among: charges.indices.filter { charges[$0].isSubscription })
    var next: Timestamp?
    var runs: [Self] = []
    for (index, position) in positions.enumerated().reversed() {
      let later = index + 1 < positions.count ? charges[positions[index + 1]].date : nil
      if let later, later > charges[position].date { next = later }
      runs.append(Self(position, of: charges[position], before: next, course))
    }
    return runs.reversed()
  }

  private init(
    _ position: Int, of charge: Charge, before next: Timestamp?, _ course: RenewalCourse
  ) {
    self.position = position
    self.next = next
    start = charge.date
    paidEnd = charge.end
    var trouble = course.trouble(afterChargeAt: position, before: next)
    let naturalEnd = charge.end.map { max($0, trouble?.graceEnd ?? $0) } ?? start
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

  /// The spans of a stretch in which the charge runs.
  func spans(
    from start: Timestamp, to end: Timestamp, _ terms: ChargeTerms, _ course: RenewalCourse
  ) -> [SubscriptionTimeline.Span] {
    func span(_ state: SubscriptionTimeline.State, from start: Timestamp, to end: Timestamp)
      -> SubscriptionTimeline.Span
    {
      SubscriptionTimeline.Span(start: start, end: end, state: state, terms: terms)
    }
    // The time by which a gap is bridged belongs to what was before it.
    let hasGrace = trouble?.graceEnd != nil
    let regularEnd = hasGrace ? max(start, min(end, paidEnd ?? end)) : end

    var spans: [SubscriptionTimeline.Span] = []
    var (isOn, since) = (course.isOn(atChargeAt: position), start)
    for word in course.switches(from: self.start, before: regularEnd) where word.isOn != isOn {
      if word.at > since {
        spans.append(span(state(isOn, terms), from: since, to: word.at))
        since = word.at
      }
      isOn = word.isOn
    }
    if since < regularEnd {
      spans.append(span(state(isOn, terms), from: since, to: regularEnd))
    }
    if regularEnd < end { spans.append(span(.inGracePeriod, from: regularEnd, to: end)) }
    return spans
  }

  private func state(_ isOn: Bool, _ terms: ChargeTerms) -> SubscriptionTimeline.State {
    terms.periodType == .trial
      ? isOn ? .trialRenewing : .trialCancelled : isOn ? .activeRenewing : .activeCancelled
  }

  /// The spans of a stretch in which nothing runs after the charge.
  func spans(afterwardsFrom start: Timestamp, to end: Timestamp?, _ terms: ChargeTerms)
    -> [SubscriptionTimeline.Span]
  {
    var spans: [SubscriptionTimeline.Span] = []
    var since = start
    func append(_ state: SubscriptionTimeline.State, until moment: Timestamp) {
      let until = end.map { min($0, moment) } ?? moment
      guard since < until else { return }
      spans.append(
        SubscriptionTimeline.Span(start: since, end: until, state: state, terms: terms))
      since = until
    }
    if isRevoked {
      if let paidEnd { append(.revoked, until: paidEnd) }
    } else if let retryEnd = trouble?.retryEnd {
      append(.inBillingRetry, until: retryEnd)
    }
    if end.map({ since < $0 }) ?? true {
      spans.append(
        SubscriptionTimeline.Span(start: since, end: end, state: .expired, terms: terms))
    }
    return spans
  }

  func endCause(_ course: RenewalCourse) -> SubscriptionTimeline.EndCause {
    if isRefunded { return .refunded }
    return isRevoked ? .unknown : course.endCause(ofChargeAt: position, before: next)
  }

  // MARK: Switches

  /// What the customer switched before the next charge, as long as there was something to renew.
  func switches(_ terms: ChargeTerms, _ course: RenewalCourse) -> [SubscriptionTimeline.Switch] {
    var switches: [SubscriptionTimeline.Switch] = []
    var isOn = course.isOn(atChargeAt: position)
    let renewableUntil = max(end, trouble?.retryEnd ?? end)
    for word in course.switches(from: start, before: min(renewableUntil, next ?? renewableUntil))
    where word.isOn != isOn {
      isOn = word.isOn
      switches.append(SubscriptionTimeline.Switch(at: word.at, isOn: isOn, terms: terms))
    }
    return switches
  }
}

extension SubscriptionTimeline.Stretch {
  /// Who decides when: the charge that began last of those that run; where none does, the one that
  /// ran last, or one that covers no time from its date on.
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

  /// The same without gaps that are none: sixty seconds at most between two charges.
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
