/// A JSON value, for building Apple's answers and for turning them over.
enum JSON: Hashable, Codable, Sendable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral,
  ExpressibleByBooleanLiteral, ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
  case null
  case bool(Bool)
  case number(Int64)
  case text(String)
  case array([JSON])
  case object([String: JSON])

  init(stringLiteral value: String) { self = .text(value) }
  init(integerLiteral value: Int64) { self = .number(value) }
  init(booleanLiteral value: Bool) { self = .bool(value) }
  init(arrayLiteral elements: JSON...) { self = .array(elements) }
  init(dictionaryLiteral elements: (String, JSON)...) {
    self = .object(Dictionary(elements) { _, last in last })
  }

  init(from decoder: any Decoder) throws {
    let value = try decoder.singleValueContainer()
    if value.decodeNil() {
      self = .null
    } else if let text = try? value.decode(String.self) {
      self = .text(text)
    } else if let number = try? value.decode(Int64.self) {
      self = .number(number)
    } else if let flag = try? value.decode(Bool.self) {
      self = .bool(flag)
    } else if let array = try? value.decode([JSON].self) {
      self = .array(array)
    } else {
      self = .object(try value.decode([String: JSON].self))
    }
  }

  func encode(to encoder: any Encoder) throws {
    var value = encoder.singleValueContainer()
    switch self {
    case .null: try value.encodeNil()
    case .bool(let flag): try value.encode(flag)
    case .number(let number): try value.encode(number)
    case .text(let text): try value.encode(text)
    case .array(let array): try value.encode(array)
    case .object(let object): try value.encode(object)
    }
  }

  /// The member of that name, or null; setting null removes it.
  subscript(name: String) -> JSON {
    get {
      guard case .object(let members) = self else { return .null }
      return members[name] ?? .null
    }
    set {
      guard case .object(var members) = self else { return }
      members[name] = newValue == .null ? nil : newValue
      self = .object(members)
    }
  }

  /// This object with those members set.
  func with(_ members: [String: JSON]) -> JSON {
    members.reduce(into: self) { $0[$1.key] = $1.value }
  }
}
