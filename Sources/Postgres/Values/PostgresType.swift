/// The OID of a PostgreSQL type, fixed in `pg_type` for built-in types.
package struct PostgresType: RawRepresentable, Hashable, Sendable {
  package let rawValue: UInt32

  package init(rawValue: UInt32) {
    self.rawValue = rawValue
  }

  package static let bool = PostgresType(rawValue: 16)
  package static let bytea = PostgresType(rawValue: 17)
  package static let char = PostgresType(rawValue: 18)
  package static let name = PostgresType(rawValue: 19)
  package static let int8 = PostgresType(rawValue: 20)
  package static let int2 = PostgresType(rawValue: 21)
  package static let int4 = PostgresType(rawValue: 23)
  package static let text = PostgresType(rawValue: 25)
  package static let oid = PostgresType(rawValue: 26)
  package static let json = PostgresType(rawValue: 114)
  package static let float4 = PostgresType(rawValue: 700)
  package static let float8 = PostgresType(rawValue: 701)
  package static let unknown = PostgresType(rawValue: 705)
  package static let bpchar = PostgresType(rawValue: 1042)
  package static let varchar = PostgresType(rawValue: 1043)
  package static let timestamptz = PostgresType(rawValue: 1184)
  package static let void = PostgresType(rawValue: 2278)
  package static let uuid = PostgresType(rawValue: 2950)
  package static let jsonb = PostgresType(rawValue: 3802)

  /// Whether the type was made with CREATE TYPE; its OID then differs between databases.
  package var isUserDefined: Bool { rawValue >= 16384 }

  private static let arrays: [PostgresType: PostgresType] = [
    .bool: PostgresType(rawValue: 1000), .bytea: PostgresType(rawValue: 1001),
    .char: PostgresType(rawValue: 1002), .name: PostgresType(rawValue: 1003),
    .int2: PostgresType(rawValue: 1005), .int4: PostgresType(rawValue: 1007),
    .text: PostgresType(rawValue: 1009), .bpchar: PostgresType(rawValue: 1014),
    .varchar: PostgresType(rawValue: 1015), .int8: PostgresType(rawValue: 1016),
    .float4: PostgresType(rawValue: 1021), .float8: PostgresType(rawValue: 1022),
    .oid: PostgresType(rawValue: 1028), .timestamptz: PostgresType(rawValue: 1185),
    .json: PostgresType(rawValue: 199), .uuid: PostgresType(rawValue: 2951),
    .jsonb: PostgresType(rawValue: 3807),
  ]

  private static let elements = Dictionary(
    uniqueKeysWithValues: arrays.map { (element, array) in (array, element) })

  /// The array type of this type, if it is listed above.
  package var array: PostgresType? { Self.arrays[self] }

  /// The element type of this array type, if it is listed above.
  package var element: PostgresType? { Self.elements[self] }
}

extension PostgresType: CustomStringConvertible {
  private static let names: [PostgresType: String] = [
    .bool: "bool", .bytea: "bytea", .char: "\"char\"", .name: "name", .int8: "int8", .int2: "int2",
    .int4: "int4", .text: "text", .oid: "oid", .json: "json", .float4: "float4", .float8: "float8",
    .unknown: "unknown", .bpchar: "bpchar", .varchar: "varchar", .timestamptz: "timestamptz",
    .void: "void", .uuid: "uuid", .jsonb: "jsonb",
  ]

  package var description: String {
    if let name = Self.names[self] { return name }
    if let element { return "\(element)[]" }
    return "type \(rawValue)"
  }
}
