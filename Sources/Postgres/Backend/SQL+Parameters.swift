/// A statement's parameters as libpq takes them. libpq copies them into its send buffer before it
/// returns.
extension SQL {
  /// The most parameters that the protocol can count (PQ_QUERY_PARAM_MAX_LIMIT).
  static let parametersMax = 65_535

  func withTypes<T>(_ body: (UnsafePointer<UInt32>?) -> T) -> T {
    unsafe withUnsafeTemporaryAllocation(of: UInt32.self, capacity: parameters.count) { types in
      for (index, parameter) in parameters.enumerated() {
        unsafe types.initializeElement(at: index, to: parameter.type.rawValue)
      }
      return unsafe body(UnsafePointer(types.baseAddress))
    }
  }

  /// Values (a null pointer is NULL), lengths, and formats, all of which are binary.
  func withValues<T>(
    _ body: (
      UnsafePointer<UnsafePointer<CChar>?>?, UnsafePointer<Int32>?, UnsafePointer<Int32>?
    ) -> T
  ) -> T {
    let count = parameters.count
    return unsafe values.bytes.withUnsafeBytes { bytes in
      unsafe withUnsafeTemporaryAllocation(of: UnsafePointer<CChar>?.self, capacity: count) {
        pointers in
        unsafe withUnsafeTemporaryAllocation(of: Int32.self, capacity: 2 * count) { numbers in
          for (index, parameter) in parameters.enumerated() {
            unsafe pointers.initializeElement(
              at: index, to: parameter.pointer(in: bytes, ifEmpty: numbers.baseAddress))
            unsafe numbers.initializeElement(at: index, to: Int32(max(0, parameter.length)))
            unsafe numbers.initializeElement(at: count + index, to: 1)
          }
          guard let lengths = numbers.baseAddress else { return body(nil, nil, nil) }
          return unsafe body(
            UnsafePointer(pointers.baseAddress), UnsafePointer(lengths),
            UnsafePointer(lengths + count))
        }
      }
    }
  }
}

extension SQL.Parameter {
  /// Where the value begins.
  ///
  /// An empty one must point somewhere too, for only NULL points nowhere.
  fileprivate func pointer(
    in bytes: UnsafeRawBufferPointer, ifEmpty somewhere: UnsafeMutablePointer<Int32>?
  ) -> UnsafePointer<CChar>? {
    guard length >= 0 else { return nil }
    guard length > 0, let base = bytes.baseAddress else {
      return unsafe UnsafeRawPointer(somewhere)?.assumingMemoryBound(to: CChar.self)
    }
    return unsafe (base + offset).assumingMemoryBound(to: CChar.self)
  }
}
