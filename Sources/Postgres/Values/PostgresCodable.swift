/// A statement's parameter in PostgreSQL's binary format; other targets' types use a raw value.
package protocol PostgresEncodable: Sendable {
  /// The parameter's type; where the statement needs another, cast it there.
  static var postgresType: PostgresType { get }

  static var postgresArrayType: PostgresType? { get }

  /// Whether the value is SQL's NULL, which is not encoded.
  var isPostgresNull: Bool { get }

  /// Appends the value in binary format, without a length.
  func encode(into buffer: inout PostgresBuffer)

  /// Appends an array in binary format, without a length.
  static func encode(array: [Self], into buffer: inout PostgresBuffer)
}

/// A value that is decoded from the next columns of a row, usually from one.
package protocol RowDecodable: Sendable {
  /// Checks the types of its columns from `column` on, which moves behind them.
  static func check(_ rows: Rows, _ column: inout Int) throws

  init(from cursor: inout RowCursor) throws
}

/// A value that can be decoded from a column, in PostgreSQL's binary format.
package protocol PostgresDecodable: RowDecodable {
  /// The type that errors name as expected.
  static var expectedPostgresType: String { get }

  /// Whether a column of this type can be decoded; called once per column.
  static func canDecode(_ type: PostgresType) -> Bool

  static func canDecodeArray(_ type: PostgresType) -> Bool

  /// Decodes the binary format; fails with ``DecodingFault`` or an error of the type's own.
  init(postgresBytes: RawSpan, type: PostgresType) throws

  /// The value for SQL's NULL; most types have none and throw.
  static func decodeNull() throws -> Self

  static func decode(arrayBytes: RawSpan, type: PostgresType) throws -> [Self]
}

package typealias PostgresCodable = PostgresEncodable & PostgresDecodable

extension PostgresEncodable {
  package static var postgresArrayType: PostgresType? { postgresType.array }

  package var isPostgresNull: Bool { false }
}

extension PostgresDecodable {
  package static func check(_ rows: Rows, _ column: inout Int) throws {
    if column < rows.result.columnCount { try rows.check(column, Self.self) }
    column += 1
  }

  package init(from cursor: inout RowCursor) throws { self = try cursor.next(Self.self) }

  package static func canDecodeArray(_ type: PostgresType) -> Bool {
    type.element.map(canDecode) ?? false
  }

  package static func decodeNull() throws -> Self { throw DecodingFault.unexpectedNull }
}

/// The reason why a value could not be decoded; the row's reader adds the column.
package enum DecodingFault: Error {
  /// NULL where a value was expected; decode an `Optional`.
  case unexpectedNull
  case outOfRange
  /// The bytes are not in the type's binary format.
  case malformed
  /// The value is well-formed but unknown to the Swift type, such as a new enum case.
  case unknownValue
}

extension PostgresDecodable where Self: PostgresEncodable {
  package static var expectedPostgresType: String { "\(postgresType)" }
}

/// Raw-value types conform without code if their raw value does.
extension PostgresEncodable where Self: RawRepresentable, RawValue: PostgresEncodable {
  package static var postgresType: PostgresType { RawValue.postgresType }

  package var isPostgresNull: Bool { rawValue.isPostgresNull }

  package func encode(into buffer: inout PostgresBuffer) { rawValue.encode(into: &buffer) }
}

extension PostgresDecodable where Self: RawRepresentable, RawValue: PostgresDecodable {
  package static func canDecode(_ type: PostgresType) -> Bool { RawValue.canDecode(type) }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    let raw = try RawValue(postgresBytes: postgresBytes, type: type)
    guard let value = Self(rawValue: raw) else { throw DecodingFault.unknownValue }
    self = value
  }
}

extension Optional: PostgresEncodable where Wrapped: PostgresEncodable {
  package static var postgresType: PostgresType { Wrapped.postgresType }
  package static var postgresArrayType: PostgresType? { Wrapped.postgresType.array }
  package var isPostgresNull: Bool { self?.isPostgresNull ?? true }
  package func encode(into buffer: inout PostgresBuffer) { self?.encode(into: &buffer) }
}

extension Optional: RowDecodable where Wrapped: PostgresDecodable {}
extension Optional: PostgresDecodable where Wrapped: PostgresDecodable {
  package static var expectedPostgresType: String { Wrapped.expectedPostgresType }
  package static func canDecode(_ type: PostgresType) -> Bool { Wrapped.canDecode(type) }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    self = try Wrapped(postgresBytes: postgresBytes, type: type)
  }

  package static func decodeNull() throws -> Wrapped? { nil }
}
