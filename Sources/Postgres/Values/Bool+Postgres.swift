extension Bool: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .bool }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(UInt8(self ? 1 : 0)) }

  package static var expectedPostgresType: String { "bool" }
  package static func canDecode(_ type: PostgresType) -> Bool { type == .bool }
  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    self = try postgresBytes.integer(UInt8.self) != 0
  }
}
