/// A moment in whole milliseconds since 1970-01-01 00:00 UTC, Apple's resolution.
///
/// Not a `Double` of seconds, because the rule depends on equal dates and single milliseconds.
package struct Timestamp: Hashable, Comparable, Sendable {
  package var milliseconds: Int64

  package init(milliseconds: Int64) { self.milliseconds = milliseconds }

  package static func < (lhs: Timestamp, rhs: Timestamp) -> Bool {
    lhs.milliseconds < rhs.milliseconds
  }

  package static func + (lhs: Timestamp, rhs: Duration) -> Timestamp {
    Timestamp(milliseconds: lhs.milliseconds + rhs.inMilliseconds)
  }

  package static func - (lhs: Timestamp, rhs: Duration) -> Timestamp {
    Timestamp(milliseconds: lhs.milliseconds - rhs.inMilliseconds)
  }

  package static func - (lhs: Timestamp, rhs: Timestamp) -> Duration {
    .milliseconds(lhs.milliseconds - rhs.milliseconds)
  }
}

extension Timestamp: Codable {
  package init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    milliseconds = try container.decode(Int64.self)
    guard Self.writable.contains(self) else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "out of range")
    }
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(milliseconds)
  }
}

extension Duration {
  /// The accepted difference between clocks: ours, an app server's and Apple's whole seconds.
  package static let clockTolerance: Duration = .minutes(5)

  /// The accepted gap between two periods of which one continues the other; a charge of unknown
  /// kind so close to the last end counts as a renewal.
  package static let gapTolerance: Duration = .seconds(60)

  /// Rounded towards zero.
  package var inMilliseconds: Int64 {
    components.seconds * 1000 + components.attoseconds / 1_000_000_000_000_000
  }

  /// Whether this is at most `tolerance` long, in either direction.
  package func isWithin(_ tolerance: Duration) -> Bool {
    .zero - tolerance <= self && self <= tolerance
  }

  package static func minutes(_ minutes: Int) -> Duration { .seconds(minutes * 60) }
  package static func hours(_ hours: Int) -> Duration { .seconds(hours * 3600) }
  package static func days(_ days: Int) -> Duration { .seconds(days * 86_400) }
}

extension Timestamp {
  /// The moments with four-digit years in UTC, all that RFC 3339 can write and we accept.
  package static let writable =
    Timestamp(milliseconds: -62_167_219_200_000)...Timestamp(milliseconds: 253_402_300_799_999)
}

extension Timestamp: CustomStringConvertible {
  /// RFC 3339 in UTC with milliseconds, for example `2026-11-21T09:30:00.000Z`.
  package var description: String {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(24)
    append(to: &bytes)
    return String(decoding: bytes, as: UTF8.self)
  }

  /// Appends the same, without creating a string.
  package func append(to bytes: inout [UInt8]) {
    let (date, millisecond) = dayAndTime
    let second = Int(millisecond / 1000)
    func append(_ value: Int, _ width: Int, then separator: Unicode.Scalar) {
      var divisor = width == 4 ? 1000 : width == 3 ? 100 : 10
      while divisor > 0 {
        bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: value / divisor % 10))
        divisor /= 10
      }
      bytes.append(UInt8(ascii: separator))
    }
    append(date.year, 4, then: "-")
    append(date.month, 2, then: "-")
    append(date.day, 2, then: "T")
    append(second / 3600, 2, then: ":")
    append(second / 60 % 60, 2, then: ":")
    append(second % 60, 2, then: ".")
    append(Int(millisecond % 1000), 3, then: "Z")
  }

  /// Reads RFC 3339: a date, `T` or a space, a time with an optional fraction, cut off after the
  /// millisecond, and `Z` or an offset; nil for anything else and moments outside ``writable``.
  package init?(rfc3339 text: some StringProtocol) {
    var reader = DigitReader(text)
    guard let year = reader.digits(4), reader.skip("-"),
      let month = reader.digits(2), (1...12).contains(month), reader.skip("-"),
      let day = reader.digits(2), (1...CalendarDate.daysInMonth(month, ofYear: year)).contains(day),
      reader.skip("T") || reader.skip("t") || reader.skip(" "),
      let hour = reader.digits(2), hour < 24, reader.skip(":"),
      let minute = reader.digits(2), minute < 60, reader.skip(":"),
      let second = reader.digits(2), second < 61,
      let millisecond = reader.fraction(), let offset = reader.offset(), reader.isAtEnd
    else { return nil }
    let time = ((hour * 60 + minute - offset) * 60 + second) * 1000 + millisecond
    self.init(CalendarDate(year: year, month: month, day: day), millisecondOfDay: Int64(time))
    guard Self.writable.contains(self) else { return nil }
  }
}

private struct DigitReader {
  private var rest: ArraySlice<UInt8>

  init(_ text: some StringProtocol) { rest = ArraySlice(text.utf8) }

  var isAtEnd: Bool { rest.isEmpty }

  mutating func skip(_ character: Unicode.Scalar) -> Bool {
    guard let first = rest.first, UInt32(first) == character.value else { return false }
    rest.removeFirst()
    return true
  }

  mutating func digits(_ count: Int) -> Int? {
    guard rest.count >= count else { return nil }
    var value = 0
    for byte in rest.prefix(count) {
      guard (48...57).contains(byte) else { return nil }
      value = value * 10 + Int(byte - 48)
    }
    rest.removeFirst(count)
    return value
  }

  /// The milliseconds of an optional fraction; nil for a point without digits.
  mutating func fraction() -> Int? {
    guard skip(".") else { return 0 }
    let digits = rest.prefix { (48...57).contains($0) }
    guard !digits.isEmpty else { return nil }
    rest.removeFirst(digits.count)
    return (0..<3).reduce(0) { value, place in
      value * 10 + (place < digits.count ? Int(digits[digits.startIndex + place] - 48) : 0)
    }
  }

  /// Minutes east of UTC.
  mutating func offset() -> Int? {
    if skip("Z") || skip("z") { return 0 }
    let sign = skip("+") ? 1 : skip("-") ? -1 : 0
    guard sign != 0, let hours = digits(2), hours < 24, skip(":"), let minutes = digits(2),
      minutes < 60
    else { return nil }
    return sign * (hours * 60 + minutes)
  }
}

extension Duration {
  /// The length in its two largest units, such as `6 d 3 h`, without the sign.
  ///
  /// - Parameter isRough: Whether to omit a small unit next to a large one: hours next to a
  ///   hundred days, seconds next to minutes.
  package func words(isRough: Bool = false) -> String {
    let units: [(name: String, seconds: UInt64)] = [
      ("d", 86_400), ("h", 3600), ("min", 60), ("s", 1),
    ]
    let seconds = components.seconds.magnitude
    guard let first = units.dropLast().firstIndex(where: { seconds >= $0.seconds }) else {
      return "\(seconds) s"
    }
    let next = units[first + 1]
    let (whole, rest) = seconds.quotientAndRemainder(dividingBy: units[first].seconds)
    let more = rest / next.seconds
    let isLeftOut = more == 0 || isRough && (whole >= 100 || next.name == "s")
    return "\(whole) \(units[first].name)" + (isLeftOut ? "" : " \(more) \(next.name)")
  }
}
