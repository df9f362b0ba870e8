extension RawSpan {
  /// The big-endian integer at an offset.
  ///
  /// - Throws: ``DecodingFault/malformed`` when the bytes end before it does.
  func integer<Integer: FixedWidthInteger & BitwiseCopyable>(
    _ type: Integer.Type = Integer.self, at offset: Int = 0
  ) throws(DecodingFault) -> Integer {
    guard offset >= 0, offset + MemoryLayout<Integer>.size <= byteCount else { throw .malformed }
    // In bounds by the line above; every bit pattern is an integer.
    return unsafe Integer(bigEndian: unsafeLoadUnaligned(fromByteOffset: offset, as: Integer.self))
  }
}
