import Foundation

/// Base64 (RFC 4648), decoded only from its canonical form: without white space, other alphabets'
/// characters, non-zero trailing bits, and missing or superfluous padding.
package enum Base64 {
  /// Decodes base64url without padding, used for the parts of a JWS.
  package static func decode(url text: ArraySlice<UInt8>) -> [UInt8]? { decode(text, urlDigits) }

  /// Decodes base64 with padding, used for receipts and for certificates in a JWS.
  package static func decode(standard text: [UInt8]) -> [UInt8]? {
    guard text.count.isMultiple(of: 4) else { return nil }
    let padding = text.suffix(2).reversed().prefix { $0 == UInt8(ascii: "=") }.count
    return decode(text.dropLast(padding), standardDigits)
  }

  package static func encode(url bytes: some Sequence<UInt8>) -> String {
    let text = Data(bytes).base64EncodedString().utf8.compactMap { byte -> UInt8? in
      switch byte {
      case UInt8(ascii: "+"): UInt8(ascii: "-")
      case UInt8(ascii: "/"): UInt8(ascii: "_")
      case UInt8(ascii: "="): nil
      default: byte
      }
    }
    return String(decoding: text, as: UTF8.self)
  }

  package static func isDigit(url byte: UInt8) -> Bool { urlDigits[Int(byte)] != noDigit }

  package static func isDigit(standard byte: UInt8) -> Bool {
    standardDigits[Int(byte)] != noDigit
  }

  private static let urlDigits = digits(endingWith: "-_")
  private static let standardDigits = digits(endingWith: "+/")
  /// The table's value for invalid characters; it has more than six bits.
  private static let noDigit: UInt8 = 0xFF

  private static func digits(endingWith lastTwo: String) -> [UInt8] {
    var digits = [UInt8](repeating: noDigit, count: 256)
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + lastTwo
    for (value, character) in alphabet.utf8.enumerated() {
      digits[Int(character)] = UInt8(value)
    }
    return digits
  }

  private static func decode(_ text: ArraySlice<UInt8>, _ table: [UInt8]) -> [UInt8]? {
    let rest = text.count % 4
    guard rest != 1 else { return nil }
    let quads = text.count / 4
    var output = [UInt8](repeating: 0, count: quads * 3 + (rest == 0 ? 0 : rest - 1))
    let (input, digits) = (text.span, table.span)
    var bytes = output.mutableSpan
    var seen: UInt8 = 0
    for quad in 0..<quads {
      let (from, to) = (quad * 4, quad * 3)
      let first = digits[Int(input[from])]
      let second = digits[Int(input[from + 1])]
      let third = digits[Int(input[from + 2])]
      let fourth = digits[Int(input[from + 3])]
      seen |= first | second | third | fourth
      bytes[to] = first << 2 | second >> 4
      bytes[to + 1] = second << 4 | third >> 2
      bytes[to + 2] = third << 6 | fourth
    }
    if rest > 0 {
      let (from, to) = (quads * 4, quads * 3)
      let first = digits[Int(input[from])]
      let second = digits[Int(input[from + 1])]
      let third = rest == 3 ? digits[Int(input[from + 2])] : 0
      seen |= first | second | third
      bytes[to] = first << 2 | second >> 4
      if rest == 3 { bytes[to + 1] = second << 4 | third >> 2 }
      let surplus = rest == 3 ? third & 0b11 : second & 0b1111
      guard surplus == 0 else { return nil }
    }
    return seen < 64 ? output : nil
  }
}

extension Sequence<UInt8> {
  /// Two lower-case digits for each byte.
  package var hexadecimal: String { map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }
}
