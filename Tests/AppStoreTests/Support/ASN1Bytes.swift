/// Bytes of ASN.1, put together by hand: what no serializer writes has to be readable, too.
enum ASN1Bytes {
  /// An element with a definite length.
  static func element(_ tag: UInt8, _ parts: [UInt8]...) -> [UInt8] {
    let content = Array(parts.joined())
    return [tag] + length(content.count) + content
  }

  /// A constructed element with an indefinite length, as Xcode writes it.
  static func indefinite(_ tag: UInt8, _ parts: [UInt8]...) -> [UInt8] {
    [tag | 0x20, 0x80] + Array(parts.joined()) + [0, 0]
  }

  static func integer(_ value: Int64) -> [UInt8] {
    var bytes = withBigEndianBytes(value)
    while bytes.count > 1, bytes[0] == (bytes[1] & 0x80 == 0 ? 0 : 0xff) { bytes.removeFirst() }
    return element(0x02, bytes)
  }

  static func utf8(_ text: String) -> [UInt8] { element(0x0c, Array(text.utf8)) }
  static func ia5(_ text: String) -> [UInt8] { element(0x16, Array(text.utf8)) }

  /// An object identifier from the bytes behind its length.
  static func objectIdentifier(_ bytes: UInt8...) -> [UInt8] { element(0x06, bytes) }

  static func length(_ count: Int) -> [UInt8] {
    guard count > 0x7f else { return [UInt8(count)] }
    let bytes = Array(withBigEndianBytes(Int64(count)).drop { $0 == 0 })
    return [0x80 | UInt8(bytes.count)] + bytes
  }

  private static func withBigEndianBytes(_ value: Int64) -> [UInt8] {
    (0..<8).map { UInt8(truncatingIfNeeded: value >> (56 - 8 * $0)) }
  }
}
