/// Values in PostgreSQL's binary format, in sequence; numbers are big-endian.
package struct PostgresBuffer: Sendable {
  private(set) var bytes: [UInt8] = []

  package var count: Int { bytes.count }

  package init() {}

  package mutating func append(_ integer: some FixedWidthInteger) {
    unsafe withUnsafeBytes(of: integer.bigEndian) { unsafe bytes.append(contentsOf: $0) }
  }

  package mutating func append(_ newBytes: some Sequence<UInt8>) {
    bytes.append(contentsOf: newBytes)
  }

  /// Appends a value after its length (4 bytes; -1 for NULL), as in arrays.
  mutating func appendWithLength<Value: PostgresEncodable>(_ value: Value) {
    let start = bytes.count
    append(Int32(-1))
    guard !value.isPostgresNull else { return }
    value.encode(into: &self)
    overwrite(Int32(bytes.count - start - 4), at: start)
  }

  mutating func reserve(_ capacity: Int) { bytes.reserveCapacity(capacity) }

  private mutating func overwrite(_ integer: Int32, at offset: Int) {
    unsafe withUnsafeBytes(of: integer.bigEndian) { source in
      for index in 0..<4 { bytes[offset + index] = unsafe source[index] }
    }
  }
}

extension RawSpan {
  /// The big-endian integer at an offset; ``DecodingFault/malformed`` past the end.
  func integer<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ type: Integer.Type = Integer.self, at offset: Int = 0
  ) throws(DecodingFault) -> Integer {
    guard offset >= 0, offset + MemoryLayout<Integer>.size <= byteCount else { throw .malformed }
    // The guard checks the bounds; every bit pattern is a valid integer.
    return unsafe Integer(bigEndian: unsafeLoadUnaligned(fromByteOffset: offset, as: Integer.self))
  }
}
