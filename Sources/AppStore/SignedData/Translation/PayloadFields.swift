import Subscriptions

import struct Foundation.UUID

/// Checks the fields of a payload that become part of the ledger.
///
/// Apple documents every field as optional; what a ledger cannot do without is missed here, by
/// name. A field that is there and means nothing is not taken for absent.
enum PayloadFields {
  static func required<Value>(_ value: Value?, _ field: String) throws(SignedDataFault) -> Value {
    guard let value else { throw .missing(field) }
    return value
  }

  /// A text that can be part of a key; nil for one that is absent or empty.
  static func identifier(
    _ text: String?, _ field: String, upTo limit: Int = AppleIdentifier.longest
  ) throws(SignedDataFault) -> String? {
    guard let text, !text.isEmpty else { return nil }
    if let fault = AppleIdentifier.fault(of: text, upTo: limit) { throw .unusable(field, fault) }
    return text
  }

  /// One of Apple's numbers: a transaction's, or that of a charge.
  static func number(_ text: String?, _ field: String) throws(SignedDataFault) -> String? {
    try identifier(text, field, upTo: AppleIdentifier.longestNumber)
  }

  static func integer(
    _ number: Int64?, _ field: String, in range: ClosedRange<Int>
  ) throws(SignedDataFault) -> Int? {
    guard let number else { return nil }
    guard let value = Int(exactly: number), range.contains(value) else {
      throw .unusable(field, "is out of range")
    }
    return value
  }

  /// ISO 4217: three capital letters.
  static func currency(_ text: String?, _ field: String) throws(SignedDataFault) -> String? {
    guard let text, !text.isEmpty else { return nil }
    guard text.utf8.count == 3,
      text.utf8.allSatisfy((UInt8(ascii: "A")...UInt8(ascii: "Z")).contains)
    else { throw .unusable(field, "is no currency") }
    return text
  }

  /// One that is no UUID counts as none: apps put into it what they like.
  static func token(_ text: String?) -> UUID? { text.flatMap { UUID(uuidString: $0) } }

  /// The environment in the rules' vocabulary.
  static func environment(
    _ environment: SignedEnvironment?, _ field: String, acceptsXcode: Bool
  ) throws(SignedDataFault) -> Environment {
    let named = try required(environment, field)
    guard let environment = named.environment else {
      throw SignedDataFault(.wrongEnvironment, "is of an environment that is not known")
    }
    guard acceptsXcode || named.isSignedByApple else {
      throw SignedDataFault(
        .notSignedByApple, "comes from Xcode and not from Apple, which is not accepted here")
    }
    return environment
  }
}
