/// A statement, as a string literal whose interpolations are parameters, never pasted as text.
///
/// ```swift
/// let filter: SQL = "kind = ANY(\(kinds))"
/// let statement: SQL = "SELECT state FROM job WHERE job_id = \(id) AND \(filter)"
/// let rows = try await pool.query(statement)
/// ```
/// An interpolated `SQL` is inserted together with its parameters. Raw text must be written as
/// `\(unescaped: text)`.
package struct SQL: Sendable {
  /// A parameter's position among the bytes of all parameters, and that of its `$n` in the text.
  struct Parameter: Sendable {
    let type: PostgresType
    let offset: Int
    /// The number of bytes; -1 for NULL.
    let length: Int
    /// Offset of `$n` in the text, in UTF-8 bytes, so that inserting the statement needs no search.
    let placeholder: Int
  }

  /// The text sent to the server, with `$1`, `$2`, … for the parameters.
  package private(set) var text: String
  private(set) var parameters: [Parameter] = []
  private(set) var values = PostgresBuffer()

  package init(unescaped text: String) { self.text = text }

  mutating func append(text more: String) { text.append(more) }

  package mutating func bind<Value: PostgresEncodable>(_ value: Value) {
    let offset = values.count
    let isNull = value.isPostgresNull
    if !isNull { value.encode(into: &values) }
    append(Value.postgresType, at: offset, length: isNull ? -1 : values.count - offset)
  }

  /// Appends another statement and renumbers its parameters.
  package mutating func append(_ other: SQL) {
    let base = values.count
    values.append(other.values.bytes)
    var copied = other.text.utf8.startIndex
    for (index, parameter) in other.parameters.enumerated() {
      let start = other.text.utf8.index(other.text.utf8.startIndex, offsetBy: parameter.placeholder)
      text.append(contentsOf: other.text[copied..<start])
      copied = other.text.utf8.index(start, offsetBy: "$\(index + 1)".utf8.count)
      append(parameter.type, at: base + parameter.offset, length: parameter.length)
    }
    text.append(contentsOf: other.text[copied...])
  }

  private mutating func append(_ type: PostgresType, at offset: Int, length: Int) {
    parameters.append(
      Parameter(type: type, offset: offset, length: length, placeholder: text.utf8.count))
    text.append("$")
    text.append(String(parameters.count))
  }
}

extension SQL: ExpressibleByStringInterpolation {
  package struct StringInterpolation: StringInterpolationProtocol, Sendable {
    fileprivate var sql = SQL(unescaped: "")

    package init(literalCapacity: Int, interpolationCount: Int) {
      sql.reserve(text: literalCapacity, parameters: interpolationCount)
    }

    package mutating func appendLiteral(_ literal: String) { sql.append(text: literal) }

    package mutating func appendInterpolation<Value: PostgresEncodable>(_ value: Value) {
      sql.bind(value)
    }

    /// Binds a value or NULL; separate, because the compiler warns of an optional in the generic
    /// one.
    package mutating func appendInterpolation<Value: PostgresEncodable>(_ value: Value?) {
      sql.bind(value)
    }

    package mutating func appendInterpolation(_ part: SQL) { sql.append(part) }

    /// Compares the expression before it with values: equal to the only one, or to one of several.
    ///
    /// PostgreSQL keeps the plan of a comparison with a few parameters. One with an array is planned
    /// again at each execution, because the number of rows depends on the array's length.
    package mutating func appendInterpolation<Value: PostgresEncodable>(anyOf values: [Value]) {
      switch values.count {
      case 1: sql.append("= \(values[0])")
      case 2...4: sql.append("IN (\(values.map { "\($0)" as SQL }.joined()))")
      default: sql.append("= ANY(\(values))")
      }
    }

    /// Inserts text as it is: the program's own names and keywords, never external input.
    package mutating func appendInterpolation(unescaped text: String) { sql.append(text: text) }
  }

  package init(stringLiteral text: String) { self.init(unescaped: text) }

  package init(stringInterpolation: StringInterpolation) { self = stringInterpolation.sql }

  private mutating func reserve(text capacity: Int, parameters count: Int) {
    text.reserveCapacity(capacity + 2 * count)
    parameters.reserveCapacity(count)
    values.reserve(16 * count)
  }
}

extension Sequence<SQL> {
  /// Joins the parts with a separator, for example to form the rows of a VALUES list.
  package func joined(separator: String = ", ") -> SQL {
    var result = SQL(unescaped: "")
    var isFirst = true
    for part in self {
      if !isFirst { result.append(text: separator) }
      isFirst = false
      result.append(part)
    }
    return result
  }
}

extension SQL {
  /// The statements of a script, which end with semicolons outside of quotes, comments and the
  /// bodies of functions.
  static func statements(of script: String) -> [SQL] {
    let text = Array(script.utf8)
    var statements: [SQL] = []
    // The open BEGIN ATOMIC and CASE, which END closes.
    var (start, position, depth) = (0, 0, 0)
    func skip(past end: ArraySlice<UInt8>) {
      position = text[position...].firstRange(of: end)?.upperBound ?? text.count
    }
    while position < text.count {
      let rest = text[position...]
      let word = rest.prefix { isOfWord($0) }
      position += max(1, word.count)
      switch String(decoding: word.isEmpty ? rest.prefix(1) : word, as: UTF8.self).uppercased() {
      case "'", "\"": skip(past: rest.prefix(1))
      case "-" where rest.starts(with: "--".utf8): skip(past: Array("\n".utf8)[...])
      case "/" where rest.starts(with: "/*".utf8): skip(past: Array("*/".utf8)[...])
      case "$":
        let tag = rest.dropFirst().prefix { isOfWord($0) }
        let isTag = rest[tag.endIndex...].first == UInt8(ascii: "$")
        guard isTag, tag.first.map({ $0 > UInt8(ascii: "9") }) ?? true else { continue }
        position = tag.endIndex + 1
        skip(past: rest[...tag.endIndex])
      case "ATOMIC": depth = 1
      case "CASE" where depth > 0: depth += 1
      case "END" where depth > 0: depth -= 1
      case ";" where depth == 0:
        statements.append(SQL(unescaped: String(decoding: text[start..<position], as: UTF8.self)))
        start = position
      default: break
      }
    }
    let last = String(decoding: text[start...], as: UTF8.self)
    return last.allSatisfy(\.isWhitespace) ? statements : statements + [SQL(unescaped: last)]
  }

  private static func isOfWord(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "_"), 0x80...:
      true
    default: false
    }
  }
}

// libpq copies parameters into its send buffer before it returns.
extension SQL {
  /// The protocol's limit (PQ_QUERY_PARAM_MAX_LIMIT).
  static let parametersMax = 65_535

  func withTypes<T>(_ body: (UnsafePointer<UInt32>?) -> T) -> T {
    unsafe withUnsafeTemporaryAllocation(of: UInt32.self, capacity: parameters.count) { types in
      for (index, parameter) in parameters.enumerated() {
        unsafe types.initializeElement(at: index, to: parameter.type.rawValue)
      }
      return unsafe body(UnsafePointer(types.baseAddress))
    }
  }

  /// The values (a null pointer is NULL), their lengths and their formats, which are all binary.
  func withValues<T>(
    _ body: (
      UnsafePointer<UnsafePointer<CChar>?>?, UnsafePointer<Int32>?, UnsafePointer<Int32>?
    ) -> T
  ) -> T {
    let count = parameters.count
    return unsafe values.bytes.withUnsafeBytes { bytes in
      unsafe withUnsafeTemporaryAllocation(of: UnsafePointer<CChar>?.self, capacity: count) {
        pointers in
        unsafe withUnsafeTemporaryAllocation(of: Int32.self, capacity: 2 * count) { numbers in
          for (index, parameter) in parameters.enumerated() {
            unsafe pointers.initializeElement(
              at: index, to: parameter.pointer(in: bytes, ifEmpty: numbers.baseAddress))
            unsafe numbers.initializeElement(at: index, to: Int32(max(0, parameter.length)))
            unsafe numbers.initializeElement(at: count + index, to: 1)
          }
          guard let lengths = numbers.baseAddress else { return body(nil, nil, nil) }
          return unsafe body(
            UnsafePointer(pointers.baseAddress), UnsafePointer(lengths),
            UnsafePointer(lengths + count))
        }
      }
    }
  }
}

extension SQL.Parameter {
  /// The start of the value's bytes, not null for an empty value either, because null means NULL.
  fileprivate func pointer(
    in bytes: UnsafeRawBufferPointer, ifEmpty somewhere: UnsafeMutablePointer<Int32>?
  ) -> UnsafePointer<CChar>? {
    guard length >= 0 else { return nil }
    guard length > 0, let base = bytes.baseAddress else {
      return unsafe UnsafeRawPointer(somewhere)?.assumingMemoryBound(to: CChar.self)
    }
    return unsafe (base + offset).assumingMemoryBound(to: CChar.self)
  }
}
