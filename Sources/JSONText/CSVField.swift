extension [String?] {
  /// A line of CSV (RFC 4180), in which nil is an empty field.
  package func csvLine(guardsFormulas: Bool) -> String {
    map { ($0 ?? "").csvField(guardsFormulas: guardsFormulas) }.joined(separator: ",") + "\r\n"
  }
}

extension String {
  /// A CSV field (RFC 4180), quoted if necessary; by bytes, because to Swift a comma followed by a
  /// combining accent is another character, and to other programs it is not.
  ///
  /// - Parameter guardsFormulas: Whether a text that a spreadsheet would evaluate gets a leading
  ///   apostrophe; not in files that programs read back.
  package func csvField(guardsFormulas: Bool) -> String {
    let apostrophe = guardsFormulas && (utf8.first.map(Self.beginsFormula) ?? false) ? "'" : ""
    guard utf8.contains(where: Self.needsQuotes) else { return apostrophe + self }
    var bytes = Array("\"\(apostrophe)".utf8)
    bytes.reserveCapacity(utf8.count + 8)
    for byte in utf8 {
      if byte == UInt8(ascii: "\"") { bytes.append(byte) }
      bytes.append(byte)
    }
    bytes.append(UInt8(ascii: "\""))
    return String(decoding: bytes, as: UTF8.self)
  }

  private static func beginsFormula(_ byte: UInt8) -> Bool { "=+-@\t\r".utf8.contains(byte) }

  private static func needsQuotes(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: ","), UInt8(ascii: "\""), UInt8(ascii: "\r"), UInt8(ascii: "\n"): true
    default: false
    }
  }
}
