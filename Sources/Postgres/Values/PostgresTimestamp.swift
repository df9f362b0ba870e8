/// A `timestamptz` as stored: microseconds since 2000-01-01 00:00:00 UTC, without leap seconds.
package struct PostgresTimestamp: Hashable, Sendable {
  package let microsecondsSince2000: Int64

  package init(microsecondsSince2000: Int64) { self.microsecondsSince2000 = microsecondsSince2000 }

  /// PostgreSQL's `infinity`, after all other timestamps.
  package static let infinity = PostgresTimestamp(microsecondsSince2000: .max)

  /// PostgreSQL's `-infinity`, before all other timestamps.
  package static let negativeInfinity = PostgresTimestamp(microsecondsSince2000: .min)

  package var isFinite: Bool { self != .infinity && self != .negativeInfinity }

  /// Seconds from the Unix epoch (1970) to PostgreSQL's (2000).
  package static let unixSecondsAtEpoch: Int64 = 946_684_800

  package init(millisecondsSince1970: Int64) {
    self.init(
      microsecondsSince2000: (millisecondsSince1970 - Self.unixSecondsAtEpoch * 1000) * 1000)
  }

  /// Milliseconds since the Unix epoch, rounded down.
  package var millisecondsSince1970: Int64 {
    let (milliseconds, rest) = microsecondsSince2000.quotientAndRemainder(dividingBy: 1000)
    return milliseconds - (rest < 0 ? 1 : 0) + Self.unixSecondsAtEpoch * 1000
  }
}

extension PostgresTimestamp: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .timestamptz }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(microsecondsSince2000) }

  package static func canDecode(_ type: PostgresType) -> Bool { type == .timestamptz }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    self.init(microsecondsSince2000: try postgresBytes.integer(Int64.self))
  }
}
