/// A statement with its parameters, written as a string whose interpolations are bound, never
/// pasted.
///
/// ```swift
/// let statement: SQL = "SELECT state FROM job WHERE job_id = \(id) AND kind = ANY(\(kinds))"
/// ```
/// An interpolated `SQL` is spliced in with its parameters; raw text has to be spelled
/// `\(unescaped: text)`.
package struct SQL: Sendable {
  /// A parameter: its place among the bytes of all parameters, and where its `$n` stands in the
  /// text.
  struct Parameter: Sendable {
    let type: PostgresType
    let offset: Int
    /// The number of its bytes; -1 for NULL.
    let length: Int
    /// Where `$n` begins in the text, in UTF-8 bytes; so that splicing need not look for it.
    var placeholder: Int
  }

  /// The statement as the server gets it, with `$1`, `$2`, … for the parameters.
  package private(set) var text: String
  private(set) var parameters: [Parameter] = []
  private(set) var values = PostgresBuffer()

  /// Makes a statement of raw text without parameters.
  package init(unescaped text: String) {
    self.text = text
  }

  mutating func append(text more: String) {
    text.append(more)
  }

  /// Appends a value as the next parameter.
  package mutating func bind<Value: PostgresEncodable>(_ value: Value) {
    let offset = values.count
    let isNull = value.isPostgresNull
    if !isNull { value.encode(into: &values) }
    appendPlaceholder(
      Parameter(
        type: Value.postgresType, offset: offset, length: isNull ? -1 : values.count - offset,
        placeholder: 0))
  }

  /// Appends another statement, its parameters renumbered to follow ours.
  package mutating func append(_ other: SQL) {
    let base = values.count
    values.append(other.values.bytes)
    var copied = other.text.utf8.startIndex
    for (index, parameter) in other.parameters.enumerated() {
      let start = other.text.utf8.index(other.text.utf8.startIndex, offsetBy: parameter.placeholder)
      text.append(contentsOf: other.text[copied..<start])
      copied = other.text.utf8.index(start, offsetBy: "$\(index + 1)".utf8.count)
      appendPlaceholder(
        Parameter(
          type: parameter.type, offset: base + parameter.offset, length: parameter.length,
          placeholder: 0))
    }
    text.append(contentsOf: other.text[copied...])
  }

  private mutating func appendPlaceholder(_ parameter: Parameter) {
    var parameter = parameter
    parameter.placeholder = text.utf8.count
    parameters.append(parameter)
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

    package mutating func appendLiteral(_ literal: String) {
      sql.append(text: literal)
    }

    /// Binds a value as the statement's next parameter.
    package mutating func appendInterpolation<Value: PostgresEncodable>(_ value: Value) {
      sql.bind(value)
    }

    /// Binds a value or NULL as the statement's next parameter.
    ///
    /// Apart from the other one, since the compiler warns of optionals that no interpolation asks
    /// for.
    package mutating func appendInterpolation<Value: PostgresEncodable>(_ value: Value?) {
      sql.bind(value)
    }

    /// Splices in a part of a statement with its parameters.
    package mutating func appendInterpolation(_ part: SQL) {
      sql.append(part)
    }

    /// Pastes text as it is: for names and keywords of our own, never for what came from outside.
    package mutating func appendInterpolation(unescaped text: String) {
      sql.append(text: text)
    }
  }

  package init(stringLiteral text: String) {
    self.init(unescaped: text)
  }

  package init(stringInterpolation: StringInterpolation) {
    self = stringInterpolation.sql
  }

  private mutating func reserve(text capacity: Int, parameters count: Int) {
    text.reserveCapacity(capacity + 2 * count)
    parameters.reserveCapacity(count)
    values.reserve(16 * count)
  }
}

extension Sequence<SQL> {
  /// The parts one after the other with a separator between them, such as the rows of a VALUES
  /// list.
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

/// A statement's parameters as libpq takes them. libpq copies them into its send buffer before it
/// returns.
extension SQL {
  /// The most parameters that the protocol can count (PQ_QUERY_PARAM_MAX_LIMIT).
  static let parametersMax = 65_535

  func withTypes<T>(_ body: (UnsafePointer<UInt32>?) -> T) -> T {
    unsafe withUnsafeTemporaryAllocation(of: UInt32.self, capacity: parameters.count) { types in
      for (index, parameter) in parameters.enumerated() {
        unsafe types.initializeElement(at: index, to: parameter.type.rawValue)
      }
      return unsafe body(UnsafePointer(types.baseAddress))
    }
  }

  /// Values (a null pointer is NULL), lengths, and formats, all of which are binary.
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
  /// Where the value begins.
  ///
  /// An empty one must point somewhere too, for only NULL points nowhere.
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
