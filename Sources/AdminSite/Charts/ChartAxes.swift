import Foundation
import Reports
import Subscriptions

/// The vertical axis of a chart, between round numbers.
///
/// Values are integers of small units, so that the steps between the marks are exact.
struct ChartScale: Hashable, Sendable {
  /// The lowest and the highest mark.
  let lowest: Int64
  let highest: Int64
  /// Between two marks: 1, 2 or 5 times a power of ten.
  let step: Int64
  /// In pixels.
  let height: Int

  /// Larger values are drawn at the edge.
  private static let limit: Int64 = 100_000_000_000_000_000

  /// Limits a value, so that no sum overflows.
  static func clamped(_ value: Int64) -> Int64 { min(max(value, -limit), limit) }

  /// Includes zero, and spans at least `least`.
  init(_ values: [Int64], height: Int, least: Int64) {
    let low = Self.clamped(min(values.min() ?? 0, 0))
    let high = max(Self.clamped(max(values.max() ?? 0, 0)), low + least)
    step = Self.step(for: high - low)
    self.height = height
    lowest = Self.floor(low, to: step)
    highest = max(-Self.floor(-high, to: step), lowest + step)
  }

  /// The smallest round step of which five cover the span.
  private static func step(for span: Int64) -> Int64 {
    var power: Int64 = 1
    while true {
      for factor: Int64 in [1, 2, 5] where power * factor * 5 >= span { return power * factor }
      power *= 10
    }
  }

  private static func floor(_ value: Int64, to step: Int64) -> Int64 {
    let rest = value % step
    return value - rest - (rest < 0 ? step : 0)
  }

  /// From the bottom to the top.
  var marks: [Int64] { Array(stride(from: lowest, through: highest, by: Int64.Stride(step))) }

  /// In pixels from the top.
  func y(_ value: Int64) -> Double {
    let inside = min(max(value, lowest), highest)
    return Double(height) * Double(highest - inside) / Double(highest - lowest)
  }

  /// The start of areas and bars: zero, or the nearest edge.
  var baseline: Double { y(0) }

  func ticks(in unit: ChartUnit) -> [ChartTick] {
    marks.map { mark in
      ChartTick(
        position: Coordinate.text(y(mark)), label: unit.short(mark), anchor: "end",
        isZero: mark == 0)
    }
  }
}

/// The unit of a chart's numbers, and their format.
enum ChartUnit: Hashable, Sendable {
  case count
  /// Milliunits of a currency.
  case money(currency: String)
  /// Hundredths of a percent.
  case share

  /// An axis of less would have one mark beside zero, or marks that look alike.
  var leastSpan: Int64 {
    switch self {
    case .count: 4
    case .money: 4000
    case .share: 400
    }
  }

  /// Writes a value, as in `1,284`, `1,284.50 USD` (rounded to the currency's own digits) or `3.25%`.
  func text(_ value: Int64) -> String {
    guard case .money(let currency) = self else { return number(value) }
    return number(value) + " " + currency
  }

  /// As ``text(_:)`` without the currency.
  func number(_ value: Int64) -> String {
    switch self {
    case .count: return Self.text(Decimal(value), decimals: 0...0)
    case .money(let currency):
      let digits = ReportValue.fractionDigits(of: currency)
      return Self.text(
        Decimal(value) / 1000, decimals: digits...digits, rounded: .toNearestOrAwayFromZero)
    case .share: return Self.text(Decimal(value) / 100, decimals: 2...2) + "%"
    }
  }

  /// An amount with all of its digits, as in `962.457 USD`; nil if ``text(_:)`` says the same.
  static func exact(_ milliunits: Int64, currency: String) -> String? {
    milliunits % [1000, 100, 10, 1][ReportValue.fractionDigits(of: currency)] == 0
      ? nil : text(Decimal(milliunits) / 1000, decimals: 3...3) + " " + currency
  }

  /// Writes a value for an axis, as in `1.2k`, without the currency.
  func short(_ value: Int64) -> String {
    switch self {
    case .count: Self.short(Decimal(value))
    case .money: Self.short(Decimal(value) / 1000)
    case .share: Self.text(Decimal(value) / 100, decimals: 0...2) + "%"
    }
  }

  /// Writes a number in thousands, millions and so on.
  private static func short(_ number: Decimal) -> String {
    var (number, suffix) = (number, "")
    for next in ["k", "M", "G", "T"] where number.magnitude >= 1000 {
      (number, suffix) = (number / 1000, next)
    }
    return text(number, decimals: 0...2) + suffix
  }

  /// Writes a number with thousands separators.
  private static func text(
    _ number: Decimal, decimals: ClosedRange<Int>,
    rounded rule: FloatingPointRoundingRule = .towardZero
  ) -> String {
    let text = number.formatted(
      .number.locale(english).precision(.fractionLength(decimals)).rounded(rule: rule))
    let isZero = !text.contains { "123456789".contains($0) }
    return text.replacing("-", with: isZero ? "" : "−")
  }

  private static let english = Locale(identifier: "en_US")
}

/// The marks of a time axis: midnights, first days of months, or full hours.
///
/// Times are read as UTC; for another time zone the caller passes wall-clock times.
struct CalendarTicks: Sendable {
  /// In order, with labels.
  let marks: [(moment: Timestamp, label: String)]

  /// At most that many marks, none closer than the finest distance: days have no hours.
  init(from: Timestamp, until: Timestamp, most: Int, finest: Duration = .zero) {
    var marks: [(moment: Timestamp, label: String)] = []
    for step in Step.all where from < until && marks.isEmpty && step.longest >= finest {
      let moments = step.marks(from: from, until: until, most: most)
      let first = moments.firstIndex { $0.dayAndTime.millisecondOfDay == 0 }
      marks = moments.enumerated().map { index, moment in
        // With more days there is no room for the label after the one with the year.
        let isCovered = moments.count > Self.fewDays && step.isOfDays && index - 1 == first
        return (moment, isCovered ? "" : step.label(moment, isFirst: index == first ?? 0))
      }
    }
    self.marks = marks
  }

  private static let fewDays = 5

  private enum Step {
    /// Days or parts of one, counted from a moment.
    case time(Duration, from: Timestamp)
    case months(Int)

    /// Weeks begin on Mondays.
    private static let monday = Timestamp(CalendarDate(year: 1970, month: 1, day: 5))
    private static let epoch = Timestamp(milliseconds: 0)

    /// From the finest to the coarsest.
    static let all: [Step] =
      ([.hours(1), .hours(3), .hours(6), .hours(12), .days(1), .days(2)] as [Duration])
      .map { .time($0, from: epoch) } + [7, 14].map { .time(.days($0), from: monday) }
      + [1, 2, 3, 6, 12, 24, 60, 120, 600, 1200].map(months)

    /// The longest: most months have 31 days.
    var longest: Duration {
      switch self {
      case .time(let length, _): length
      case .months(let months): .days(31 * months)
      }
    }

    /// Empty if there are more than the limit.
    func marks(from: Timestamp, until: Timestamp, most: Int) -> [Timestamp] {
      let first = number(of: from)
      let marks = (first...first + most + 1).map(mark).filter { from <= $0 && $0 <= until }
      return marks.count > most ? [] : marks
    }

    /// The number of the last mark that is not after a moment.
    private func number(of moment: Timestamp) -> Int {
      switch self {
      case .time(let length, let origin):
        Int(((moment - origin) / length).rounded(.down))
      case .months(let months):
        (moment.dayAndTime.date.year * 12 + moment.dayAndTime.date.month - 1) / months
      }
    }

    private func mark(_ number: Int) -> Timestamp {
      switch self {
      case .time(let length, let origin): return origin + length * number
      case .months(let months):
        let month = number * months
        return Timestamp(CalendarDate(year: month / 12, month: month % 12 + 1, day: 1))
      }
    }

    var isOfDays: Bool {
      if case .time = self { true } else { false }
    }

    func label(_ moment: Timestamp, isFirst: Bool) -> String {
      let (date, time) = moment.dayAndTime
      switch self {
      case .time where time > 0:
        let hour = time / 3_600_000
        return (isFirst ? "\(date.day) \(date.monthName) " : "")
          + (hour < 10 ? "0" : "") + "\(hour):00"
      case .time:
        return "\(date.day) \(date.monthName)" + (isFirst ? " \(date.year)" : "")
      case .months(let months) where months.isMultiple(of: 12): return "\(date.year)"
      case .months: return date.monthName + (isFirst || date.month == 1 ? " \(date.year)" : "")
      }
    }
  }
}

extension ChartTick {
  /// The least width of a plot on a screen of 1,280 pixels (two are side by side) and of 390.
  private static let (wide, narrow) = (400.0, 260.0)
  /// Of a character, on average.
  private static let letterWidth = 6.2
  private static let gap = 6.0

  /// Marks at shares of an axis: a label is centred where it fits, and hidden on a phone where it
  /// would cover the one before.
  ///
  /// - Parameter room: What labels may use beside the plot, in pixels.
  static func across(
    _ marks: [(share: Double, label: String)], room: (left: Double, right: Double) = (0, 0)
  ) -> [ChartTick] {
    func extent(_ mark: (share: Double, label: String), in width: Double)
      -> (anchor: String, start: Double, end: Double)
    {
      let (x, length) = (mark.share * width, Double(mark.label.count) * letterWidth)
      if x - length / 2 < -room.left { return ("start", x, x + length) }
      if x + length / 2 > width + room.right { return ("end", x - length, x) }
      return ("middle", x - length / 2, x + length / 2)
    }
    var last = -Double.infinity
    return marks.map { mark in
      let phone = extent(mark, in: narrow)
      let isCovered = phone.start < last
      if !isCovered, !mark.label.isEmpty { last = phone.end + gap }
      return ChartTick(
        position: Coordinate.text(mark.share * 100), label: mark.label,
        anchor: extent(mark, in: wide).anchor, narrowAnchor: phone.anchor, isMinor: isCovered)
    }
  }
}
