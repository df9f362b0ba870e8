package import Foundation
package import Subscriptions

/// Writes JSON as bytes, in the order of the calls, for every answer, event and report; faster than
/// `Codable`, because apps read entitlements at every launch.
package struct JSONWriter {
  package private(set) var bytes: [UInt8] = []

  package init(capacity: Int) { bytes.reserveCapacity(capacity) }

  /// Clears the text and keeps its memory.
  package mutating func removeAll() { bytes.removeAll(keepingCapacity: true) }

  package var text: String { String(decoding: bytes, as: UTF8.self) }

  // MARK: Structure

  package mutating func object(_ members: (inout JSONWriter) throws -> Void) rethrows {
    bytes.append(UInt8(ascii: "{"))
    try members(&self)
    bytes.append(UInt8(ascii: "}"))
  }

  package mutating func array<Element>(
    _ elements: some Sequence<Element>, _ write: (inout JSONWriter, Element) throws -> Void
  ) rethrows {
    bytes.append(UInt8(ascii: "["))
    for element in elements {
      separate()
      try write(&self, element)
    }
    bytes.append(UInt8(ascii: "]"))
  }

  package mutating func object(
    _ name: String, _ members: (inout JSONWriter) throws -> Void
  ) rethrows {
    key(name)
    try object(members)
  }

  package mutating func array<Element>(
    _ name: String, _ elements: some Sequence<Element>,
    _ write: (inout JSONWriter, Element) throws -> Void
  ) rethrows {
    key(name)
    try array(elements, write)
  }

  package mutating func objects<Element>(
    _ name: String, _ elements: some Sequence<Element>,
    _ members: (inout JSONWriter, Element) throws -> Void
  ) rethrows {
    try array(name, elements) { json, element in
      try json.object { try members(&$0, element) }
    }
  }

  /// Writes a member's name of any characters; its value follows.
  mutating func key(escaping name: String) {
    separate()
    write(name)
    bytes.append(UInt8(ascii: ":"))
  }

  /// Writes a member's name, which needs no escapes; its value follows.
  package mutating func key(_ name: String) {
    separate()
    bytes.append(UInt8(ascii: "\""))
    bytes.append(contentsOf: name.utf8)
    bytes.append(UInt8(ascii: "\""))
    bytes.append(UInt8(ascii: ":"))
  }

  /// Writes a member; a value of nil is `null`.
  package mutating func member(_ name: String, _ value: some JSONWritable) {
    key(name)
    value.write(to: &self)
  }

  /// Writes an identifier or a value of an enumeration, whose raw value is the interface's name.
  package mutating func member(_ name: String, _ value: (some RawRepresentable<String>)?) {
    member(name, value?.rawValue)
  }

  /// Writes a member unless its value is nil.
  package mutating func memberIfPresent(_ name: String, _ value: (some JSONWritable)?) {
    if let value { member(name, value) }
  }

  package mutating func memberIfPresent(
    _ name: String, _ value: (some RawRepresentable<String>)?
  ) {
    memberIfPresent(name, value?.rawValue)
  }

  /// Writes a comma before all but the first member or element.
  private mutating func separate() {
    guard let last = bytes.last, last != UInt8(ascii: "{"), last != UInt8(ascii: "[") else {
      return
    }
    bytes.append(UInt8(ascii: ","))
  }

  // MARK: Values

  package mutating func null() { bytes.append(contentsOf: "null".utf8) }

  package mutating func write(json text: String) { bytes.append(contentsOf: text.utf8) }

  /// Writes bytes that are JSON already, with a closure that returns whether it has written any.
  package mutating func write(_ append: (inout [UInt8]) -> Bool) -> Bool { append(&bytes) }

  package mutating func write(_ value: Bool) {
    bytes.append(contentsOf: (value ? "true" : "false").utf8)
  }

  package mutating func write(_ value: some FixedWidthInteger) {
    bytes.append(contentsOf: String(value).utf8)
  }

  /// Writes a string with only the escapes that RFC 8259 requires.
  package mutating func write(_ text: String) {
    bytes.append(UInt8(ascii: "\""))
    defer { bytes.append(UInt8(ascii: "\"")) }
    let text = text.utf8
    // Most strings are identifiers without escapes, copied at once.
    guard text.contains(where: Self.needsEscape) else { return bytes.append(contentsOf: text) }
    for byte in text {
      switch byte {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"):
        bytes.append(UInt8(ascii: "\\"))
        bytes.append(byte)
      case UInt8(ascii: "\n"): bytes.append(contentsOf: "\\n".utf8)
      case UInt8(ascii: "\r"): bytes.append(contentsOf: "\\r".utf8)
      case UInt8(ascii: "\t"): bytes.append(contentsOf: "\\t".utf8)
      case 0..<0x20:
        bytes.append(contentsOf: "\\u00\(CollectionOfOne(byte).hexadecimal)".utf8)
      default: bytes.append(byte)
      }
    }
  }

  private static func needsEscape(_ byte: UInt8) -> Bool {
    byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
  }

  package mutating func write(_ moment: Timestamp) {
    bytes.append(UInt8(ascii: "\""))
    moment.append(to: &bytes)
    bytes.append(UInt8(ascii: "\""))
  }
}

package protocol JSONWritable {
  func write(to json: inout JSONWriter)
}

package protocol JSONObjectWritable: JSONWritable {
  func writeMembers(to json: inout JSONWriter)
}

extension JSONObjectWritable {
  package func write(to json: inout JSONWriter) { json.object(writeMembers) }
}

extension String: JSONWritable {
  package func write(to json: inout JSONWriter) { json.write(self) }
}

extension Bool: JSONWritable {
  package func write(to json: inout JSONWriter) { json.write(self) }
}

extension JSONWritable where Self: FixedWidthInteger {
  package func write(to json: inout JSONWriter) { json.write(self) }
}

extension Int: JSONWritable {}
extension Int64: JSONWritable {}

/// RFC 3339 in UTC with milliseconds.
extension Timestamp: JSONWritable {
  package func write(to json: inout JSONWriter) { json.write(self) }
}

/// In lower case, as Apple writes tokens.
extension UUID: JSONWritable {
  package func write(to json: inout JSONWriter) { json.write(text) }

  package var text: String { uuidString.lowercased() }
}

extension Optional: JSONWritable where Wrapped: JSONWritable {
  package func write(to json: inout JSONWriter) {
    guard let self else { return json.null() }
    self.write(to: &json)
  }
}

extension Array: JSONWritable where Element: JSONWritable {
  package func write(to json: inout JSONWriter) {
    json.array(self) { json, element in element.write(to: &json) }
  }
}

extension Entitlement: JSONObjectWritable {
  package func writeMembers(to json: inout JSONWriter) {
    json.member("entitlement", name)
    json.member("active", isActive)
    json.member("state", state)
    json.member("product_id", productID)
    json.member("expires_at", expiresAt)
    json.member("access_ends_at", accessEndsAt)
    json.member("ended_at", endedAt)
    json.member("ended_because", endedBecause)
    json.member("will_renew", willRenew)
    json.member("period_type", periodType)
    json.member("environment", environment)
    json.member("original_transaction_id", originalTransactionID)
    json.member("transaction_id", transactionID)
    json.member("source", source)
  }
}
