package import Subscriptions

/// A JSON value whose objects keep the order of their members: equal answers have equal bytes.
package enum JSONValue: Hashable, Sendable {
  package struct Member: Hashable, Sendable {
    package var key: ExactText
    package var value: JSONValue

    package init(key: String, value: JSONValue) {
      self.key = ExactText(key)
      self.value = value
    }
  }

  case string(String)
  case integer(Int64)
  case number(Double)
  case bool(Bool)
  case null
  case array([JSONValue])
  case object([Member])

  /// The value of a member; nil if this is not an object.
  package subscript(key: String) -> JSONValue? {
    guard case .object(let members) = self else { return nil }
    let key = ExactText(key)
    return members.first { $0.key == key }?.value
  }

  package var string: String? { if case .string(let value) = self { value } else { nil } }
  package var integer: Int64? { if case .integer(let value) = self { value } else { nil } }
  package var bool: Bool? { if case .bool(let value) = self { value } else { nil } }
  package var array: [JSONValue]? { if case .array(let value) = self { value } else { nil } }

  /// In their order; empty if this is not an object.
  package var keys: [String] {
    guard case .object(let members) = self else { return [] }
    return members.map(\.key.rawValue)
  }
}

// MARK: - Comparing

extension JSONValue {
  /// Compares strings byte by byte.
  package static func == (lhs: JSONValue, rhs: JSONValue) -> Bool {
    switch (lhs, rhs) {
    case (.string(let left), .string(let right)): ExactText(left) == ExactText(right)
    case (.integer(let left), .integer(let right)): left == right
    case (.number(let left), .number(let right)): left == right
    case (.bool(let left), .bool(let right)): left == right
    case (.null, .null): true
    case (.array(let left), .array(let right)): left == right
    case (.object(let left), .object(let right)): left == right
    default: false
    }
  }

  package func hash(into hasher: inout Hasher) {
    switch self {
    case .string(let value): hasher.combine(ExactText(value))
    case .integer(let value): hasher.combine(value)
    case .number(let value): hasher.combine(value)
    case .bool(let value): hasher.combine(value)
    case .null: hasher.combine(0)
    case .array(let elements): hasher.combine(elements)
    case .object(let members): hasher.combine(members)
    }
  }
}

extension JSONValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral,
  ExpressibleByFloatLiteral, ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral,
  ExpressibleByDictionaryLiteral
{
  package init(stringLiteral value: String) { self = .string(value) }
  package init(integerLiteral value: Int64) { self = .integer(value) }
  package init(floatLiteral value: Double) { self = .number(value) }
  package init(booleanLiteral value: Bool) { self = .bool(value) }
  package init(arrayLiteral elements: JSONValue...) { self = .array(elements) }
  package init(dictionaryLiteral elements: (String, JSONValue)...) {
    self = .object(elements.map { Member(key: $0.0, value: $0.1) })
  }
}

// MARK: - Writing

extension JSONValue: JSONWritable {
  /// UTF-8 without white space.
  package var bytes: [UInt8] {
    var json = JSONWriter(capacity: 0)
    write(to: &json)
    return json.bytes
  }

  package func write(to json: inout JSONWriter) {
    switch self {
    case .string(let value): json.write(value)
    case .integer(let value): json.write(value)
    case .number(let value): json.write(json: "\(value)")
    case .bool(let value): json.write(value)
    case .null: json.null()
    case .array(let elements): elements.write(to: &json)
    case .object(let members):
      json.object { json in
        for member in members {
          json.key(escaping: member.key.rawValue)
          member.value.write(to: &json)
        }
      }
    }
  }
}
