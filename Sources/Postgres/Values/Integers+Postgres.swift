/// Reads an integer column of any width; a value that doesn't fit is an error, never cut.
private func decodeInteger<Integer: FixedWidthInteger>(
  _ bytes: RawSpan, as _: Integer.Type
) throws -> Integer {
  let value: Int64 =
    switch bytes.byteCount {
    case 8: try bytes.integer(Int64.self)
    case 4: try Int64(bytes.integer(Int32.self))
    case 2: try Int64(bytes.integer(Int16.self))
    default: throw DecodingFault.malformed
    }
  guard let integer = Integer(exactly: value) else { throw DecodingFault.outOfRange }
  return integer
}

private let integerTypes: Set<PostgresType> = [.int2, .int4, .int8]

extension Int16: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .int2 }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(self) }

  package static var expectedPostgresType: String { "int2" }
  package static func canDecode(_ type: PostgresType) -> Bool { integerTypes.contains(type) }
  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    self = try decodeInteger(postgresBytes, as: Int16.self)
  }
}

extension Int32: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .int4 }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(self) }

  package static var expectedPostgresType: String { "int4" }
  package static func canDecode(_ type: PostgresType) -> Bool { integerTypes.contains(type) }
  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    self = try decodeInteger(postgresBytes, as: Int32.self)
  }
}

extension Int64: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .int8 }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(self) }

  package static var expectedPostgresType: String { "int8" }
  package static func canDecode(_ type: PostgresType) -> Bool { integerTypes.contains(type) }
  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    self = try decodeInteger(postgresBytes, as: Int64.self)
  }
}

extension Int: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .int8 }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(Int64(self)) }

  package static var expectedPostgresType: String { "int8" }
  package static func canDecode(_ type: PostgresType) -> Bool { integerTypes.contains(type) }
  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    self = try decodeInteger(postgresBytes, as: Int.self)
  }
}
