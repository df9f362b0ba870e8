/// The schedule of polls about a subscription: shortly before the end of a period, because a
/// switched-off auto-renew must be known before Apple charges, at it, then in growing intervals
/// while Apple retries the charge, and seldom about ended subscriptions.
package enum PollSchedule {
  package struct Subject: Hashable, Sendable {
    package var id: OriginalTransactionKey
    /// Whether the latest charge is of an auto-renewable subscription.
    var isSubscription: Bool
    var periodStart: Timestamp
    /// The end of its paid period, if any.
    var periodEnd: Timestamp?
    var autoRenews = true
    package var phase = RenewalStatus.Phase.undisturbed
    package var isRevoked = false
    var isCommitment = false
    /// The date of Apple's latest answer, polled or not.
    var lastPolledAt: Timestamp?
    /// Whether Apple sends notifications, such as of refunds.
    var hasNotifications = true
  }

  package struct Appointment: Hashable, Sendable {
    package var at: Timestamp
    /// From ``urgent`` to ``quiet``; smaller ones run first.
    package var priority: Int
  }

  /// Access depends on the answer.
  package static let urgent = 0
  package static let usual = 1
  /// No access depends on the answer.
  package static let quiet = 2

  /// Before Apple charges, which it does up to 24 hours early, with some reserve.
  private static let lead: Duration = .hours(26)
  /// The shortest interval after a period's end.
  private static let shortestGap: Duration = .minutes(10)
  private static let shortestGapOfTrouble: Duration = .hours(1)
  private static let longestGap: Duration = .hours(24)
  /// The time after the end in which polls are urgent.
  private static let urgency: Duration = .hours(24)
  /// The first poll about an ended subscription, and about a period without notifications.
  private static let firstQuietGap: Duration = .days(30)
  private static let quietGap: Duration = .days(90)
  /// Polling stops after this time, until another purchase.
  private static let quietPatience: Duration = .days(400)
  /// The days after a one-time purchase on which refunds are polled for.
  private static let refundDays = [2, 7, 30, 60, 90]
  /// The longest delay of a poll whose time was missed.
  private static let amends: Duration = .minutes(1)
  private static let quietAmends: Duration = .hours(1)

  /// The next poll after `now`; nil: none, unless something changes.
  ///
  /// Its time differs for original transactions that end together.
  package static func next(_ line: Subject, after now: Timestamp) -> Appointment? {
    let appointments = appointments(of: line)
    let next = appointments.first { $0.at > now }
    guard line.isSubscription, let missed = appointments.last(where: { $0.at <= now }),
      line.lastPolledAt.map({ $0 < missed.at }) ?? true
    else { return next }
    // The result of the missed poll is still unknown.
    let delay = missed.priority == quiet ? quietAmends : amends
    let soon = now + .milliseconds(1) + jitter(line.id, missed.at, upTo: delay)
    return next.flatMap { $0.at <= soon ? $0 : nil }
      ?? Appointment(at: soon, priority: missed.priority)
  }

  /// Every poll while nothing changes, in order.
  static func appointments(of line: Subject) -> [Appointment] {
    guard line.isSubscription else { return refundLookups(of: line) }
    guard let end = line.periodEnd else { return [] }
    let period = max(end - line.periodStart, .zero)
    func moment(_ moment: Timestamp, _ priority: Int, jitter: Duration) -> Appointment {
      Appointment(at: moment + Self.jitter(line.id, moment, upTo: jitter), priority: priority)
    }
    func quietOnes(from start: Timestamp) -> [Appointment] {
      stride(from: start + firstQuietGap, before: end + quietPatience, by: quietGap).map {
        moment($0, quiet, jitter: .hours(24))
      }
    }
    let atEnd = min(.clockTolerance, period / 10)
    if line.isRevoked {
      // A refund can be reversed, and a refunded subscription can continue.
      return (quietOnes(from: line.periodStart) + [moment(end, usual, jitter: atEnd)])
        .sorted { $0.at < $1.at }
    }
    let quietOnes = quietOnes(from: end)
    switch line.phase {
    case .expired: return quietOnes
    case .gracePeriod, .billingRetry:
      var looks = afterEnd(of: line, end: end, shortestGap: shortestGapOfTrouble).map {
        moment($0.moment, usual, jitter: $0.gap / 10)
      }
      if let until = line.phase.graceEnd, until > end {
        looks.append(moment(until, usual, jitter: .clockTolerance))
      }
      return (looks + quietOnes).sorted { $0.at < $1.at }
    case .undisturbed where !line.autoRenews: return [moment(end, usual, jitter: atEnd)] + quietOnes
    case .undisturbed:
      let lead = min(Self.lead, period / 4)
      let before = moment(end - lead, usual, jitter: min(.hours(1), lead / 10))
      let refunds =
        line.hasNotifications
        ? []
        : stride(from: line.periodStart, before: before.at, by: firstQuietGap).dropFirst().map {
          moment($0, quiet, jitter: .hours(1))
        }.filter { $0.at < before.at }
      let gap = min(shortestGap, max(period / 10, .minutes(1)))
      let after = afterEnd(of: line, end: end, shortestGap: gap).dropFirst().map {
        moment($0.moment, $0.moment < end + urgency ? urgent : usual, jitter: $0.gap / 10)
      }
      return refunds + [before, moment(end, urgent, jitter: min(atEnd, gap / 2))] + after
        + quietOnes.drop { $0.at <= after.last?.at ?? end }
    }
  }

  // MARK: Parts

  private static func refundLookups(of line: Subject) -> [Appointment] {
    guard !line.hasNotifications, !line.isRevoked else { return [] }
    return refundDays.map { days in
      let moment = line.periodStart + .days(days)
      return Appointment(at: moment + jitter(line.id, moment, upTo: .hours(6)), priority: quiet)
    }
  }

  /// The end, and moments after it in growing intervals, while Apple retries.
  private static func afterEnd(
    of line: Subject, end: Timestamp, shortestGap: Duration
  ) -> [(moment: Timestamp, gap: Duration)] {
    let limit = end + RuleConstants.standard.billingRetry(isCommitment: line.isCommitment)
    var looks: [(moment: Timestamp, gap: Duration)] = []
    var moment = end
    while moment <= limit {
      let gap = min(max((moment - end) / 4, shortestGap), longestGap)
      looks.append((moment, gap))
      moment = moment + gap
    }
    return looks
  }

  private static func stride(
    from start: Timestamp, before limit: Timestamp, by step: Duration
  ) -> [Timestamp] {
    Swift.stride(
      from: start.milliseconds, to: limit.milliseconds, by: Int(step.inMilliseconds)
    ).map { Timestamp(milliseconds: $0) }
  }

  /// A part of a time, pseudorandom by original transaction and moment.
  private static func jitter(
    _ line: OriginalTransactionKey, _ moment: Timestamp, upTo most: Duration
  ) -> Duration {
    // FNV-1a over the key, then SplitMix64's last steps.
    var hash: UInt64 = 0xCBF2_9CE4_8422_2325
    for byte in line.description.utf8 { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01B3 }
    hash = hash &+ UInt64(bitPattern: moment.milliseconds) &* 0x9E37_79B9_7F4A_7C15
    hash = (hash ^ (hash >> 30)) &* 0xBF58_476D_1CE4_E5B9
    hash = (hash ^ (hash >> 27)) &* 0x94D0_49BB_1331_11EB
    hash ^= hash >> 31
    let limit = UInt64(max(most.inMilliseconds, 0))
    return .milliseconds(Int64(hash.multipliedFullWidth(by: limit).high))
  }
}

extension PollSchedule.Subject {
  /// The state of an original transaction with those that Apple links, at an answered poll
  /// (`polledAt`) or not; nil without a charge.
  ///
  /// - Parameter hasNotifications: Whether Apple sends those of an environment.
  package init?(
    _ line: OriginalTransaction, _ rule: OwnershipRule, polledAt: Timestamp? = nil,
    hasNotifications: (Environment) -> Bool
  ) {
    guard let position = rule.charges.latestPosition else { return nil }
    let latest = rule.charges[position]
    let renewal = latest.isSubscription ? rule.renewal(ofChargeAt: position) : nil
    self.init(
      id: latest.id.line, isSubscription: latest.isSubscription, periodStart: latest.date,
      periodEnd: latest.end, autoRenews: renewal?.autoRenews ?? false,
      phase: renewal?.phase ?? .undisturbed, isRevoked: latest.revocation != nil,
      isCommitment: latest.isCommitment,
      lastPolledAt: [polledAt, line.statusAsOf].compactMap(\.self).max(),
      hasNotifications: hasNotifications(latest.id.line.environment))
  }
}
