/// The little of DER (X.690) that receipts need, put together by hand: a simulation writes many
/// receipts, of many small elements.
enum DERBytes {
  enum Tag: UInt8 {
    case integer = 0x02
    case octetString = 0x04
    case utf8String = 0x0c
    case ia5String = 0x16
    case sequence = 0x30
    case set = 0x31
    /// An octet string that is made of others, which is BER and not DER.
    case pieces = 0x24
    /// [0], constructed.
    case tagged0 = 0xa0
  }

  static func element(_ tag: Tag, _ content: [UInt8]) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(content.count + 6)
    bytes.append(tag.rawValue)
    append(length: content.count, to: &bytes)
    bytes += content
    return bytes
  }

  static func integer(_ value: Int) -> [UInt8] {
    if (0...0x7f).contains(value) { return [Tag.integer.rawValue, 1, UInt8(value)] }
    // As many bytes as the value and its sign need.
    let bits = value.bitWidth - (value < 0 ? ~value : value).leadingZeroBitCount + 1
    var bytes: [UInt8] = []
    var shift = (bits - 1) / 8 * 8
    while shift >= 0 {
      bytes.append(UInt8(truncatingIfNeeded: value >> shift))
      shift -= 8
    }
    return element(.integer, bytes)
  }

  /// The octet strings that come to the bytes.
  static func pieces(of bytes: [UInt8]) -> [UInt8] {
    stride(from: 0, to: bytes.count, by: 1000).flatMap {
      element(.octetString, Array(bytes[$0..<min($0 + 1000, bytes.count)]))
    }
  }

  static func algorithm(_ identifier: [UInt8]) -> [UInt8] {
    element(.sequence, identifier + [0x05, 0x00])
  }

  /// 1.2.840.113549.1.7.1.
  static let data: [UInt8] = [0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1]
  /// 1.2.840.113549.1.7.2.
  static let signedData: [UInt8] = [0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2]
  /// 1.2.840.113549.1.1.1.
  static let rsaEncryption: [UInt8] = [0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1]
  /// 2.16.840.1.101.3.4.2.1.
  static let sha256: [UInt8] = [0x06, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1]

  private static func append(length: Int, to bytes: inout [UInt8]) {
    guard length > 0x7f else { return bytes.append(UInt8(length)) }
    var shift = (length.bitWidth - length.leadingZeroBitCount - 1) / 8 * 8
    bytes.append(0x80 | UInt8(shift / 8 + 1))
    while shift >= 0 {
      bytes.append(UInt8(truncatingIfNeeded: length >> shift))
      shift -= 8
    }
  }
}
