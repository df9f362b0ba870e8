/// A `json` value, kept byte for byte.
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

/// A `jsonb` value as JSON text; also decodes `json` columns.
package struct JSONB: Hashable, Sendable {
  package let text: String

  package init(text: String) {
    self.text = text
  }
}

extension JSONB: PostgresEncodable, PostgresDecodable {
  /// The version byte that precedes the text in jsonb's binary format (jsonb_send).
  private static let version: UInt8 = 1

  package static var postgresType: PostgresType { .jsonb }

  package func encode(into buffer: inout PostgresBuffer) {
    buffer.append(Self.version)
    buffer.append(text.utf8)
  }

  package static var expectedPostgresType: String { "jsonb" }
  package static func canDecode(_ type: PostgresType) -> Bool { type == .jsonb || type == .json }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    if type == .json {
      text = try String(postgresBytes: postgresBytes, type: .text)
    } else {
      guard try postgresBytes.integer(UInt8.self) == Self.version else {
        throw DecodingFault.malformed
      }
      text = try String(postgresBytes: postgresBytes.extracting(droppingFirst: 1), type: .text)
    }
  }
}
