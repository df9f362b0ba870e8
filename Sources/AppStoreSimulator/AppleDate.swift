import AppStore
import JSONText
import Subscriptions

/// The ways in which Apple writes one moment.
struct AppleDate {
  let moment: Timestamp

  init(_ moment: Timestamp) {
    self.moment = moment
  }

  /// For example `2020-07-14 19:36:40 Etc/GMT`.
  var gmt: String { "\(Self.text(moment)) Etc/GMT" }

  /// For example `2020-07-14 12:36:40 America/Los_Angeles`.
  var pacific: String {
    let offset = Self.isPacificSummer(moment) ? 7 : 8
    return "\(Self.text(moment - .hours(offset))) America/Los_Angeles"
  }

  var milliseconds: String { String(moment.milliseconds) }

  private static func text(_ moment: Timestamp) -> String {
    let rfc3339 = moment.description
    return "\(rfc3339.prefix(10)) \(rfc3339.dropFirst(11).prefix(8))"
  }

  /// Whether California has summer time: from the second Sunday of March to the first of November,
  /// changing at 2 o'clock of its own time (Energy Policy Act of 2005, in force since 2007).
  private static func isPacificSummer(_ moment: Timestamp) -> Bool {
    let year = moment.dayAndTime.date.year
    let begins = Timestamp(sunday(2, ofMonth: 3, year: year)) + .hours(10)
    let ends = Timestamp(sunday(1, ofMonth: 11, year: year)) + .hours(9)
    return begins <= moment && moment < ends
  }

  private static func sunday(_ ordinal: Int, ofMonth month: Int, year: Int) -> CalendarDate {
    let first = CalendarDate(year: year, month: month, day: 1)
    // 1970-01-01 was a Thursday, so day 3 was the first Sunday.
    let daysToSunday = (7 - ((first.daysSince1970 - 3) % 7 + 7) % 7) % 7
    return CalendarDate(year: year, month: month, day: 1 + daysToSunday + 7 * (ordinal - 1))
  }
}

extension Timestamp {
  /// The second in which the moment lies: Apple's dates have no fraction.
  var wholeSecond: Timestamp {
    Timestamp(milliseconds: milliseconds - ((milliseconds % 1000) + 1000) % 1000)
  }
}

extension [JSONValue.Member] {
  /// Adds a date as Apple's triple: readable, in milliseconds, and in California's time.
  mutating func append(date key: String, _ moment: Timestamp) {
    let date = AppleDate(moment)
    append("\(key)", date.gmt)
    append("\(key)_ms", date.milliseconds)
    append("\(key)_pst", date.pacific)
  }

  mutating func append(_ key: String, _ text: String) {
    append(JSONValue.Member(key: key, value: .string(text)))
  }

  mutating func append(_ key: String, _ value: JSONValue) {
    append(JSONValue.Member(key: key, value: value))
  }
}
