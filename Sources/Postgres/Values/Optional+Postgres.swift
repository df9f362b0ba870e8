extension Optional: PostgresEncodable where Wrapped: PostgresEncodable {
  package static var postgresType: PostgresType { Wrapped.postgresType }
  package static var postgresArrayType: PostgresType? { Wrapped.postgresType.array }
  package var isPostgresNull: Bool { self?.isPostgresNull ?? true }
  package func encode(into buffer: inout PostgresBuffer) { self?.encode(into: &buffer) }
}

extension Optional: PostgresDecodable where Wrapped: PostgresDecodable {
  package static var expectedPostgresType: String { Wrapped.expectedPostgresType }
  package static func canDecode(_ type: PostgresType) -> Bool { Wrapped.canDecode(type) }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    self = try Wrapped(postgresBytes: postgresBytes, type: type)
  }

  package static func decodeNull() throws -> Wrapped? { nil }
}
