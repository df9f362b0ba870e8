import Foundation
import Subscriptions
import Testing

struct TimestampTests {
  // swift-format-ignore
  static let texts: [(String, Int64)] = [
    ("1970-01-01T00:00:00.000Z",       0),
    ("2026-11-21T09:30:00.000Z",       1_795_253_400_000),
    ("2026-11-21T09:30:00Z",           1_795_253_400_000),
    ("2026-11-21t09:30:00z",           1_795_253_400_000),
    ("2026-11-21 09:30:00Z",           1_795_253_400_000),
    ("2026-11-21T10:30:00+01:00",      1_795_253_400_000),
    ("2026-11-21T00:00:00-09:30",      1_795_253_400_000),
    ("2026-11-21T09:30:00.5Z",         1_795_253_400_500),
    ("2026-11-21T09:30:00.05Z",        1_795_253_400_050),
    ("2026-11-21T09:30:00.123456789Z", 1_795_253_400_123),
    ("2000-02-29T00:00:00Z",           951_782_400_000),
    ("1969-12-31T23:59:59.999Z",       -1),
    ("2016-12-31T23:59:60Z",           1_483_228_800_000),
    ("0001-01-01T00:00:00Z",           -62_135_596_800_000),
    ("0000-01-01T00:00:00Z",           -62_167_219_200_000),
    ("0000-01-01T00:00:00-01:00",      -62_167_215_600_000),
    ("9999-12-31T23:59:59.999Z",       253_402_300_799_999),
    ("9999-12-31T23:59:59+01:00",      253_402_297_199_000),
  ]

  @Test(arguments: texts)
  func readsRFC3339(_ text: String, _ milliseconds: Int64) {
    #expect(Timestamp(rfc3339: text)?.milliseconds == milliseconds)
  }

  @Test(arguments: [
    "", "2026-11-21", "2026-11-21T09:30:00", "2026-11-21T09:30Z", "2026-11-21T09:30:00.Z",
    "2026-11-21T24:00:00Z", "2026-11-21T09:60:00Z", "2026-11-21T09:30:61Z", "2026-13-01T00:00:00Z",
    "2026-00-01T00:00:00Z", "2026-04-31T00:00:00Z", "2026-02-29T00:00:00Z", "1900-02-29T00:00:00Z",
    "2026-11-00T00:00:00Z", "26-11-21T09:30:00Z", "2026-11-21T09:30:00+01",
    "2026-11-21T09:30:00+24:00",
    "2026-11-21T09:30:00+01:60", "2026-11-21T09:30:00ZZ", " 2026-11-21T09:30:00Z",
    "2026/11/21T09:30:00Z",
    "0000-01-01T00:00:00+01:00", "0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59-01:00",
    "9999-12-31T23:59:60Z",
    "２026-11-21T09:30:00Z", "-026-11-21T09:30:00Z", "2026-11-21X09:30:00Z",
  ])
  func rejects(_ text: String) {
    #expect(Timestamp(rfc3339: text) == nil)
  }

  @Test func writesWhatItReads() {
    forAll("RFC 3339 there and back", iterations: 2_000) { generator in
      let range = Timestamp.writable
      let milliseconds = Int64.random(
        in: range.lowerBound.milliseconds...range.upperBound.milliseconds, using: &generator)
      let timestamp = Timestamp(milliseconds: milliseconds)
      let text = timestamp.description
      return Timestamp(rfc3339: text) == timestamp && text.utf8.count == 24 ? nil : text
    }
  }

  @Test func laterTextsAreLaterMoments() {
    #expect(day(0).description == "2026-01-01T00:00:00.000Z")
    #expect(day(31.5, ms).description == "2026-02-01T12:00:00.001Z")
    #expect(Timestamp(milliseconds: -1).description == "1969-12-31T23:59:59.999Z")
  }

  @Test func differencesAreExact() {
    #expect(day(1) - day(0) == .days(1))
    #expect((day(0) - day(1)).inMilliseconds == -86_400_000)
    #expect(day(0) + .hours(24) - .minutes(1440) == day(0))
    #expect(Duration.microseconds(1999).inMilliseconds == 1)
    #expect(Duration.microseconds(-1999).inMilliseconds == -1)
  }

  @Test(arguments: [(60, true), (-60, true), (60.001, false), (-60.001, false), (0, true)])
  func tolerance(_ seconds: Double, _ isWithin: Bool) {
    #expect(Duration.seconds(seconds).isWithin(.seconds(60)) == isWithin)
  }

  @Test func isAnIntegerInJSON() throws {
    let data = try JSONEncoder().encode([day(0)])
    #expect(String(decoding: data, as: UTF8.self) == "[1767225600000]")
    #expect(try JSONDecoder().decode([Timestamp].self, from: data) == [day(0)])
  }
}

struct CalendarTests {
  @Test func everyDayOf800YearsFollowsTheOneBefore() {
    var date = CalendarDate(year: 1600, month: 1, day: 1)
    var days = date.daysSince1970
    while date.year < 2400 {
      var next = CalendarDate(year: date.year, month: date.month, day: date.day + 1)
      if next.day > CalendarDate.daysInMonth(date.month, ofYear: date.year) {
        next = CalendarDate(
          year: date.month == 12 ? date.year + 1 : date.year,
          month: date.month == 12 ? 1 : date.month + 1, day: 1)
      }
      days += 1
      if next.daysSince1970 != days || CalendarDate(daysSince1970: days) != next {
        Issue.record("\(next)")
        return
      }
      date = next
    }
    #expect(days - CalendarDate(year: 2000, month: 1, day: 1).daysSince1970 == 146_097)
  }

  // swift-format-ignore
  @Test(arguments: [
    ((2026, 1, 31),  1,   (2026, 2, 28)),
    ((2028, 1, 31),  1,   (2028, 2, 29)),
    ((2026, 1, 31),  2,   (2026, 3, 31)),
    ((2026, 11, 30), 3,   (2027, 2, 28)),
    ((2026, 12, 15), 1,   (2027, 1, 15)),
    ((2026, 1, 15),  12,  (2027, 1, 15)),
    ((2028, 2, 29),  12,  (2029, 2, 28)),
    ((2026, 3, 31),  -1,  (2026, 2, 28)),
    ((2026, 1, 15),  -13, (2024, 12, 15)),
    ((2026, 1, 15),  0,   (2026, 1, 15)),
  ])
  func addsMonths(_ from: (Int, Int, Int), _ months: Int, _ to: (Int, Int, Int)) {
    let date = CalendarDate(year: from.0, month: from.1, day: from.2).adding(months: months)
    #expect(date == CalendarDate(year: to.0, month: to.1, day: to.2))
  }

  // swift-format-ignore
  static let periods: [(String, Int, Int, String)] = [
    ("P1M",     1,  0,  "P1M"),
    ("P1Y",     12, 0,  "P1Y"),
    ("P18M",    18, 0,  "P1Y6M"),
    ("P1W",     0,  7,  "P7D"),
    ("P3D",     0,  3,  "P3D"),
    ("P1Y2M3D", 14, 3,  "P1Y2M3D"),
    ("P1M1W1D", 1,  8,  "P1M8D"),
    ("P100Y",   1200, 0, "P100Y"),
    ("P36525D", 0, 36_525, "P36525D"),
    ("P99Y52W", 1188, 364, "P99Y364D"),
  ]

  @Test(arguments: periods)
  func readsAPeriod(_ text: String, _ months: Int, _ days: Int, _ written: String) {
    let period = CalendarPeriod(iso8601: text)
    #expect(period == CalendarPeriod(months: months, days: days))
    #expect(period?.description == written)
    #expect(CalendarPeriod(iso8601: written) == period)
  }

  @Test(arguments: [
    "", "P", "1M", "p1m", "PM", "P1", "PT1H", "P1DT1H", "P0D", "P0M0D", "P-1M", "P1.5M", "P100000D",
    "P1D1M", "P1M1M", "P1W1Y", " P1M", "P1M ", "P1H", "P100Y1D", "P36526D", "P1201M", "P20000W",
    "P99999Y12M", "P99999Y", "P99Y53W",
  ])
  func rejectsAPeriod(_ text: String) {
    #expect(CalendarPeriod(iso8601: text) == nil)
  }

  @Test func aPeriodEndsWithinTheYearsThatCanBeWritten() {
    let last = Timestamp.writable.upperBound
    #expect(CalendarPeriod(months: 1200).end(from: last) == last)
    #expect(CalendarPeriod(days: 1).end(from: last - .hours(23)) == last)
    let first = Timestamp.writable.lowerBound
    #expect(CalendarPeriod(months: 1).end(from: first).description == "0000-02-01T00:00:00.000Z")
  }

  @Test func aPeriodKeepsTheTimeOfDay() {
    let start = Timestamp(rfc3339: "2026-01-31T18:45:12.345Z")
    #expect(
      start.map(CalendarPeriod(months: 1).end) == Timestamp(rfc3339: "2026-02-28T18:45:12.345Z"))
    #expect(
      start.map(CalendarPeriod(months: 1, days: 1).end)
        == Timestamp(rfc3339: "2026-03-01T18:45:12.345Z"))
  }
}

struct CatalogueTests {
  @Test func versionsAreChosenByDate() {
    #expect(catalogue.product(.season, at: day(99))?.period == CalendarPeriod(months: 1))
    #expect(catalogue.product(.season, at: day(100))?.period == CalendarPeriod(months: 2))
    #expect(catalogue.product(.season, at: day(-9))?.period == CalendarPeriod(months: 1))
    #expect(catalogue[.season]?.period == CalendarPeriod(months: 2))
    #expect(catalogue["unheard"] == nil)
    #expect(catalogue.product("unheard", at: day(0)) == nil)
    #expect(catalogue.products.map(\.id).count == Set(catalogue.products.map(\.id)).count)
  }

  @Test func appleIDsAreOrderedAsTheNumbersTheyAre() {
    let ids: [TransactionID] = ["10", "9", "100", "2"]
    #expect(ids.sorted() == ["2", "9", "10", "100"])
  }
}
