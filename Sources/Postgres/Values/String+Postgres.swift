/// Text travels as `text`; for a column of an enum type write a cast, `\(state)::renewal_state`.
extension String: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .text }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(utf8) }

  package static var expectedPostgresType: String { "text" }

  /// The binary format of an enum is its label; other types of one's own that are not text fail
  /// when read, not here.
  package static func canDecode(_ type: PostgresType) -> Bool {
    switch type {
    case .text, .varchar, .bpchar, .name, .char, .unknown, .json: true
    default: type.isUserDefined
    }
  }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    let text = unsafe postgresBytes.withUnsafeBytes { bytes in
      unsafe String(validating: bytes, as: UTF8.self)
    }
    guard let text else { throw DecodingFault.malformed }
    self = text
  }
}
