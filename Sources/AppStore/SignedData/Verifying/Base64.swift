/// Bytes written as base64 (RFC 4648), read strictly: one way to write them, and no other.
///
/// No white space, no character of the other alphabet, no bits set behind the last byte; padding
/// exactly where the form demands it.
enum Base64 {
  /// Reads base64url without padding, as the parts of a JWS are written; nil for anything else.
  static func decode(url text: ArraySlice<UInt8>) -> [UInt8]? {
    decode(text, urlDigits)
  }

  /// Reads base64 with padding, as certificates in a JWS are written; nil for anything else.
  static func decode(standard text: some Collection<UInt8>) -> [UInt8]? {
    guard text.count.isMultiple(of: 4) else { return nil }
    let text = Array(text)
    let padding = text.suffix(2).reversed().prefix { $0 == UInt8(ascii: "=") }.count
    return decode(text.dropLast(padding), standardDigits)
  }

  private static let urlDigits = digits(endingWith: "-_")
  private static let standardDigits = digits(endingWith: "+/")
  /// What stands in the table for a character that is no digit: more than six bits.
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
