import Subscriptions

/// The marks of an axis of time: at midnights, first days of months, or full hours.
///
/// Moments are read in UTC; for another time zone the caller gives wall-clock times.
struct CalendarTicks: Sendable {
  /// The moments in order, each with its words.
  let marks: [(moment: Timestamp, label: String)]

  /// - Parameters:
  ///   - from: The axis's beginning.
  ///   - until: Its end.
  ///   - most: So many marks at most.
  ///   - finest: No two marks are nearer than this: what is counted by the day has no hours.
  init(from: Timestamp, until: Timestamp, most: Int, finest: Duration = .zero) {
    guard from < until, most > 0 else {
      marks = []
      return
    }
    let step = Step.all.first {
      $0.shortest >= finest && $0.marks(from: from, until: until, most: most) != nil
    }
    let moments = step?.marks(from: from, until: until, most: most) ?? []
    marks = moments.enumerated().map { index, moment in
      let label = step?.label(
        moment, isFirst: index == 0, hasRoom: moments.count <= Self.fewDays)
      return (moment, label ?? "")
    }
  }

  /// With more days than these their year has no room beside the next one.
  private static let fewDays = 5

  private enum Step {
    case hours(Int64)
    case days(Int)
    case months(Int)

    /// From the finest to the coarsest; a thousand years are more than enough.
    static let all: [Step] =
      [1, 3, 6, 12].map(hours) + [1, 2, 7, 14].map(days)
      + [1, 2, 3, 6, 12, 24, 60, 120, 600, 1200].map(months)

    /// February has 28 days.
    var shortest: Duration {
      switch self {
      case .hours(let hours): .hours(Int(hours))
      case .days(let days): .days(days)
      case .months(let months): .days(28 * months)
      }
    }

    /// Nil: there are more than so many, or none.
    func marks(from: Timestamp, until: Timestamp, most: Int) -> [Timestamp]? {
      var marks: [Timestamp] = []
      var mark = first(from: from)
      while mark <= until {
        guard marks.count < most else { return nil }
        marks.append(mark)
        mark = next(after: mark)
      }
      return marks.isEmpty ? nil : marks
    }

    private func first(from moment: Timestamp) -> Timestamp {
      let (date, time) = moment.dayAndTime
      switch self {
      case .hours(let hours):
        let step = hours * 3_600_000
        return Timestamp(date, millisecondOfDay: (time + step - 1) / step * step)
      case .days(let days):
        let day = date.daysSince1970 + (time > 0 ? 1 : 0)
        // Whole weeks begin on Mondays; 1970-01-05 was one.
        let offset = days.isMultiple(of: 7) ? 4 : 0
        let rest = ((day - offset) % days + days) % days
        return Timestamp(CalendarDate(daysSince1970: rest == 0 ? day : day + days - rest))
      case .months(let months):
        let isBegun = date.day > 1 || time > 0
        let month = date.year * 12 + date.month - 1 + (isBegun ? 1 : 0)
        let aligned = (month + months - 1) / months * months
        return Timestamp(CalendarDate(year: aligned / 12, month: aligned % 12 + 1, day: 1))
      }
    }

    private func next(after moment: Timestamp) -> Timestamp {
      switch self {
      case .hours(let hours): moment + .hours(Int(hours))
      case .days(let days): moment + .days(days)
      case .months(let months): Timestamp(moment.dayAndTime.date.adding(months: months))
      }
    }

    func label(_ moment: Timestamp, isFirst: Bool, hasRoom: Bool) -> String {
      let (date, time) = moment.dayAndTime
      switch self {
      case .hours where time > 0: return CalendarTicks.hour(time)
      case .hours, .days:
        return "\(date.day) \(date.monthName)" + (isFirst && hasRoom ? " \(date.year)" : "")
      case .months(let months) where months.isMultiple(of: 12): return "\(date.year)"
      case .months: return date.monthName + (isFirst || date.month == 1 ? " \(date.year)" : "")
      }
    }
  }

  private static func hour(_ millisecondOfDay: Int64) -> String {
    let hour = millisecondOfDay / 3_600_000
    return (hour < 10 ? "0" : "") + "\(hour):00"
  }
}

extension ChartTick {
  /// Marks at shares of an axis, the outermost labels kept inside, every other one left out on a
  /// phone where there are many.
  static func across(_ marks: [(share: Double, label: String)]) -> [ChartTick] {
    marks.enumerated().map { index, mark in
      let anchor = mark.share < 0.06 ? "start" : mark.share > 0.94 ? "end" : "middle"
      return ChartTick(
        position: Coordinate.text(mark.share * 100), label: mark.label, anchor: anchor,
        isMinor: marks.count > 4 && !index.isMultiple(of: 2))
    }
  }
}
