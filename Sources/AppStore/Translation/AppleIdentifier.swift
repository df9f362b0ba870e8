/// What a text of Apple's must be to become part of a key.
enum AppleIdentifier {
  /// In bytes: what a column for a name holds.
  static let longest = 255
  /// In bytes: what a column for one of Apple's numbers holds.
  static let longestNumber = 128

  /// What is wrong with a text: "is longer than 255 bytes"; nil if it can be an identifier.
  ///
  /// Neither longer than its column in `schema.sql`, nor with control characters, which PostgreSQL
  /// or a terminal would not take.
  static func fault(of text: String, upTo limit: Int) -> String? {
    if text.utf8.count > limit { return "is longer than \(limit) bytes" }
    let isPrintable = text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
    return isPrintable ? nil : "contains control characters"
  }
}
