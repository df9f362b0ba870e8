/// An integer that travels in its own width, and is read from a column of any.
package protocol PostgresInteger: FixedWidthInteger, PostgresEncodable, PostgresDecodable {}

private let integerTypes: Set<PostgresType> = [.int2, .int4, .int8]

extension PostgresInteger {
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(self) }

  package static var expectedPostgresType: String { "\(postgresType)" }
  package static func canDecode(_ type: PostgresType) -> Bool { integerTypes.contains(type) }

  /// A value that doesn't fit is an error, never cut.
  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    let value: Int64 =
      switch postgresBytes.byteCount {
      case 8: try postgresBytes.integer(Int64.self)
      case 4: try Int64(postgresBytes.integer(Int32.self))
      case 2: try Int64(postgresBytes.integer(Int16.self))
      default: throw DecodingFault.malformed
      }
    guard let integer = Self(exactly: value) else { throw DecodingFault.outOfRange }
    self = integer
  }
}

extension Int16: PostgresInteger {
  package static var postgresType: PostgresType { .int2 }
}

extension Int32: PostgresInteger {
  package static var postgresType: PostgresType { .int4 }
}

extension Int64: PostgresInteger {
  package static var postgresType: PostgresType { .int8 }
}

extension Int: PostgresInteger {
  package static var postgresType: PostgresType { .int8 }
}
