import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

struct CalendarTicksTests {
  private func moment(_ text: String) throws -> Timestamp {
    try #require(Timestamp(rfc3339: text + ":00Z"))
  }

  // swift-format-ignore
  @Test(
    "Marks stand at round times, as few as are legible",
    arguments: [
      ("2026-11-22T00:00", "2026-11-22T12:00", 0, ["22 Nov 2026", "03:00", "06:00", "09:00", "12:00"]),
      ("2026-11-22T00:30", "2026-11-23T12:00", 0, ["06:00", "12:00", "18:00", "23 Nov", "06:00", "12:00"]),
      ("2026-11-01T00:00", "2026-11-08T00:00", 0, ["1 Nov", "2 Nov", "3 Nov", "4 Nov", "5 Nov", "6 Nov", "7 Nov", "8 Nov"]),
      ("2026-08-25T00:00", "2026-11-22T00:00", 0, ["31 Aug", "14 Sep", "28 Sep", "12 Oct", "26 Oct", "9 Nov"]),
      ("2025-11-15T00:00", "2026-11-22T00:00", 0, ["Jan 2026", "Mar", "May", "Jul", "Sep", "Nov"]),
      ("2023-12-04T00:00", "2026-11-22T00:00", 0, ["Jan 2024", "Jul", "Jan 2025", "Jul", "Jan 2026", "Jul"]),
      ("1900-01-01T00:00", "2026-01-01T00:00", 0, ["1900", "1950", "2000"]),
      // Days have no hours.
      ("2026-11-01T00:00", "2026-11-04T00:00", 1, ["1 Nov 2026", "2 Nov", "3 Nov", "4 Nov"]),
      ("2026-09-01T00:00", "2026-11-01T00:00", 28, ["Sep 2026", "Oct", "Nov"]),
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

  @Test func `labels at the edges stay inside, and every other one can be left out`() {
    let marks = [0, 0.25, 0.5, 0.75, 1].map { (share: $0, label: "") }
    let ticks = ChartTick.across(marks)
    #expect(ticks.map(\.position) == ["0", "25", "50", "75", "100"])
    #expect(ticks.map(\.anchor) == ["start", "middle", "middle", "middle", "end"])
    #expect(ticks.map(\.isMinor) == [false, true, false, true, false])
    #expect(ChartTick.across(Array(marks.dropLast())).allSatisfy { !$0.isMinor })
  }
}
