import CZlib

/// zlib's format (RFC 1950) with a preset dictionary, which holds what receipts, Apple's answers and
/// signed data have in common: the names of members and attributes, and usual values.
///
/// The stream names the dictionary by its checksum. What was stored with it needs it forever.
enum Deflate {
  private static let dictionary = PackageResources.bodies_dictionary
  /// zlib's highest ratio, rounded up.
  private static let mostBytesPerByte = 1100

  static func compress(_ bytes: [UInt8]) -> [UInt8] {
    // More than zlib's bound.
    let capacity = bytes.count + bytes.count / 8 + 64
    let compressed = unsafe [UInt8](unsafeUninitializedCapacity: capacity) { output, count in
      unsafe bytes.withUnsafeBufferPointer { input in
        unsafe dictionary.withUnsafeBufferPointer { dictionary in
          count = unsafe tenure_deflate(
            input.baseAddress, input.count, dictionary.baseAddress, dictionary.count,
            output.baseAddress, capacity)
        }
      }
    }
    precondition(!compressed.isEmpty, "zlib has no memory")
    return compressed
  }

  /// Undoes ``compress(_:)``; nil if the bytes are damaged, of another length or compressed with another
  /// dictionary.
  static func decompress(_ compressed: ArraySlice<UInt8>, length: Int) -> [UInt8]? {
    guard length <= compressed.count * mostBytesPerByte else { return nil }
    var isDone = false
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: length) { output, count in
      unsafe compressed.withUnsafeBufferPointer { input in
        unsafe dictionary.withUnsafeBufferPointer { dictionary in
          isDone =
            unsafe tenure_inflate(
              input.baseAddress, input.count, dictionary.baseAddress, dictionary.count,
              output.baseAddress, length) != 0
        }
      }
      count = isDone ? length : 0
    }
    return isDone ? bytes : nil
  }
}
