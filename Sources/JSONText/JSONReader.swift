import Subscriptions

/// Why a JSON text is refused, without its contents.
package struct JSONError: Error, Hashable, CustomStringConvertible {
  /// A clause such as "has the member “price” twice".
  package let description: String
  /// The byte of the text at which reading ended; nil if a value is refused.
  package fileprivate(set) var offset: Int?

  package init(_ description: String) { self.description = description }
}

extension JSONValue {
  /// The deepest nesting of arrays and objects; Apple's stays below ten.
  package static let deepestNesting = 32
  /// The longest name of a member, in bytes; Apple's and ours stay below fifty.
  package static let longestName = 256

  /// Reads a JSON text (RFC 8259) strictly.
  ///
  /// Refuses what two readers could understand differently, because signatures and secrets depend
  /// on it: duplicate members, invalid UTF-8, lone surrogates, bytes after the value. Integers of
  /// 64 bits are exact; any other number becomes the nearest `Double`.
  ///
  /// - Parameters:
  ///   - toleratesRepetitions: Whether a member may be repeated with the same value, as in
  ///     version 1.
  ///   - keepsLongIntegersAsText: Whether an integer that exceeds 64 bits becomes a string, exactly.
  ///   - mostValues: The most values, including those in arrays and objects.
  package init(
    parsing bytes: some Sequence<UInt8>, toleratesRepetitions: Bool = false,
    keepsLongIntegersAsText: Bool = false, mostValues: Int = .max
  ) throws {
    var reader = JSONReader(
      bytes: Array(bytes), toleratesRepetitions: toleratesRepetitions,
      keepsLongIntegersAsText: keepsLongIntegersAsText, valuesLeft: mostValues)
    do {
      self = try reader.whole()
    } catch var error {
      error.offset = reader.position
      throw error
    }
  }
}

private struct JSONReader {
  /// The most members in Apple's payloads: the capacity reserved at first.
  private static let usualMembers = 32

  let bytes: [UInt8]
  let toleratesRepetitions: Bool
  let keepsLongIntegersAsText: Bool
  var valuesLeft: Int
  var position = 0

  mutating func whole() throws(JSONError) -> JSONValue {
    skipSpace()
    let value = try value(depth: 0)
    skipSpace()
    guard position == bytes.count else { throw JSONError("continues after its value") }
    return value
  }

  private mutating func value(depth: Int) throws(JSONError) -> JSONValue {
    guard position < bytes.count else { throw JSONError("ends too early") }
    valuesLeft -= 1
    guard valuesLeft >= 0 else { throw JSONError("has too many values") }
    switch bytes[position] {
    case UInt8(ascii: "\""): return .string(try text())
    case UInt8(ascii: "{"): return try object(depth: depth + 1)
    case UInt8(ascii: "["): return try array(depth: depth + 1)
    case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return try number()
    case UInt8(ascii: "t"): return try word("true", .bool(true))
    case UInt8(ascii: "f"): return try word("false", .bool(false))
    case UInt8(ascii: "n"): return try word("null", .null)
    default: throw JSONError("has a character where no value can begin")
    }
  }

  private mutating func object(depth: Int) throws(JSONError) -> JSONValue {
    try enter(depth)
    var members: [JSONValue.Member] = []
    if skip(UInt8(ascii: "}")) { return .object([]) }
    if depth == 1 { members.reserveCapacity(Self.usualMembers) }
    repeat {
      skipSpace()
      guard position < bytes.count, bytes[position] == UInt8(ascii: "\"") else {
        throw JSONError("has an object with a member without a name")
      }
      let key = try text()
      guard key.utf8.count <= JSONValue.longestName else {
        throw JSONError("has a member whose name is longer than \(JSONValue.longestName) bytes")
      }
      skipSpace()
      guard skip(UInt8(ascii: ":")) else { throw JSONError("has a member without a value") }
      skipSpace()
      members.append(JSONValue.Member(key: key, value: try value(depth: depth)))
      skipSpace()
    } while skip(UInt8(ascii: ","))
    guard skip(UInt8(ascii: "}")) else { throw JSONError("has an object that does not end") }
    if toleratesRepetitions { return .object(try withoutRepetitions(members)) }
    try refuseDuplicates(members)
    return .object(members)
  }

  /// Compares members through a set, so that time is never quadratic.
  private func refuseDuplicates(_ members: [JSONValue.Member]) throws(JSONError) {
    guard members.count > 1 else { return }
    var seen = Set<ExactText>(minimumCapacity: members.count)
    for member in members where !seen.insert(member.key).inserted {
      throw JSONError("has a member twice in one object")
    }
  }

  /// The members without repetitions, whose values must be equal.
  private func withoutRepetitions(
    _ members: [JSONValue.Member]
  ) throws(JSONError) -> [JSONValue.Member] {
    var values: [ExactText: JSONValue] = [:]
    var different: [JSONValue.Member] = []
    for member in members {
      if let known = values.updateValue(member.value, forKey: member.key) {
        guard known == member.value else { throw JSONError("has a member twice in one object") }
      } else {
        different.append(member)
      }
    }
    return different
  }

  private mutating func array(depth: Int) throws(JSONError) -> JSONValue {
    try enter(depth)
    var elements: [JSONValue] = []
    if skip(UInt8(ascii: "]")) { return .array([]) }
    repeat {
      skipSpace()
      elements.append(try value(depth: depth))
      skipSpace()
    } while skip(UInt8(ascii: ","))
    guard skip(UInt8(ascii: "]")) else { throw JSONError("has an array that does not end") }
    return .array(elements)
  }

  private mutating func enter(_ depth: Int) throws(JSONError) {
    guard depth <= JSONValue.deepestNesting else {
      throw JSONError("is nested deeper than \(JSONValue.deepestNesting) levels")
    }
    position += 1
    skipSpace()
  }

  private mutating func word(_ word: StaticString, _ value: JSONValue) throws(JSONError)
    -> JSONValue
  {
    let expected = Array(word.description.utf8)
    guard bytes.count - position >= expected.count,
      bytes[position..<position + expected.count].elementsEqual(expected)
    else { throw JSONError("has a word that is neither true, false nor null") }
    position += expected.count
    return value
  }

  // MARK: Numbers

  private mutating func number() throws(JSONError) -> JSONValue {
    let start = position
    let isNegative = skip(UInt8(ascii: "-"))
    let firstDigit = position
    var magnitude: UInt64 = 0
    var overflows = false
    while let digit = digit() {
      let (product, first) = magnitude.multipliedReportingOverflow(by: 10)
      let (sum, second) = product.addingReportingOverflow(UInt64(digit))
      (magnitude, overflows) = (sum, overflows || first || second)
      position += 1
    }
    let count = position - firstDigit
    guard count > 0, count == 1 || bytes[firstDigit] != UInt8(ascii: "0") else {
      throw JSONError("has an invalid number")
    }
    var isWhole = true
    if skip(UInt8(ascii: ".")) {
      isWhole = false
      try digits("a number that ends at its point")
    }
    if skip(UInt8(ascii: "e")) || skip(UInt8(ascii: "E")) {
      isWhole = false
      if !skip(UInt8(ascii: "+")) { _ = skip(UInt8(ascii: "-")) }
      try digits("a number that ends at its exponent")
    }
    if isWhole, !overflows {
      if isNegative, magnitude <= UInt64(Int64.max) { return .integer(-Int64(magnitude)) }
      if !isNegative, let value = Int64(exactly: magnitude) { return .integer(value) }
    }
    let text = String(decoding: bytes[start..<position], as: UTF8.self)
    if isWhole, keepsLongIntegersAsText { return .string(text) }
    guard let value = Double(text), value.isFinite else {
      throw JSONError("has a number that is too large")
    }
    return .number(value)
  }

  private func digit() -> UInt8? {
    guard position < bytes.count else { return nil }
    let digit = bytes[position] &- UInt8(ascii: "0")
    return digit < 10 ? digit : nil
  }

  private mutating func digits(_ fault: String) throws(JSONError) {
    let start = position
    while digit() != nil { position += 1 }
    guard position > start else { throw JSONError("has \(fault)") }
  }

  // MARK: Texts

  private mutating func text() throws(JSONError) -> String {
    position += 1
    let start = position
    var seen: UInt8 = 0
    while position < bytes.count {
      let byte = bytes[position]
      if byte == UInt8(ascii: "\"") {
        let text = bytes[start..<position]
        position += 1
        // Most strings are ASCII and need no validation.
        return seen < 0x80 ? String(decoding: text, as: UTF8.self) : try string(text)
      }
      if byte == UInt8(ascii: "\\") { return try escapedText(from: start) }
      guard byte >= 0x20 else { throw JSONError("has a control character in a text") }
      seen |= byte
      position += 1
    }
    throw JSONError("has a text that does not end")
  }

  private func string(_ bytes: some Collection<UInt8>) throws(JSONError) -> String {
    guard let text = String(validating: bytes, as: UTF8.self) else {
      throw JSONError("has text that is not UTF-8")
    }
    return text
  }

  private mutating func escapedText(from start: Int) throws(JSONError) -> String {
    var output = Array(bytes[start..<position])
    while position < bytes.count {
      let byte = bytes[position]
      position += 1
      switch byte {
      case UInt8(ascii: "\""): return try string(output)
      case UInt8(ascii: "\\"): try escape(to: &output)
      case 0x20...: output.append(byte)
      default: throw JSONError("has a control character in a text")
      }
    }
    throw JSONError("has a text that does not end")
  }

  private mutating func escape(to output: inout [UInt8]) throws(JSONError) {
    guard position < bytes.count else { throw JSONError("has a text that does not end") }
    let byte = bytes[position]
    position += 1
    switch byte {
    case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): output.append(byte)
    case UInt8(ascii: "b"): output.append(0x08)
    case UInt8(ascii: "f"): output.append(0x0C)
    case UInt8(ascii: "n"): output.append(0x0A)
    case UInt8(ascii: "r"): output.append(0x0D)
    case UInt8(ascii: "t"): output.append(0x09)
    case UInt8(ascii: "u"): output += String(Character(try escapedScalar())).utf8
    default: throw JSONError("has an invalid escape")
    }
  }

  private mutating func escapedScalar() throws(JSONError) -> Unicode.Scalar {
    let first = try hexadecimal()
    if let scalar = Unicode.Scalar(first) { return scalar }
    guard UTF16.isLeadSurrogate(UInt16(first)), skip(UInt8(ascii: "\\")),
      skip(UInt8(ascii: "u"))
    else { throw JSONError("has half a surrogate pair") }
    let second = try hexadecimal()
    guard UTF16.isTrailSurrogate(UInt16(second)),
      let scalar = Unicode.Scalar(0x10000 + (first - 0xD800) << 10 + (second - 0xDC00))
    else { throw JSONError("has half a surrogate pair") }
    return scalar
  }

  /// Four hexadecimal digits: 0 to 0xFFFF.
  private mutating func hexadecimal() throws(JSONError) -> UInt32 {
    guard bytes.count - position >= 4 else { throw JSONError("has a text that does not end") }
    var value: UInt32 = 0
    for byte in bytes[position..<position + 4] {
      guard let digit = Character(Unicode.Scalar(byte)).hexDigitValue else {
        throw JSONError("has an invalid escape")
      }
      value = value << 4 | UInt32(digit)
    }
    position += 4
    return value
  }

  // MARK: Steps

  private mutating func skip(_ byte: UInt8) -> Bool {
    guard position < bytes.count, bytes[position] == byte else { return false }
    position += 1
    return true
  }

  private mutating func skipSpace() {
    while position < bytes.count {
      switch bytes[position] {
      case 0x20, 0x09, 0x0A, 0x0D: position += 1
      default: return
      }
    }
  }
}
