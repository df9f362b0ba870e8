import SwiftASN1

/// PKCS#7 SignedData around a receipt (RFC 5652, section 5), in BER or DER.
struct ReceiptContainer {
  /// In bytes: Apple's certificates stay below two thousand.
  private static let largestCertificate = 16 * 1024
  /// Apple sends three.
  private static let mostCertificates = 8

  /// What was signed: the receipt itself.
  let content: ArraySlice<UInt8>
  /// The certificates as DER.
  let certificates: [ArraySlice<UInt8>]
  private let signerInfos: ASN1NodeCollection

  /// Throws ``LocalReceiptRefusal`` for anything else.
  init(parsing bytes: ArraySlice<UInt8>) throws {
    guard bytes.count <= ReceiptBER.largestReceipt else {
      throw LocalReceiptRefusal(.tooLarge, "The receipt is too large.")
    }
    let info: ASN1NodeCollection
    do {
      info = try ReceiptBER.parse(bytes).elements(of: .sequence, "the content info")
    } catch {
      throw LocalReceiptRefusal(.notAReceipt, "What was sent \(error).")
    }
    do {
      var fields = info.makeIterator()
      guard try fields.next()?.objectIdentifier("the content type") == .signedData else {
        throw LocalReceiptRefusal(.notAReceipt, "What was sent is not PKCS#7 SignedData.")
      }
      guard let wrapper = fields.next() else { throw ReceiptFault("the content is missing") }
      var inner = try wrapper.elements(of: .tagged(0), "the content").makeIterator()
      guard let signedData = inner.next() else { throw ReceiptFault("the content is empty") }
      (content, certificates, signerInfos) = try Self.parts(of: signedData)
    } catch let fault as ReceiptFault {
      throw LocalReceiptRefusal(.malformed, "The receipt can't be read: \(fault).")
    }
  }

  private static func parts(
    of signedData: ASN1Node
  ) throws -> (ArraySlice<UInt8>, [ArraySlice<UInt8>], ASN1NodeCollection) {
    var fields = try signedData.elements(of: .sequence, "SignedData").makeIterator()
    guard let version = fields.next(), let digests = fields.next(), let envelope = fields.next()
    else { throw ReceiptFault("SignedData breaks off") }
    _ = try version.integerBytes("the version")
    _ = try digests.elements(of: .set, "the list of digest algorithms")

    var envelopeFields = try envelope.elements(of: .sequence, "the envelope").makeIterator()
    guard try envelopeFields.next()?.objectIdentifier("the content's type") == .data else {
      throw ReceiptFault("the content is not of type data")
    }
    guard let wrapper = envelopeFields.next() else { throw ReceiptFault("the content is missing") }
    var wrapped = try wrapper.elements(of: .tagged(0), "the content").makeIterator()
    guard let content = try wrapped.next()?.octets("the content"), wrapped.next() == nil else {
      throw ReceiptFault("the content is not one octet string")
    }

    var certificates: [ArraySlice<UInt8>] = []
    var field = fields.next()
    if let node = field, node.identifier == .tagged(0) {
      for certificate in try node.elements(of: .tagged(0), "the list of certificates") {
        guard certificates.count < mostCertificates,
          certificate.encodedBytes.count <= largestCertificate
        else { throw ReceiptFault("there are too many certificates, or one is too large") }
        certificates.append(certificate.encodedBytes)
      }
      field = fields.next()
    }
    if let node = field, node.identifier == .tagged(1) { field = fields.next() }
    guard let field else { throw ReceiptFault("the signers are missing") }
    return (content, certificates, try field.elements(of: .set, "the list of signers"))
  }

  /// The one signer.
  func signer() throws -> ReceiptSigner {
    var signers = signerInfos.makeIterator()
    guard let signer = signers.next(), signers.next() == nil else {
      throw LocalReceiptRefusal(.notOneSigner, "The receipt is not signed by exactly one signer.")
    }
    do {
      return try ReceiptSigner(signer)
    } catch let fault as ReceiptFault {
      throw LocalReceiptRefusal(.malformed, "The signer of the receipt can't be read: \(fault).")
    }
  }
}

extension ASN1Identifier {
  /// [number], as the standard writes it.
  static func tagged(_ number: UInt) -> ASN1Identifier {
    ASN1Identifier(tagWithNumber: number, tagClass: .contextSpecific)
  }
}

extension ASN1ObjectIdentifier {
  static let data: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 7, 1]
  fileprivate static let signedData: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 7, 2]
}

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
