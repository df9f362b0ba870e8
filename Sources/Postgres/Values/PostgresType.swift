/// The OID of a PostgreSQL type, fixed in `pg_type` for built-in types.
package struct PostgresType: RawRepresentable, Hashable, Sendable {
  package let rawValue: UInt32

  package init(rawValue: UInt32) { self.rawValue = rawValue }

  package static let bool = Self(rawValue: 16)
  package static let bytea = Self(rawValue: 17)
  package static let char = Self(rawValue: 18)
  package static let name = Self(rawValue: 19)
  package static let int8 = Self(rawValue: 20)
  package static let int2 = Self(rawValue: 21)
  package static let int4 = Self(rawValue: 23)
  package static let text = Self(rawValue: 25)
  package static let json = Self(rawValue: 114)
  package static let float4 = Self(rawValue: 700)
  package static let float8 = Self(rawValue: 701)
  package static let unknown = Self(rawValue: 705)
  package static let bpchar = Self(rawValue: 1042)
  package static let varchar = Self(rawValue: 1043)
  package static let timestamptz = Self(rawValue: 1184)
  package static let uuid = Self(rawValue: 2950)

  /// Whether the type was made with CREATE TYPE; its OID then differs between databases.
  package var isUserDefined: Bool { rawValue >= 16384 }

  /// The built-in types that are used, and the OIDs of their arrays; 0 for none.
  private static let known: [(oid: UInt32, name: String, array: UInt32)] = [
    (16, "bool", 1000), (17, "bytea", 1001), (18, "\"char\"", 1002), (19, "name", 1003),
    (20, "int8", 1016), (21, "int2", 1005), (23, "int4", 1007), (25, "text", 1009),
    (26, "oid", 1028), (114, "json", 199), (700, "float4", 1021), (701, "float8", 1022),
    (705, "unknown", 0), (1042, "bpchar", 1014), (1043, "varchar", 1015),
    (1184, "timestamptz", 1185), (2278, "void", 0), (2950, "uuid", 2951), (3802, "jsonb", 3807),
  ]
  private static let names = Dictionary(uniqueKeysWithValues: known.map { ($0.oid, $0.name) })
  private static let arrays = Dictionary(
    uniqueKeysWithValues: known.filter { $0.array != 0 }.map { ($0.oid, $0.array) })
  private static let elements = Dictionary(uniqueKeysWithValues: arrays.map { ($1, $0) })

  /// The array type of this type, if it is listed above.
  package var array: PostgresType? { Self.arrays[rawValue].map(Self.init) }

  /// The element type of this array type, if it is listed above.
  package var element: PostgresType? { Self.elements[rawValue].map(Self.init) }
}

extension PostgresType: CustomStringConvertible {
  package var description: String {
    if let name = Self.names[rawValue] { return name }
    if let element { return "\(element)[]" }
    return "type \(rawValue)"
  }
}
