/// A byte: an array of bytes travels as `bytea`, a single one as `int2`.
extension UInt8: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .int2 }
  package static var postgresArrayType: PostgresType? { .bytea }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(Int16(self)) }

  package static func encode(array: [UInt8], into buffer: inout PostgresBuffer) {
    buffer.append(array)
  }

  package static var expectedPostgresType: String { "bytea" }
  package static func canDecode(_ type: PostgresType) -> Bool { type == .int2 }
  package static func canDecodeArray(_ type: PostgresType) -> Bool { type == .bytea }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    guard let byte = try UInt8(exactly: postgresBytes.integer(Int16.self)) else {
      throw DecodingFault.outOfRange
    }
    self = byte
  }

  package static func decode(arrayBytes: RawSpan, type: PostgresType) throws -> [UInt8] {
    unsafe arrayBytes.withUnsafeBytes { unsafe Array($0) }
  }
}
