import Subscriptions

extension JSONValue {
  /// Decodes a value, ignoring unknown members.
  ///
  /// Finds members byte by byte, unlike Foundation's decoder, which compares canonical forms.
  ///
  /// - Parameter snakeCase: Whether the member of a property `orderID` is `order_id`.
  /// - Throws: `DecodingError` with the path of the member that is missing or of another type.
  package func decode<Value: Decodable>(_: Value.Type, snakeCase: Bool = false) throws -> Value {
    try Value(from: JSONValueDecoder(value: self, snakeCase: snakeCase, codingPath: []))
  }
}

private struct JSONValueDecoder: Decoder {
  let value: JSONValue
  let snakeCase: Bool
  let codingPath: [any CodingKey]
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  func container<Key: CodingKey>(keyedBy _: Key.Type) throws -> KeyedDecodingContainer<Key> {
    guard case .object = value else { throw mismatch([String: Any].self) }
    return KeyedDecodingContainer(JSONObjectContainer(decoder: self))
  }

  func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
    guard case .array(let elements) = value else { throw mismatch([Any].self) }
    return JSONArrayContainer(elements: elements, snakeCase: snakeCase, codingPath: codingPath)
  }

  func singleValueContainer() -> any SingleValueDecodingContainer { self }

  fileprivate func mismatch(_ type: any Any.Type) -> DecodingError {
    let context = DecodingError.Context(codingPath: codingPath, debugDescription: "")
    return value == .null ? .valueNotFound(type, context) : .typeMismatch(type, context)
  }
}

extension JSONValueDecoder: SingleValueDecodingContainer {
  func decodeNil() -> Bool { value == .null }

  func decode(_ type: Bool.Type) throws -> Bool {
    guard let flag = value.bool else { throw mismatch(type) }
    return flag
  }

  func decode(_ type: String.Type) throws -> String {
    guard let text = value.string else { throw mismatch(type) }
    return text
  }

  func decode(_ type: Double.Type) throws -> Double {
    switch value {
    case .integer(let number): return Double(number)
    case .number(let number): return number
    default: throw mismatch(type)
    }
  }

  func decode(_ type: Float.Type) throws -> Float { Float(try decode(Double.self)) }
  func decode<Value: Decodable>(_: Value.Type) throws -> Value { try Value(from: self) }

  /// An integer in range: 9.99 is of another type.
  func decode<Number: FixedWidthInteger & Decodable>(_ type: Number.Type) throws -> Number {
    let number: Number? =
      switch value {
      case .integer(let number): Number(exactly: number)
      case .number(let number): Number(exactly: number)
      default: nil
      }
    guard let number else { throw mismatch(type) }
    return number
  }
}

private struct JSONObjectContainer<Key: CodingKey>: KeyedDecodingContainerProtocol {
  let decoder: JSONValueDecoder

  var codingPath: [any CodingKey] { decoder.codingPath }
  var allKeys: [Key] { decoder.value.keys.compactMap { Key(stringValue: $0) } }

  func contains(_ key: Key) -> Bool { decoder.value[name(key)] != nil }
  func decodeNil(forKey key: Key) throws -> Bool { try decoder(key).decodeNil() }
  func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
    try decoder(key).decode(type)
  }

  func nestedContainer<Nested: CodingKey>(
    keyedBy type: Nested.Type, forKey key: Key
  ) throws -> KeyedDecodingContainer<Nested> {
    try decoder(key).container(keyedBy: type)
  }

  func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
    try decoder(key).unkeyedContainer()
  }

  func superDecoder() -> any Decoder { decoder }
  func superDecoder(forKey key: Key) throws -> any Decoder { try decoder(key) }

  private func name(_ key: Key) -> String {
    decoder.snakeCase ? key.stringValue.snakeCase : key.stringValue
  }

  private func decoder(_ key: Key) throws -> JSONValueDecoder {
    let key = JSONKey(stringValue: name(key))
    guard let member = decoder.value[key.stringValue] else {
      throw DecodingError.keyNotFound(
        key, DecodingError.Context(codingPath: codingPath, debugDescription: ""))
    }
    return JSONValueDecoder(
      value: member, snakeCase: decoder.snakeCase, codingPath: codingPath + [key])
  }
}

private struct JSONArrayContainer: UnkeyedDecodingContainer {
  let elements: [JSONValue]
  let snakeCase: Bool
  let codingPath: [any CodingKey]
  var currentIndex = 0

  var count: Int? { elements.count }
  var isAtEnd: Bool { currentIndex == elements.count }

  mutating func decodeNil() throws -> Bool {
    guard try decoder().decodeNil() else { return false }
    currentIndex += 1
    return true
  }

  mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
    try advance { try $0.decode(type) }
  }

  mutating func nestedContainer<Nested: CodingKey>(
    keyedBy type: Nested.Type
  ) throws -> KeyedDecodingContainer<Nested> {
    try advance { try $0.container(keyedBy: type) }
  }

  mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
    try advance { try $0.unkeyedContainer() }
  }

  mutating func superDecoder() throws -> any Decoder { try advance { $0 } }

  /// Moves on to the next element, unless reading this one fails.
  private mutating func advance<Value>(
    _ read: (JSONValueDecoder) throws -> Value
  ) throws -> Value {
    let value = try read(decoder())
    currentIndex += 1
    return value
  }

  private func decoder() throws -> JSONValueDecoder {
    let path = codingPath + [JSONKey(intValue: currentIndex)]
    guard !isAtEnd else {
      throw DecodingError.valueNotFound(
        Any.self, DecodingError.Context(codingPath: path, debugDescription: ""))
    }
    return JSONValueDecoder(
      value: elements[currentIndex], snakeCase: snakeCase, codingPath: path)
  }
}

/// The name of a member or the index of an element.
private struct JSONKey: CodingKey {
  let stringValue: String
  var intValue: Int?

  init(stringValue: String) { self.stringValue = stringValue }

  init(intValue: Int) {
    self.intValue = intValue
    stringValue = "\(intValue)"
  }
}

extension String {
  /// `orderID` as `order_id`.
  fileprivate var snakeCase: String {
    var (result, afterLowercase) = ("", false)
    for character in self {
      if character.isUppercase, afterLowercase { result += "_" }
      result += character.lowercased()
      afterLowercase = character.isLowercase
    }
    return result
  }
}
