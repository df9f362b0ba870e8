/// When Apple is asked about a line without anybody having sent anything.
///
/// Most of what happens to a subscription happens at the end of its period, and an auto-renew that
/// is switched off has to be known before Apple charges: so Apple is asked shortly before the end
/// and at it, then in growing gaps for as long as it tries to charge, and seldom about what is
/// over.
package enum RenewalPlan {
  /// What the plan looks at: a line as it is known, and whether Apple was asked lately.
  package struct Line: Hashable, Sendable {
    package var id: LineID
    /// Whether the latest charge is of an auto-renewable subscription.
    package var isSubscription: Bool
    /// The date of the latest charge.
    package var periodStart: Timestamp
    /// The end of its paid period; nil for what has none.
    package var periodEnd: Timestamp?
    package var autoRenews: Bool
    package var phase: RenewalStatus.Phase
    /// Whether the latest charge was taken back.
    package var isRevoked: Bool
    package var isCommitment: Bool
    /// When Apple last said how the line stands, asked or not; nil: never.
    package var lastPolledAt: Timestamp?
    /// Whether Apple sends notifications: of a refund, say.
    package var hasNotifications: Bool

    package init(
      id: LineID, isSubscription: Bool, periodStart: Timestamp, periodEnd: Timestamp?,
      autoRenews: Bool = true, phase: RenewalStatus.Phase = .undisturbed, isRevoked: Bool = false,
      isCommitment: Bool = false, lastPolledAt: Timestamp? = nil, hasNotifications: Bool = true
    ) {
      self.id = id
      self.isSubscription = isSubscription
      self.periodStart = periodStart
      self.periodEnd = periodEnd
      self.autoRenews = autoRenews
      self.phase = phase
      self.isRevoked = isRevoked
      self.isCommitment = isCommitment
      self.lastPolledAt = lastPolledAt
      self.hasNotifications = hasNotifications
    }
  }

  /// When Apple is to be asked.
  package struct Appointment: Hashable, Sendable {
    package var at: Timestamp
    /// From ``urgent`` to ``quiet``; the smaller comes first when not all can be kept in time.
    package var priority: Int

    package init(at: Timestamp, priority: Int) {
      self.at = at
      self.priority = priority
    }
  }

  /// Somebody's access depends on the answer.
  package static let urgent = 0
  package static let usual = 1
  /// Nobody waits for the answer.
  package static let quiet = 2

  /// Before Apple charges, which it does up to 24 hours early, with time to keep the appointment.
  private static let lead: Duration = .hours(26)
  /// After a period's end, and later on, Apple is asked no more often than this.
  private static let shortestGap: Duration = .minutes(10)
  /// The same while Apple says that it could not charge.
  private static let shortestGapOfTrouble: Duration = .hours(1)
  private static let longestGap: Duration = .hours(24)
  /// For this long after the end an answer is urgent.
  private static let urgency: Duration = .hours(24)
  /// The first look at what is over, and at a period without notifications.
  private static let firstQuietGap: Duration = .days(30)
  private static let quietGap: Duration = .days(90)
  /// After this time a line is left alone, until somebody buys again.
  private static let quietPatience: Duration = .days(400)
  /// When the refund of a purchase that does not renew is looked for, in days.
  private static let refundDays = [2, 7, 30, 60, 90]
  /// How soon a missed appointment is made good, at the latest.
  private static let amends: Duration = .minutes(1)
  private static let quietAmends: Duration = .hours(1)

  /// Says when Apple is asked about a line next.
  ///
  /// Planning again with the same knowledge gives the same moment, though nobody else's: so what
  /// ends at one moment is not asked about at one.
  ///
  /// - Parameters:
  ///   - line: The line as it is known.
  ///   - now: The appointment is later.
  /// - Returns: The appointment; nil: never again, unless something changes.
  package static func next(_ line: Line, after now: Timestamp) -> Appointment? {
    let appointments = appointments(of: line)
    let next = appointments.first { $0.at > now }
    guard line.isSubscription, let missed = appointments.last(where: { $0.at <= now }),
      line.lastPolledAt.map({ $0 < missed.at }) ?? true
    else { return next }
    // What it was to find is still unknown.
    let delay = missed.priority == quiet ? quietAmends : amends
    let soon = now + .milliseconds(1) + jitter(line.id, missed.at, upTo: delay)
    return next.flatMap { $0.at <= soon ? $0 : nil }
      ?? Appointment(at: soon, priority: missed.priority)
  }

  /// Every appointment of a line as long as nothing changes, in order.
  static func appointments(of line: Line) -> [Appointment] {
    guard line.isSubscription else { return refundLookups(of: line) }
    guard let end = line.periodEnd else { return [] }
    let period = max(end - line.periodStart, .zero)
    func moment(_ moment: Timestamp, _ priority: Int, jitter: Duration) -> Appointment {
      Appointment(at: moment + Self.jitter(line.id, moment, upTo: jitter), priority: priority)
    }
    let atEnd = min(.clockTolerance, period / 10)
    let quietOnes = quietLooks(from: end, until: end + quietPatience).map {
      moment($0, quiet, jitter: .hours(24))
    }

    if line.isRevoked {
      // A refund can be reversed; and what was refunded may go on all the same.
      return
        (quietLooks(from: line.periodStart, until: end + quietPatience).map {
          moment($0, quiet, jitter: .hours(24))
        } + [moment(end, usual, jitter: atEnd)]).sorted { $0.at < $1.at }
    }
    switch line.phase {
    case .expired: return quietOnes
    case .gracePeriod, .billingRetry:
      var looks = afterEnd(of: line, end: end, shortestGap: shortestGapOfTrouble).map {
        moment($0.moment, usual, jitter: $0.gap / 10)
      }
      if case .gracePeriod(let until) = line.phase, until > end {
        looks.append(moment(until, usual, jitter: .clockTolerance))
      }
      return (looks + quietOnes).sorted { $0.at < $1.at }
    case .undisturbed where !line.autoRenews:
      return [moment(end, usual, jitter: atEnd)] + quietOnes
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

  private static func refundLookups(of line: Line) -> [Appointment] {
    guard !line.hasNotifications, !line.isRevoked else { return [] }
    return refundDays.map { days in
      let moment = line.periodStart + .days(days)
      return Appointment(
        at: moment + jitter(line.id, moment, upTo: .hours(6)), priority: quiet)
    }
  }

  private static func quietLooks(from start: Timestamp, until limit: Timestamp) -> [Timestamp] {
    Array(stride(from: start + firstQuietGap, before: limit, by: quietGap))
  }

  /// The end, and moments after it in growing gaps, for as long as Apple tries to charge.
  private static func afterEnd(
    of line: Line, end: Timestamp, shortestGap: Duration
  ) -> [(moment: Timestamp, gap: Duration)] {
    let limit =
      end
      + (line.isCommitment ? AutoRenewal.commitmentBillingRetry : AutoRenewal.billingRetry)
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

  /// A part of a time that follows from the line and the moment, and looks like chance.
  private static func jitter(_ line: LineID, _ moment: Timestamp, upTo most: Duration) -> Duration {
    // FNV-1a over the line's name, then SplitMix64's last steps.
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
