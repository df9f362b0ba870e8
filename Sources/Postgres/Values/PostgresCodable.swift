/// A value that can be a parameter of a statement, in PostgreSQL's binary format.
///
/// Types of other targets conform most easily through ``PostgresRepresentable``, or by having a raw
/// value.
package protocol PostgresEncodable: Sendable {
  /// The type that the server is told this parameter has; cast in the statement where another is
  /// wanted.
  static var postgresType: PostgresType { get }

  /// The type of an array of these.
  static var postgresArrayType: PostgresType? { get }

  /// Whether the value is SQL's NULL; it is then not encoded.
  var isPostgresNull: Bool { get }

  /// Appends the value in binary format, without its length.
  func encode(into buffer: inout PostgresBuffer)

  /// Appends an array of values in binary format, without its length.
  static func encode(array: [Self], into buffer: inout PostgresBuffer)
}

/// A value that can be read from a column, in PostgreSQL's binary format.
package protocol PostgresDecodable: Sendable {
  /// The type named in errors: what was expected.
  static var expectedPostgresType: String { get }

  /// Whether a column of that type can be read as this; asked once per column.
  static func canDecode(_ type: PostgresType) -> Bool

  /// Whether an array of that type can be read as an array of these.
  static func canDecodeArray(_ type: PostgresType) -> Bool

  /// Reads the value from its binary format.
  ///
  /// - Throws: ``DecodingFault`` or an error of the type's own.
  init(postgresBytes: RawSpan, type: PostgresType) throws

  /// What SQL's NULL is; most types have no such value and throw.
  static func decodeNull() throws -> Self

  /// Reads an array of values from its binary format.
  static func decode(arrayBytes: RawSpan, type: PostgresType) throws -> [Self]
}

/// A value that travels to PostgreSQL and back.
package typealias PostgresCodable = PostgresEncodable & PostgresDecodable

extension PostgresEncodable {
  package static var postgresArrayType: PostgresType? { postgresType.array }

  package var isPostgresNull: Bool { false }
}

extension PostgresDecodable {
  package static func canDecodeArray(_ type: PostgresType) -> Bool {
    type.element.map(canDecode) ?? false
  }

  package static func decodeNull() throws -> Self {
    throw DecodingFault.unexpectedNull
  }
}

/// Why the bytes of one value could not be read; the reader of the row adds which column it was.
package enum DecodingFault: Error {
  /// NULL where a value was expected: decode an `Optional`.
  case unexpectedNull
  /// The value does not fit the type asked for.
  case outOfRange
  /// The bytes are not what that type's binary format looks like.
  case malformed
  /// The value is well-formed and means nothing to the Swift type, such as an unknown enum case.
  case unknownValue
}

/// A type that travels as another one which already can: a moment as a timestamp, an identifier as
/// text.
///
/// ```swift
/// extension Moment: PostgresRepresentable {
///   var postgresValue: PostgresTimestamp { … }
///   init(postgresValue: PostgresTimestamp) throws { … }
/// }
/// ```
package protocol PostgresRepresentable: PostgresCodable {
  associatedtype PostgresValue: PostgresCodable

  /// The value as it is stored.
  var postgresValue: PostgresValue { get }

  /// Makes the value from what is stored.
  ///
  /// - Throws: ``DecodingFault`` or an error of the type's own when what is stored means nothing to
  ///   it.
  init(postgresValue: PostgresValue) throws
}

extension PostgresRepresentable {
  package static var postgresType: PostgresType { PostgresValue.postgresType }

  package var isPostgresNull: Bool { postgresValue.isPostgresNull }

  package func encode(into buffer: inout PostgresBuffer) {
    postgresValue.encode(into: &buffer)
  }

  package static var expectedPostgresType: String { PostgresValue.expectedPostgresType }

  package static func canDecode(_ type: PostgresType) -> Bool { PostgresValue.canDecode(type) }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    try self.init(postgresValue: PostgresValue(postgresBytes: postgresBytes, type: type))
  }
}

/// What has a raw value which can travel needs to say no more than that it conforms.
extension PostgresEncodable where Self: RawRepresentable, RawValue: PostgresEncodable {
  package static var postgresType: PostgresType { RawValue.postgresType }

  package var isPostgresNull: Bool { rawValue.isPostgresNull }

  package func encode(into buffer: inout PostgresBuffer) {
    rawValue.encode(into: &buffer)
  }
}

extension PostgresDecodable where Self: RawRepresentable, RawValue: PostgresDecodable {
  package static var expectedPostgresType: String { RawValue.expectedPostgresType }

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

extension Optional: PostgresDecodable where Wrapped: PostgresDecodable {
  package static var expectedPostgresType: String { Wrapped.expectedPostgresType }
  package static func canDecode(_ type: PostgresType) -> Bool { Wrapped.canDecode(type) }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    self = try Wrapped(postgresBytes: postgresBytes, type: type)
  }

  package static func decodeNull() throws -> Wrapped? { nil }
}
