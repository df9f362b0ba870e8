/// A `json` value, kept byte for byte as it was written.
package struct JSON: Hashable, Sendable {
  package let text: String

  package init(text: String) {
    self.text = text
  }
}

extension JSON: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .json }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(text.utf8) }

  package static var expectedPostgresType: String { "json" }
  package static func canDecode(_ type: PostgresType) -> Bool { JSONB.canDecode(type) }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    text = try JSONB(postgresBytes: postgresBytes, type: type).text
  }
}
