package import Foundation

extension UUID: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .uuid }

  package func encode(into buffer: inout PostgresBuffer) {
    unsafe withUnsafeBytes(of: uuid) { unsafe buffer.append($0) }
  }

  package static var expectedPostgresType: String { "uuid" }
  package static func canDecode(_ type: PostgresType) -> Bool { type == .uuid }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    guard postgresBytes.byteCount == MemoryLayout<uuid_t>.size else {
      throw DecodingFault.malformed
    }
    // As long as the tuple of 16 bytes, by the line above.
    self = unsafe UUID(
      uuid: postgresBytes.unsafeLoadUnaligned(fromByteOffset: 0, as: uuid_t.self))
  }
}
