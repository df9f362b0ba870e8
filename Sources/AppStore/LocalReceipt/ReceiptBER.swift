import SwiftASN1

/// Reads ASN.1 in BER, of which DER is a part, within limits: anybody can send what is read here.
///
/// Xcode's receipts are BER: lengths are indefinite, and octet strings come in pieces.
enum ReceiptBER {
  /// In bytes: what base64 of the largest text that is taken comes to.
  static let largestReceipt = 12 * 1024 * 1024
  /// Elements that are held at a time, some hundred bytes each.
  ///
  /// A receipt's own elements are four for each purchase, so that this is a receipt with thirty
  /// thousand of them; each purchase is then read on its own.
  static let mostElements = 1 << 17

  /// The one element that the bytes are.
  static func parse(_ bytes: ArraySlice<UInt8>) throws -> ASN1Node {
    guard bytes.count <= largestReceipt, hasFewElements(bytes) else {
      throw ReceiptFault("has too many elements")
    }
    do {
      return try BER.parse(bytes)
    } catch {
      throw ReceiptFault("is not ASN.1 from its first byte to its last")
    }
  }

  /// Whether the limit holds, told by a walk that allocates nothing.
  ///
  /// Steps into what is constructed and over what is not, so that no element is missed; where it
  /// loses its way, parsing fails at the same place.
  private static func hasFewElements(_ bytes: ArraySlice<UInt8>) -> Bool {
    var rest = bytes
    for _ in 0..<mostElements {
      guard let first = rest.popFirst() else { return true }
      if first & 0x1f == 0x1f {
        rest = rest.drop { $0 & 0x80 != 0 }.dropFirst()
      }
      guard let length = rest.popFirst() else { return true }
      let isConstructed = first & 0x20 != 0
      guard length & 0x80 != 0 else {
        if !isConstructed { rest = rest.dropFirst(Int(length)) }
        continue
      }
      let digits = rest.prefix(Int(length & 0x7f))
      rest = rest.dropFirst(digits.count)
      guard !isConstructed else { continue }
      // A length that needs more than 48 bits is longer than anything that is there.
      guard digits.drop(while: { $0 == 0 }).count <= 6 else { return true }
      rest = rest.dropFirst(digits.reduce(0) { $0 << 8 | Int($1) })
    }
    return rest.isEmpty
  }
}

extension ASN1Node {
  /// The elements of a constructed one.
  func elements(of identifier: ASN1Identifier, _ name: String) throws -> ASN1NodeCollection {
    guard self.identifier == identifier, case .constructed(let nodes) = content else {
      throw ReceiptFault("\(name) is missing or something else")
    }
    return nodes
  }

  /// The octets of a string in one piece or several.
  func octets(_ name: String) throws -> ArraySlice<UInt8> {
    do {
      return try ASN1OctetString(berEncoded: self, withIdentifier: .octetString).bytes
    } catch {
      throw ReceiptFault("\(name) is no octet string")
    }
  }

  func objectIdentifier(_ name: String) throws -> ASN1ObjectIdentifier {
    do {
      return try ASN1ObjectIdentifier(derEncoded: self)
    } catch {
      throw ReceiptFault("\(name) is no object identifier")
    }
  }

  /// The bytes of an INTEGER of any length, without those that only repeat the sign.
  func integerBytes(_ name: String) throws -> ArraySlice<UInt8> {
    guard identifier == .integer, case .primitive(var bytes) = content, !bytes.isEmpty else {
      throw ReceiptFault("\(name) is no integer")
    }
    while let first = bytes.first, let second = bytes.dropFirst().first,
      first == (second & 0x80 == 0 ? 0x00 : 0xff)
    {
      bytes.removeFirst()
    }
    return bytes
  }

  /// The value of an INTEGER; nil for one beyond 128 bits.
  func integer(_ name: String) throws -> Int128? {
    let bytes = try integerBytes(name)
    guard bytes.count <= 16 else { return nil }
    let isNegative = (bytes.first ?? 0) & 0x80 != 0
    return bytes.reduce(isNegative ? -1 : 0) { $0 << 8 | Int128($1) }
  }
}
