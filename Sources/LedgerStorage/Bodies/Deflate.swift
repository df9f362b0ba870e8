import CZlib

/// zlib's format (RFC 1950) with a preset dictionary of what the compressed texts have in common.
///
/// A stream names its dictionary by a checksum. What was stored with one needs it forever.
struct Deflate: Sendable {
  /// For receipts, Apple's answers and signed data.
  static let bodies = Deflate(dictionary: PackageResources.bodies_dictionary)
  /// For the entries of the ledger and the data of events.
  static let entries = Deflate(dictionary: PackageResources.entries_dictionary)

  let dictionary: [UInt8]

  func compress(_ bytes: [UInt8]) -> [UInt8] {
    // More than zlib's bound for any window and memory.
    let capacity = bytes.count + bytes.count / 4 + 64
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

  /// Undoes ``compress(_:)``; nil if the bytes are damaged or were compressed with another dictionary.
  func decompress(_ compressed: ArraySlice<UInt8>) -> [UInt8]? {
    var capacity = compressed.count * 8 + 1024
    while true {
      var length: Int64 = -1
      let bytes = unsafe [UInt8](unsafeUninitializedCapacity: capacity) { output, count in
        unsafe compressed.withUnsafeBufferPointer { input in
          unsafe dictionary.withUnsafeBufferPointer { dictionary in
            length = unsafe tenure_inflate(
              input.baseAddress, input.count, dictionary.baseAddress, dictionary.count,
              output.baseAddress, capacity)
          }
        }
        count = max(0, Int(length))
      }
      guard length == -2 else { return length < 0 ? nil : bytes }
      capacity *= 8
    }
  }
}
