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
