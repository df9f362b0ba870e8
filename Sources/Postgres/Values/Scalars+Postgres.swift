package import Foundation

extension Bool: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .bool }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(UInt8(self ? 1 : 0)) }

  package static func canDecode(_ type: PostgresType) -> Bool { type == .bool }
  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    self = try postgresBytes.integer(UInt8.self) != 0
  }
}

extension Double: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .float8 }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(bitPattern) }

  package static func canDecode(_ type: PostgresType) -> Bool { type == .float8 || type == .float4 }
  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    if type == .float4 {
      self = try Double(Float(bitPattern: postgresBytes.integer(UInt32.self)))
    } else {
      self = try Double(bitPattern: postgresBytes.integer(UInt64.self))
    }
  }
}

/// An integer that is encoded in its own width and decoded from a column of any width.
package protocol PostgresInteger: FixedWidthInteger, PostgresEncodable, PostgresDecodable {}

extension PostgresInteger {
  package static var postgresType: PostgresType {
    switch bitWidth {
    case 16: .int2
    case 32: .int4
    default: .int8
    }
  }

  package func encode(into buffer: inout PostgresBuffer) { buffer.append(self) }

  package static func canDecode(_ type: PostgresType) -> Bool {
    type == .int2 || type == .int4 || type == .int8
  }

  /// A value that does not fit is an error; it is never truncated.
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

extension Int16: PostgresInteger {}
extension Int32: PostgresInteger {}
extension Int64: PostgresInteger {}
extension Int: PostgresInteger {}

/// Encoded as `text`; a column of an enum type needs a cast, `\(state)::renewal_state`.
extension String: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .text }
  package func encode(into buffer: inout PostgresBuffer) { buffer.append(utf8) }

  /// Includes user-defined types, because an enum's binary format is its label; other ones fail
  /// when a value is decoded.
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

/// A byte: an array of bytes is `bytea`, a single byte `int2`.
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

extension UUID: PostgresEncodable, PostgresDecodable {
  package static var postgresType: PostgresType { .uuid }

  package func encode(into buffer: inout PostgresBuffer) {
    unsafe withUnsafeBytes(of: uuid) { unsafe buffer.append($0) }
  }

  package static func canDecode(_ type: PostgresType) -> Bool { type == .uuid }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    guard postgresBytes.byteCount == MemoryLayout<uuid_t>.size else {
      throw DecodingFault.malformed
    }
    // The guard checks that there are exactly 16 bytes.
    self = unsafe UUID(uuid: postgresBytes.unsafeLoadUnaligned(fromByteOffset: 0, as: uuid_t.self))
  }
}
