package import JSONText
package import Subscriptions

/// An object of Apple's, described by one list of its fields that serves reading and writing.
///
/// Nothing is lost: what the list does not name, Apple may add any day, and it is kept as it came.
package protocol JSONPayload: Hashable, Sendable, JSONFieldValue {
  init()
  /// Every field that is documented.
  static var fields: JSONFields<Self> { get }
  /// The members that ``fields`` does not name, and those that are null.
  var unknownFields: [JSONValue.Member] { get set }
}

extension JSONPayload {
  /// Reads an object of Apple's.
  ///
  /// - Throws: ``JSONError`` for what is no object, and for a field of another type than it is
  ///   documented with.
  package init(json: JSONValue) throws(JSONError) {
    guard case .object(let members) = json else { throw JSONError("is no object") }
    self.init()
    let fields = Self.fields
    for member in members {
      guard member.value != .null, let index = fields.index(of: member.key) else {
        unknownFields.append(member)
        continue
      }
      do {
        try fields.all[index].read(member.value, &self)
      } catch {
        throw JSONError("has a field \(fields.all[index].name) that \(error)")
      }
    }
  }

  /// The object as Apple writes it: the documented fields in their order, then the others.
  package var json: JSONValue {
    .object(
      Self.fields.all.compactMap { field in
        field.write(self).map { JSONValue.Member(key: field.name, value: $0) }
      } + unknownFields)
  }

  /// Reads a JSON text.
  ///
  /// - Throws: ``JSONError``.
  package init(parsing bytes: some Sequence<UInt8>) throws {
    try self.init(json: JSONValue(parsing: bytes))
  }
}

/// What one member of an object can hold.
package protocol JSONFieldValue: Sendable {
  /// Reads the member.
  ///
  /// - Throws: ``JSONError`` with a clause on what is wrong: "is no text".
  init(json: JSONValue) throws(JSONError)
  var json: JSONValue { get }
}

/// One member of an object: its name, and the property that holds it.
package struct JSONField<Payload: Sendable>: Sendable {
  /// As Apple writes it.
  package let name: String
  let read: @Sendable (JSONValue, inout Payload) throws(JSONError) -> Void
  let write: @Sendable (Payload) -> JSONValue?

  /// - Parameters:
  ///   - name: As Apple writes it.
  ///   - property: Nil where the member is absent.
  package init<Value: JSONFieldValue>(
    _ name: String, _ property: any WritableKeyPath<Payload, Value?> & Sendable
  ) {
    self.name = name
    read = { json, payload throws(JSONError) in
      payload[keyPath: property] = try Value(json: json)
    }
    write = { $0[keyPath: property]?.json }
  }
}

/// The fields of an object, in the order in which they are written.
package struct JSONFields<Payload: Sendable>: Sendable {
  let all: [JSONField<Payload>]
  private let indices: [ExactText: Int]

  /// The fields in that order, each of another name.
  package init(_ fields: [JSONField<Payload>]) {
    all = fields
    indices = Dictionary(uniqueKeysWithValues: fields.enumerated().map { (ExactText($1.name), $0) })
  }

  func index(of name: ExactText) -> Int? { indices[name] }
}

// MARK: - Values

extension String: JSONFieldValue {
  /// Takes a whole number for a text, too: old data have identifiers so.
  package init(json: JSONValue) throws(JSONError) {
    switch json {
    case .string(let text): self = text
    case .integer(let number): self = String(number)
    default: throw JSONError("is no text")
    }
  }

  package var json: JSONValue { .string(self) }
}

extension Int64: JSONFieldValue {
  package init(json: JSONValue) throws(JSONError) {
    guard case .integer(let number) = json else { throw JSONError("is no whole number") }
    self = number
  }

  package var json: JSONValue { .integer(self) }
}

extension Bool: JSONFieldValue {
  package init(json: JSONValue) throws(JSONError) {
    guard case .bool(let flag) = json else { throw JSONError("is neither true nor false") }
    self = flag
  }

  package var json: JSONValue { .bool(self) }
}

extension Timestamp: JSONFieldValue {
  /// Milliseconds since 1970, in the years that can be written down; Xcode's have a fraction, which
  /// is dropped.
  package init(json: JSONValue) throws(JSONError) {
    let milliseconds: Int64?
    switch json {
    case .integer(let number): milliseconds = number
    case .number(let number): milliseconds = Int64(exactly: number.rounded(.down))
    default: throw JSONError("is no number of milliseconds")
    }
    guard let milliseconds, Self.appStoreRange.contains(Self(milliseconds: milliseconds)) else {
      throw JSONError("is a date outside the years 1970 to 9999")
    }
    self.init(milliseconds: milliseconds)
  }

  package var json: JSONValue { .integer(milliseconds) }

  /// What Apple can mean: nothing was sold before 1970.
  static let appStoreRange = Timestamp(milliseconds: 0)...Self.writable.upperBound
}

extension Array: JSONFieldValue where Element: JSONFieldValue {
  package init(json: JSONValue) throws(JSONError) {
    guard case .array(let elements) = json else { throw JSONError("is no array") }
    self = []
    reserveCapacity(elements.count)
    for element in elements { append(try Element(json: element)) }
  }

  package var json: JSONValue { .array(map(\.json)) }
}

/// One of a set of words or numbers that Apple may add to any day: each is kept as it is written.
package protocol OpenEnumeration: RawRepresentable, Hashable, Sendable, JSONFieldValue
where RawValue: JSONFieldValue & Hashable {
  init(rawValue: RawValue)
}

extension OpenEnumeration {
  package init(json: JSONValue) throws(JSONError) {
    self.init(rawValue: try RawValue(json: json))
  }

  package var json: JSONValue { rawValue.json }
}
