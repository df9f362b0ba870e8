/// A moment, in whole milliseconds since 1970-01-01 00:00 UTC: the resolution in which Apple
/// speaks.
///
/// An integer and not Foundation's `Date`, because the rule turns on equal dates and on single
/// milliseconds, and a `Double` of seconds can represent neither exactly.
package struct Timestamp: Hashable, Comparable, Sendable {
  package var milliseconds: Int64

  package init(milliseconds: Int64) {
    self.milliseconds = milliseconds
  }

  package static func < (lhs: Timestamp, rhs: Timestamp) -> Bool {
    lhs.milliseconds < rhs.milliseconds
  }

  /// The moment that lies a time after another.
  package static func + (lhs: Timestamp, rhs: Duration) -> Timestamp {
    Timestamp(milliseconds: lhs.milliseconds + rhs.inMilliseconds)
  }

  /// The moment that lies a time before another.
  package static func - (lhs: Timestamp, rhs: Duration) -> Timestamp {
    Timestamp(milliseconds: lhs.milliseconds - rhs.inMilliseconds)
  }

  /// The time that passes from `rhs` to `lhs`; negative if `lhs` is the earlier.
  package static func - (lhs: Timestamp, rhs: Timestamp) -> Duration {
    .milliseconds(lhs.milliseconds - rhs.milliseconds)
  }
}

extension Timestamp: Codable {
  package init(from decoder: any Decoder) throws {
    milliseconds = try decoder.singleValueContainer().decode(Int64.self)
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(milliseconds)
  }
}

extension Duration {
  /// How far apart two clocks may be: ours, an app server's and Apple's, whose seconds are whole.
  package static let clockTolerance: Duration = .minutes(5)

  /// How far apart two periods may lie and still follow each other without a gap.
  ///
  /// A renewal begins where the last period ends, give or take this; a purchase by hand so close to
  /// the end, of a kind that Apple does not name, counts as one.
  package static let gapTolerance: Duration = .seconds(60)

  /// This duration in whole milliseconds, rounded towards zero.
  package var inMilliseconds: Int64 {
    components.seconds * 1000 + components.attoseconds / 1_000_000_000_000_000
  }

  /// Whether two moments that lie this far apart, in either direction, are at most `tolerance`
  /// apart.
  package func isWithin(_ tolerance: Duration) -> Bool {
    .zero - tolerance <= self && self <= tolerance
  }

  /// So many times sixty seconds.
  package static func minutes(_ minutes: Int) -> Duration { .seconds(minutes * 60) }
  /// So many times sixty minutes.
  package static func hours(_ hours: Int) -> Duration { .seconds(hours * 3600) }
  /// So many times twenty-four hours, whatever the calendar says.
  package static func days(_ days: Int) -> Duration { .seconds(days * 86_400) }
}
