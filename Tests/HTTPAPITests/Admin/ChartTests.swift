import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

struct ChartNumberTests {
  @Test(
    "Coordinates have two decimals at most, and are always numbers",
    arguments: [
      (0, "0"), (1, "1"), (12.5, "12.5"), (33.333333, "33.33"), (-3.3333, "-3.33"),
      (99.995, "100"), (0.004, "0"), (-0.006, "-0.01"), (0.05, "0.05"),
      (999_999.99, "999999.99"), (1_000_000, "0"), (-.infinity, "0"), (.nan, "0"),
    ] as [(Double, String)])
  func coordinates(number: Double, expected: String) {
    #expect(Coordinate.text(number) == expected)
  }

  // swift-format-ignore
  @Test(
    "Numbers for people, whole and for an axis",
    arguments: [
      (.count, 0, "0", "0"),
      (.count, 999, "999", "999"),
      (.count, 12_500, "12,500", "12.5k"),
      (.count, -1284, "−1,284", "−1.28k"),
      (.count, 1_284_567, "1,284,567", "1.28M"),
      (.count, 1_000_000_000_000_000, "1,000,000,000,000,000", "1,000T"),
      (.count, .max, "9,223,372,036,854,775,807", "9,223,372.03T"),
      (.count, .min, "−9,223,372,036,854,775,808", "−9,223,372.03T"),
      (.money(currency: "USD"), 0, "0.00 USD", "0"),
      (.money(currency: "USD"), 9990, "9.99 USD", "9.99"),
      (.money(currency: "USD"), 1_284_500, "1,284.50 USD", "1.28k"),
      // Each currency has its own digits, whatever the amount.
      (.money(currency: "USD"), -1_284_567, "−1,284.57 USD", "−1.28k"),
      (.money(currency: "USD"), 1_284_565, "1,284.57 USD", "1.28k"),
      (.money(currency: "USD"), -4, "0.00 USD", "0"),
      (.money(currency: "JPY"), 1_000_000, "1,000 JPY", "1k"),
      (.money(currency: "JPY"), 1_000_500, "1,001 JPY", "1k"),
      (.money(currency: "KWD"), 1_234_500, "1,234.500 KWD", "1.23k"),
      (.share, 0, "0.00%", "0%"),
      (.share, 325, "3.25%", "3.25%"),
      (.share, 10_000, "100.00%", "100%"),
      (.share, -5, "−0.05%", "−0.05%"),
    ] as [(ChartUnit, Int64, String, String)])
  func numbers(unit: ChartUnit, value: Int64, whole: String, short: String) {
    #expect(unit.text(value) == whole)
    #expect(unit.short(value) == short)
  }

  // swift-format-ignore
  @Test(
    "A scale ends at round numbers around its values",
    arguments: [
      ([], 0...4, 1),
      ([0], 0...4, 1),
      ([1], 0...4, 1),
      ([3], 0...4, 1),
      ([7, 12], 0...15, 5),
      ([523, -340], -400...600, 200),
      ([99], 0...100, 20),
      ([100], 0...100, 20),
      ([101], 0...150, 50),
      ([-5], -5...0, 1),
      ([-1], -1...3, 1),
      ([50_293], 0...60_000, 20_000),
      ([.max], 0...100_000_000_000_000_000, 20_000_000_000_000_000),
    ] as [([Int64], ClosedRange<Int64>, Int64)])
  func scales(values: [Int64], range: ClosedRange<Int64>, step: Int64) {
    let scale = ChartScale(values, height: 200, least: 4)
    #expect(scale.lowest...scale.highest == range)
    #expect(scale.step == step)
    #expect(scale.marks.first == range.lowerBound)
    #expect(scale.marks.last == range.upperBound)
    #expect(scale.y(range.lowerBound) == 200)
    #expect(scale.y(range.upperBound) == 0)
  }

  @Test func `zero is marked, and what lies beyond the edge is drawn at it`() {
    let scale = ChartScale([523, -340], height: 200, least: 4)
    let ticks = scale.ticks(in: .count)
    #expect(ticks.map(\.position) == ["200", "160", "120", "80", "40", "0"])
    #expect(ticks.map(\.label) == ["−400", "−200", "0", "200", "400", "600"])
    #expect(ticks.map(\.isZero) == [false, false, true, false, false, false])
    #expect(scale.baseline == 120)
    #expect(scale.y(10_000) == 0)
    #expect(scale.y(-10_000) == 200)
  }
}

struct CalendarTicksTests {
  private func moment(_ text: String) throws -> Timestamp {
    try #require(Timestamp(rfc3339: text + ":00Z"))
  }

  // swift-format-ignore
  @Test(
    "Marks stand at round times, as few as are legible",
    arguments: [
      ("2026-11-22T00:00", "2026-11-22T12:00", 0, ["22 Nov 2026", "03:00", "06:00", "09:00", "12:00"]),
      ("2026-11-22T00:30", "2026-11-23T12:00", 0, ["06:00", "12:00", "18:00", "23 Nov 2026", "", "12:00"]),
      ("2026-11-01T00:00", "2026-11-08T00:00", 0, ["1 Nov 2026", "", "3 Nov", "4 Nov", "5 Nov", "6 Nov", "7 Nov", "8 Nov"]),
      ("2026-08-25T00:00", "2026-11-22T00:00", 0, ["31 Aug 2026", "", "28 Sep", "12 Oct", "26 Oct", "9 Nov"]),
      ("2025-11-15T00:00", "2026-11-22T00:00", 0, ["Jan 2026", "Mar", "May", "Jul", "Sep", "Nov"]),
      ("2023-12-04T00:00", "2026-11-22T00:00", 0, ["Jan 2024", "Jul", "Jan 2025", "Jul", "Jan 2026", "Jul"]),
      ("1900-01-01T00:00", "2026-01-01T00:00", 0, ["1900", "1950", "2000"]),
      // Days have no hours.
      ("2026-11-01T00:00", "2026-11-04T00:00", 1, ["1 Nov 2026", "2 Nov", "3 Nov", "4 Nov"]),
      ("2026-09-01T00:00", "2026-11-01T00:00", 28, ["Sep 2026", "Oct", "Nov"]),
      ("2026-09-01T00:00", "2026-11-01T00:00", 30, ["Sep 2026", "Oct", "Nov"]),
      ("2026-07-01T00:00", "2026-08-01T00:00", 31, ["Jul 2026", "Aug"]),
      // No time passes, or too little.
      ("2026-11-22T00:00", "2026-11-22T00:00", 0, []),
      ("2026-11-22T10:05", "2026-11-22T10:07", 0, []),
    ] as [(String, String, Int, [String])])
  func marks(from: String, until: String, finestDays: Int, expected: [String]) throws {
    let ticks = CalendarTicks(
      from: try moment(from), until: try moment(until), most: 8, finest: .days(finestDays))
    #expect(ticks.marks.map(\.label) == expected)
  }

  @Test func `two weeks begin on Mondays`() throws {
    let ticks = CalendarTicks(
      from: try moment("2026-08-25T00:00"), until: try moment("2026-11-22T00:00"), most: 8)
    #expect(try ticks.marks.first?.moment == moment("2026-08-31T00:00"))
    #expect(try ticks.marks.last?.moment == moment("2026-11-09T00:00"))
  }

  @Test func `labels at the edges stay inside, and a phone has only those that fit`() {
    func ticks(_ shares: [Double], room: (Double, Double) = (0, 0)) -> [ChartTick] {
      ChartTick.across(shares.map { (share: $0, label: "22 Nov 2026") }, room: room)
    }
    let five = ticks([0.02, 0.25, 0.5, 0.75, 0.99])
    #expect(five.map(\.position) == ["2", "25", "50", "75", "99"])
    #expect(five.map(\.anchor) == ["start", "middle", "middle", "middle", "end"])
    #expect(five.map(\.isMinor) == [false, true, false, true, false])
    for (shares, isMinor) in [([0.1, 0.4, 0.7], true), ([0.05, 0.5, 0.9], false)] {
      #expect(ticks(shares)[1].isMinor == isMinor)
    }
    // A label that has room beside the plot is centred below its mark.
    #expect(ticks([0.02, 0.99], room: (48, 40)).map(\.anchor) == ["middle", "middle"])
  }
}
