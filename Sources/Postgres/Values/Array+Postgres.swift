/// Arrays of one dimension; NULL elements need a type of optional elements.
extension Array: PostgresEncodable where Element: PostgresEncodable {
  package static var postgresType: PostgresType {
    guard let type = Element.postgresArrayType else {
      preconditionFailure("PostgreSQL has no array type for \(Element.self) that we know.")
    }
    return type
  }

  package static var postgresArrayType: PostgresType? { Element.postgresArrayType?.array }

  package func encode(into buffer: inout PostgresBuffer) {
    Element.encode(array: self, into: &buffer)
  }
}

extension Array: RowDecodable where Element: PostgresDecodable {}
extension Array: PostgresDecodable where Element: PostgresDecodable {
  package static var expectedPostgresType: String {
    Element.self == UInt8.self ? "bytea" : "\(Element.expectedPostgresType)[]"
  }

  package static func canDecode(_ type: PostgresType) -> Bool { Element.canDecodeArray(type) }

  package init(postgresBytes: RawSpan, type: PostgresType) throws {
    self = try Element.decode(arrayBytes: postgresBytes, type: type)
  }
}

/// The binary format of arrays (`array_send` in arrayfuncs.c): number of dimensions, whether there
/// are NULLs, element type; for each dimension its length and lower bound; the elements.
extension PostgresEncodable {
  package static func encode(array: [Self], into buffer: inout PostgresBuffer) {
    buffer.append(Int32(array.isEmpty ? 0 : 1))
    buffer.append(Int32(array.contains(where: \.isPostgresNull) ? 1 : 0))
    buffer.append(postgresType.rawValue)
    guard !array.isEmpty else { return }
    buffer.append(Int32(array.count))
    buffer.append(Int32(1))
    for element in array { buffer.appendWithLength(element) }
  }
}

extension PostgresDecodable {
  package static func decode(arrayBytes: RawSpan, type: PostgresType) throws -> [Self] {
    let dimensions = try arrayBytes.integer(Int32.self)
    let elementType = try PostgresType(rawValue: arrayBytes.integer(UInt32.self, at: 8))
    guard dimensions != 0 else { return [] }
    guard dimensions == 1, canDecode(elementType) else { throw DecodingFault.malformed }
    let count = try Int(arrayBytes.integer(Int32.self, at: 12))
    guard count >= 0, count <= arrayBytes.byteCount / 4 else { throw DecodingFault.malformed }
    var elements: [Self] = []
    elements.reserveCapacity(count)
    var offset = 20
    for _ in 0..<count {
      let length = try Int(arrayBytes.integer(Int32.self, at: offset))
      offset += 4
      guard length >= 0 else {
        elements.append(try decodeNull())
        continue
      }
      guard offset + length <= arrayBytes.byteCount else { throw DecodingFault.malformed }
      let bytes = arrayBytes.extracting(offset..<offset + length)
      elements.append(try Self(postgresBytes: bytes, type: elementType))
      offset += length
    }
    return elements
  }
}
