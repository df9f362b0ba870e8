extension Double: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .float8 }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(bitPattern) }

  package static var expectedPostgresType: String { "float8" }
  package static func canDecode(_ type: PostgresType) -> Bool { type == .float8 || type == .float4 }
  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    if type == .float4 {
      self = try Double(Float(bitPattern: postgresBytes.integer(UInt32.self)))
    } else {
      self = try Double(bitPattern: postgresBytes.integer(UInt64.self))
    }
  }
}
