import AppStore
import JSONText
import Subscriptions

/// A customer's account with Apple, which pays.
package struct AppleID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }
}

/// A phone or tablet with one Apple ID signed in.
package struct DeviceID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }
}

/// An account of the app, logged in on a device.
///
/// Apple does not know it; the simulation keeps it to know who acted.
package struct AppAccountID: TextIdentifier {
  package let rawValue: String
  package init(rawValue: String) { self.rawValue = rawValue }
}

/// Apple's formats of one date.
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

  /// Whether California has daylight saving time, by the Energy Policy Act of 2005.
  ///
  /// It lasts from the second Sunday in March to the first in November, each at 2:00 local time.
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
  /// Truncated to the second, because Apple's dates have no fraction.
  var wholeSecond: Timestamp {
    Timestamp(milliseconds: milliseconds - ((milliseconds % 1000) + 1000) % 1000)
  }
}

extension [JSONValue.Member] {
  /// Appends a date in Apple's three forms: readable, in milliseconds, and in Pacific time.
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

/// Sebastiano Vigna's SplitMix64, a small generator with 64 bits of state.
///
/// The standard library guarantees no sequence, but the same seed must produce the same App Store
/// on every machine and with every compiler. https://prng.di.unimi.it/splitmix64.c
package struct SplitMix64: RandomNumberGenerator, Sendable {
  private var state: UInt64

  package init(seed: UInt64) {
    state = seed
  }

  package mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }

  /// A number in `range`, with a negligible bias for ranges far below 2^64.
  package mutating func number(in range: ClosedRange<Int>) -> Int {
    range.lowerBound + Int(next() % UInt64(range.upperBound - range.lowerBound + 1))
  }

  /// True with the given probability, from 0 to 1.
  package mutating func chance(_ probability: Double) -> Bool {
    Double(next() >> 11) * 0x1p-53 < probability
  }

  /// A random element; nil if there is none.
  package mutating func choice<Choices: RandomAccessCollection>(of choices: Choices)
    -> Choices.Element?
  {
    guard !choices.isEmpty else { return nil }
    let distance = number(in: 0...(choices.count - 1))
    return choices[choices.index(choices.startIndex, offsetBy: distance)]
  }

  /// Fisher-Yates, because the standard library does not guarantee its sequence of draws either.
  package mutating func shuffled<Element>(_ elements: [Element]) -> [Element] {
    var result = elements
    for index in result.indices.reversed().dropLast() {
      result.swapAt(index, number(in: 0...index))
    }
    return result
  }
}
