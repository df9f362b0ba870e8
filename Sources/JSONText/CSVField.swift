extension String {
  /// A field of a CSV file (RFC 4180), in quotation marks where it needs them.
  ///
  /// By bytes: a comma or a quotation mark with an accent behind it is one to every program that
  /// reads the file, and another character to Swift.
  ///
  /// - Parameter guardsFormulas: Whether a text that a spreadsheet would take for a formula gets an
  ///   apostrophe in front. A program that reads the file back must not find one there.
  /// - Returns: The field.
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
