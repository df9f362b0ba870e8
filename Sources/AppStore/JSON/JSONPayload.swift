package import JSONText
package import Subscriptions

/// A JSON object of Apple's, whose documented members are the properties of `Fields`.
///
/// ```swift
/// var payload = JWSTransactionDecodedPayload()
/// payload.productID = "monthly"  // {"productId": "monthly"}
/// ```
/// All members are kept unchanged, because Apple adds fields at any time.
@dynamicMemberLookup
package struct JSONPayload<Fields: JSONFields>: Hashable, Sendable, JSONFieldValue {
  private(set) var members: [JSONValue.Member] = [] {
    didSet { digests = members.map { Fields.schema.field(of: $0)?.digest } }
  }
  /// Of the members' documented keys; nil for others.
  private var digests: [UInt64?] = []

  package init() {}

  /// Reads the object; fails if a documented field has the wrong type.
  package init(json: JSONValue) throws(JSONError) {
    guard case .object(let members) = json else { throw JSONError("is not an object") }
    self.members = members
    digests.reserveCapacity(members.count)
    for member in members {
      guard let field = Fields.schema.field(of: member) else {
        digests.append(nil)
        continue
      }
      digests.append(field.digest)
      guard member.value != .null else { continue }
      do {
        try field.check(member.value)
      } catch {
        throw JSONError("has a field \(member.key.rawValue) that \(error)")
      }
    }
  }

  package init?(checked json: JSONValue) {
    guard case .object(let members) = json else { return nil }
    self.members = members
    digests = members.map { Fields.schema.field(of: $0)?.digest }
  }

  package init(parsing bytes: some Sequence<UInt8>) throws {
    try self.init(json: JSONValue(parsing: bytes))
  }

  package var json: JSONValue { .object(members) }

  /// The value of a documented field; nil if it is absent or null.
  package subscript<Value>(dynamicMember field: KeyPath<Fields, JSONField<Value>>) -> Value? {
    get {
      let digest = Fields.schema.fields[keyPath: field].digest
      guard let index = digests.firstIndex(of: digest), members[index].value != .null else {
        return nil
      }
      return Value(checked: members[index].value)
    }
    set {
      let name = Fields.schema.fields[keyPath: field].name
      members.removeAll { $0.key == name }
      if let json = newValue?.json {
        members.append(JSONValue.Member(key: name.rawValue, value: json))
      }
    }
  }
}

/// The documented members of a JSON object, each a stored ``JSONField``.
package protocol JSONFields: Sendable {
  typealias Payload = JSONPayload<Self>
  static var schema: JSONSchema<Self> { get }
}

package struct JSONSchema<Fields: JSONFields>: Sendable {
  let fields: Fields
  private let fieldsByDigest: [UInt64: any NamedJSONField]

  /// Finds the fields among the stored properties; their names' digests must be unique.
  package init(_ fields: Fields) {
    self.fields = fields
    let all = Mirror(reflecting: fields).children.compactMap { $0.value as? any NamedJSONField }
    precondition(!all.isEmpty, "Without reflection metadata no field would be checked.")
    fieldsByDigest = Dictionary(uniqueKeysWithValues: all.map { ($0.digest, $0) })
  }

  func field(of member: JSONValue.Member) -> (any NamedJSONField)? {
    fieldsByDigest[member.key.digest].flatMap { $0.name == member.key ? $0 : nil }
  }

  func name<Value>(_ field: KeyPath<Fields, JSONField<Value>>) -> String {
    fields[keyPath: field].name.rawValue
  }
}

package struct JSONField<Value: JSONFieldValue>: NamedJSONField {
  let name: ExactText
  /// Of the name: comparing texts would take a tenth of the time of verifying a transaction.
  let digest: UInt64

  package init(_ name: String) {
    self.name = ExactText(name)
    digest = self.name.digest
  }

  func check(_ json: JSONValue) throws(JSONError) { _ = try Value(json: json) }
}

extension ExactText {
  fileprivate var digest: UInt64 {
    rawValue.utf8.reduce(0xCBF2_9CE4_8422_2325) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
  }
}

protocol NamedJSONField: Sendable {
  var name: ExactText { get }
  var digest: UInt64 { get }
  func check(_ json: JSONValue) throws(JSONError)
}

package protocol JSONFieldValue: Sendable {
  /// Reads the value; a ``JSONError`` is a clause such as "is not a string".
  init(json: JSONValue) throws(JSONError)
  /// Reads a value that ``init(json:)`` accepts, without checking its fields again.
  init?(checked json: JSONValue)
  var json: JSONValue { get }
}

extension JSONFieldValue {
  package init?(checked json: JSONValue) {
    guard let value = try? Self(json: json) else { return nil }
    self = value
  }
}

// MARK: - Values

extension JSONValue: JSONFieldValue {
  package init(json: JSONValue) { self = json }
  package var json: JSONValue { self }
}

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
    self = try elements.map { (json) throws(JSONError) in try Element(json: json) }
  }

  package var json: JSONValue { .array(map(\.json)) }
}

/// A set of strings or numbers that Apple may extend; unknown ones are kept unchanged.
package protocol OpenEnumeration: RawRepresentable, Hashable, Sendable, JSONFieldValue
where RawValue: JSONFieldValue & Hashable {
  init(rawValue: RawValue)
}

extension OpenEnumeration {
  package init(json: JSONValue) throws(JSONError) { self.init(rawValue: try RawValue(json: json)) }

  package var json: JSONValue { rawValue.json }
}
