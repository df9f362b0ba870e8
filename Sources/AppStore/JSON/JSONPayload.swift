package import JSONText
package import Subscriptions

/// A JSON object of Apple's, read and written through one list of fields.
///
/// Members that the list does not name are kept unchanged, because Apple adds fields at any time.
package protocol JSONPayload: Hashable, Sendable, JSONFieldValue {
  init()
  static var fields: JSONFields<Self> { get }
  /// Members that ``fields`` does not name, and null members.
  var unknownFields: [JSONValue.Member] { get set }
}

extension JSONPayload {
  /// Reads the object; fails if a documented field has the wrong type.
  package init(json: JSONValue) throws(JSONError) {
    guard case .object(let members) = json else { throw JSONError("is not an object") }
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

  /// The documented fields in their order, then the others.
  package var json: JSONValue {
    .object(
      Self.fields.all.compactMap { field in
        field.write(self).map { JSONValue.Member(key: field.name, value: $0) }
      } + unknownFields)
  }

  package init(parsing bytes: some Sequence<UInt8>) throws {
    try self.init(json: JSONValue(parsing: bytes))
  }
}

package protocol JSONFieldValue: Sendable {
  /// Reads the value; a ``JSONError`` is a clause such as "is not a string".
  init(json: JSONValue) throws(JSONError)
  var json: JSONValue { get }
}

package struct JSONField<Payload: Sendable>: Sendable {
  /// Apple's name of the field.
  package let name: String
  let read: @Sendable (JSONValue, inout Payload) throws(JSONError) -> Void
  let write: @Sendable (Payload) -> JSONValue?

  /// - Parameter property: Nil if the field is absent.
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

  /// Field names must be unique.
  package init(_ fields: [JSONField<Payload>]) {
    all = fields
    indices = Dictionary(uniqueKeysWithValues: fields.enumerated().map { (ExactText($1.name), $0) })
  }

  func index(of name: ExactText) -> Int? { indices[name] }
}

// MARK: - Values

extension String: JSONFieldValue {
  /// Also accepts an integer, because old data contain identifiers written as numbers.
  package init(json: JSONValue) throws(JSONError) {
    switch json {
    case .string(let text): self = text
    case .integer(let number): self = String(number)
    default: throw JSONError("is not a string")
    }
  }

  package var json: JSONValue { .string(self) }
}

extension Int64: JSONFieldValue {
  package init(json: JSONValue) throws(JSONError) {
    guard case .integer(let number) = json else { throw JSONError("is not an integer") }
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
  /// Milliseconds since 1970, up to the year 9999; the fraction that Xcode writes is dropped.
  package init(json: JSONValue) throws(JSONError) {
    let milliseconds: Int64?
    switch json {
    case .integer(let number): milliseconds = number
    case .number(let number): milliseconds = Int64(exactly: number.rounded(.down))
    default: throw JSONError("is not a number of milliseconds")
    }
    guard let milliseconds, Self.appStoreRange.contains(Self(milliseconds: milliseconds)) else {
      throw JSONError("is a date outside the years 1970 to 9999")
    }
    self.init(milliseconds: milliseconds)
  }

  package var json: JSONValue { .integer(milliseconds) }

  /// Dates that Apple can mean: nothing was sold before 1970.
  static let appStoreRange = Timestamp(milliseconds: 0)...Self.writable.upperBound
}

extension Array: JSONFieldValue where Element: JSONFieldValue {
  package init(json: JSONValue) throws(JSONError) {
    guard case .array(let elements) = json else { throw JSONError("is not an array") }
    self = []
    reserveCapacity(elements.count)
    for element in elements { append(try Element(json: element)) }
  }

  package var json: JSONValue { .array(map(\.json)) }
}

/// A set of strings or numbers that Apple may extend; unknown ones are kept unchanged.
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
