import Foundation
import Testing

@testable import Subscriptions

/// When Apple is asked about a line next.
struct PollScheduleTests {
  /// A month that ends on day 30, with whatever is said otherwise.
  private static func line(
    days: Double = 30, autoRenews: Bool = true, phase: RenewalStatus.Phase = .undisturbed,
    isRevoked: Bool = false, isCommitment: Bool = false, polled: Double? = 0,
    hasNotifications: Bool = true
  ) -> PollSchedule.Subject {
    PollSchedule.Subject(
      id: mainKey, isSubscription: true, periodStart: day(30 - days), periodEnd: day(30),
      autoRenews: autoRenews, phase: phase, isRevoked: isRevoked, isCommitment: isCommitment,
      lastPolledAt: polled.map { day($0) }, hasNotifications: hasNotifications)
  }

  private static func bought(
    polled: Double? = nil, isRevoked: Bool = false, hasNotifications: Bool = false
  ) -> PollSchedule.Subject {
    PollSchedule.Subject(
      id: mainKey, isSubscription: false, periodStart: day(30), periodEnd: nil,
      isRevoked: isRevoked, lastPolledAt: polled.map { day($0) },
      hasNotifications: hasNotifications)
  }

  /// An appointment as the table has it, in days of the story; `within` is how late it may be.
  struct Expected: Sendable {
    var day: Double
    var within: Duration
    var priority: Int
  }

  private static func on(_ day: Double, _ within: Duration, _ priority: Int) -> Expected {
    Expected(day: day, within: within, priority: priority)
  }

  private static let hour = 1.0 / 24
  private static let minute = 1.0 / 1440

  // swift-format-ignore
  static let rows: [(String, PollSchedule.Subject, now: Double, Expected?)] = [
    // In the period: before Apple charges, and at the end.
    ("a new month",                      line(),                                      0,    on(30 - 26 * hour, .hours(1), 1)),
    ("a new year",                       line(days: 365),                             0,    on(30 - 26 * hour, .hours(1), 1)),
    ("a year without notifications",     line(days: 365, polled: -335, hasNotifications: false), -335, on(-305, .hours(1), 2)),
    ("the same, later",                  line(days: 365, polled: -1, hasNotifications: false),   0,    on(25, .hours(1), 2)),
    ("the last of its looks",            line(days: 365, polled: 26, hasNotifications: false),   26,   on(30 - 26 * hour, .hours(1), 1)),
    ("a day",                            line(days: 1, polled: 29),                   29,   on(30 - 0.25, .minutes(36), 1)),
    ("seen before the charge",           line(polled: 29),                            29,   on(30, .minutes(5), 0)),
    ("not seen before the charge",       line(polled: 20),                            29.5, on(29.5, .minutes(1), 1)),
    ("not seen, and the end is near",    line(polled: nil),                           30 - minute / 60, on(30 - minute / 60, .minutes(5), 1)),
    // The end has come, and Apple has not said how it went on.
    ("just after the end",               line(polled: 30.005),                        30.005, on(30 + 10 * minute, .minutes(1), 0)),
    ("not polled at the end",            line(polled: 29),                            30.1, on(30.1, .minutes(1), 0)),
    ("four hours later",                 line(polled: 30 + 4 * hour),                 30 + 4 * hour, on(30 + 4 * hour, .hours(1.2), 0)),
    ("two days later",                   line(polled: 32),                            32,   on(32, .hours(14), 1)),
    ("twenty days later",                line(polled: 50),                            50,   on(50, .hours(27), 1)),
    ("the last day of that",             line(polled: 89.9),                          89.9, on(150, .hours(24), 2)),
    ("on a commitment it goes on",       line(isCommitment: true, polled: 89.9),      89.9, on(89.9, .hours(27), 1)),
    // Apple could not charge.
    ("grace",                            line(phase: .gracePeriod(until: day(46)), polled: 30), 30, on(30, .hours(1), 1)),
    ("in grace, an hour later",          line(phase: .gracePeriod(until: day(46)), polled: 30 + 1.15 * hour), 30 + 1.2 * hour, on(30 + 2 * hour, .minutes(6), 1)),
    ("the end of grace",                 line(phase: .gracePeriod(until: day(46)), polled: 45.99), 45.995, on(46, .minutes(5), 1)),
    ("billing retry",                    line(phase: .billingRetry, polled: 40),      40,   on(40, .hours(27), 1)),
    ("the end of billing retry",         line(phase: .billingRetry, polled: 91),      91,   on(150, .hours(24), 2)),
    // Nothing is expected.
    ("off, in the period",               line(autoRenews: false, polled: 10),         10,   on(30, .minutes(5), 1)),
    ("off, after the end",               line(autoRenews: false, polled: 31),         31,   on(60, .hours(24), 2)),
    ("expired",                          line(phase: .expired, polled: 31),           31,   on(60, .hours(24), 2)),
    ("expired for long",                 line(phase: .expired, polled: 62),           62,   on(150, .hours(24), 2)),
    ("expired, and not polled",          line(phase: .expired, polled: 31),           100,  on(100, .hours(1), 2)),
    ("the last look",                    line(phase: .expired, polled: 400),          400,  on(420, .hours(24), 2)),
    ("over",                             line(phase: .expired, polled: 422),          422,  nil),
    ("refunded",                         line(isRevoked: true, polled: 10),           10,   on(30, .hours(24), 1)),
    ("refunded, after the end",          line(isRevoked: true, polled: 32),           32,   on(120, .hours(24), 2)),
    // Products that don't renew: polled for refunds only, where notifications don't report them.
    ("bought",                           bought(),                                    30,   on(32, .hours(6), 2)),
    ("bought, three days ago",           bought(polled: 32.3),                        33,   on(37, .hours(6), 2)),
    ("bought, and not polled",           bought(),                                    50,   on(60, .hours(6), 2)),
    ("bought a hundred days ago",        bought(),                                    130,  nil),
    ("bought, with notifications",       bought(hasNotifications: true),              30,   nil),
    ("bought and refunded",              bought(isRevoked: true),                     30,   nil),
  ]

  @Test(arguments: rows)
  func appointments(
    name: String, line: PollSchedule.Subject, now: Double, expected: Expected?
  ) throws {
    let next = PollSchedule.next(line, after: day(now))
    guard let expected else {
      #expect(next == nil)
      return
    }
    let appointment = try #require(next)
    #expect(appointment.priority == expected.priority)
    #expect(appointment.at > day(now))
    let lateness = appointment.at - day(expected.day)
    #expect(
      (.zero...(expected.within + .milliseconds(1))).contains(lateness), "\(lateness) late")
  }

  @Test("A subscription without an end is never asked about")
  func withoutEnd() {
    var line = Self.line()
    line.periodEnd = nil
    #expect(PollSchedule.next(line, after: day(0)) == nil)
  }

  @Test("What ends at one moment is not asked about at one")
  func jitter() {
    let moments = (0..<1000).compactMap { number -> Timestamp? in
      var line = Self.line(polled: 29)
      line.id = OriginalTransactionKey(.production, OriginalTransactionID("\(2_000_000 + number)"))
      return PollSchedule.next(line, after: day(29))?.at
    }
    let perSecond = Dictionary(grouping: moments) { $0.milliseconds / 1000 }
    #expect(moments.count == 1000)
    #expect(perSecond.values.allSatisfy { $0.count < 20 })
    #expect(perSecond.count > 200)
  }

  // MARK: Properties

  private static func randomLine(_ generator: inout SeededGenerator) -> PollSchedule.Subject {
    let lengths = [0.002, 0.0035, 1, 7, 30, 90, 365, 366]
    let (start, length) = (Double(generator.number(0...500)), generator.pick(from: lengths))
    let phases: [RenewalStatus.Phase] = [
      .undisturbed, .undisturbed, .expired, .billingRetry,
      .gracePeriod(until: day(start + length + Double(generator.number(-3...28)))),
    ]
    return PollSchedule.Subject(
      id: OriginalTransactionKey(
        generator.pick(.production, .sandbox),
        OriginalTransactionID("\(generator.number(1...99_999_999))")),
      isSubscription: !generator.once(in: 6), periodStart: day(start),
      periodEnd: generator.once(in: 10) ? nil : day(start + length),
      autoRenews: !generator.once(in: 3), phase: generator.pick(from: phases),
      isRevoked: generator.once(in: 5), isCommitment: generator.once(in: 5),
      lastPolledAt: generator.once(in: 3) ? nil : day(start + length * Double.random(in: 0...2)),
      hasNotifications: generator.once(in: 2))
  }

  @Test("The same knowledge gives the same appointment, after now, until it is there")
  func stability() {
    forAll("Planning again changes nothing", iterations: 800) { generator in
      var line = Self.randomLine(&generator)
      let now = line.periodStart + .hours(generator.number(-100...12_000))
      line.lastPolledAt = now
      guard let next = PollSchedule.next(line, after: now) else { return nil }
      if next.at <= now { return "\(next) is not after \(now)" }
      if !(0...2).contains(next.priority) { return "\(next)" }
      if PollSchedule.next(line, after: now) != next { return "another one" }
      let between =
        now
        + .milliseconds(
          Int64.random(in: 0..<(next.at - now).inMilliseconds, using: &generator))
      let again = PollSchedule.next(line, after: between)
      return again == next ? nil : "\(String(describing: again)) is not \(next) of \(line)"
    }
  }

  @Test("Keeping every appointment leads to a last one, and none is repeated")
  func wholePlan() {
    forAll("A plan comes to its end", iterations: 250) { generator in
      var line = Self.randomLine(&generator)
      var now = line.periodStart
      var kept: [PollSchedule.Appointment] = []
      while let next = PollSchedule.next(line, after: now) {
        if next.at <= now { return "\(next) is not after \(now) for \(line)" }
        kept.append(next)
        // A worker comes a little later, and Apple takes its time.
        now = next.at + .milliseconds(generator.number(0...20_000))
        line.lastPolledAt = now
        if kept.count > 250 { return "no end of \(line)" }
      }
      guard line.isSubscription, let end = line.periodEnd else {
        return kept.count <= 5 ? nil : "\(kept.count) look-ups"
      }
      if now > end + .days(402) { return "the last look is at \(now)" }
      return kept.isEmpty ? "never asked about \(line)" : nil
    }
  }

  @Test("However long a worker was away, a subscription's missed appointment is made good soon")
  func amends() {
    forAll("A missed appointment is made good", iterations: 500) { generator in
      var line = Self.randomLine(&generator)
      line.isSubscription = true
      line.lastPolledAt = line.periodStart
      let now = line.periodStart + .hours(generator.number(0...12_000))
      let missed = PollSchedule.appointments(of: line).contains {
        $0.at <= now && $0.at > line.periodStart
      }
      guard missed else { return nil }
      guard let next = PollSchedule.next(line, after: now) else { return "it is forgotten" }
      return next.at <= now + .hours(1) + ms ? nil : "only at \(next.at)"
    }
  }
}

extension Duration {
  fileprivate static func hours(_ hours: Double) -> Duration { .seconds(hours * 3600) }
}
