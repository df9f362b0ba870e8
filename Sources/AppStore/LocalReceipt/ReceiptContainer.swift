import JSONText
import SwiftASN1

/// PKCS#7 SignedData around a receipt (RFC 5652, section 5), in BER or DER.
struct ReceiptContainer {
  /// In bytes; Apple's certificates have less than two thousand.
  private static let largestCertificate = 16 * 1024
  /// Apple sends three.
  private static let mostCertificates = 8

  let content: ArraySlice<UInt8>
  let certificates: [ArraySlice<UInt8>]  // In DER
  private let signerInfos: ASN1NodeCollection

  /// Reads a receipt in base64; an iOS 6 receipt begins with a property list's brace.
  init(base64 receiptData: String) throws {
    // Four characters for three bytes.
    guard receiptData.utf8.count <= ReceiptBER.largestReceipt / 3 * 4 else {
      throw LocalReceiptRefusal(.tooLarge, "The receipt is too large.")
    }
    guard !receiptData.isEmpty, let bytes = Base64.decode(standard: Array(receiptData.utf8)) else {
      throw LocalReceiptRefusal(.notBase64, "The receipt is not base64.")
    }
    switch bytes.first(where: { !UnityReceipt.isSpace($0) }) {
    case 0x30: try self.init(parsing: bytes[...])
    case UInt8(ascii: "{"):
      throw LocalReceiptRefusal(
        .transactionReceipt, "The receipt is an iOS 6 receipt, which only Apple can verify.")
    default: throw LocalReceiptRefusal(.notAReceipt, "The submitted data is not a receipt.")
    }
  }

  init(parsing bytes: ArraySlice<UInt8>) throws {
    guard bytes.count <= ReceiptBER.largestReceipt else {
      throw LocalReceiptRefusal(.tooLarge, "The receipt is too large.")
    }
    let info: ASN1NodeCollection
    do {
      info = try ReceiptBER.parse(bytes, "the content info")
        .elements(of: .sequence, "the content info")
    } catch {
      throw LocalReceiptRefusal(.notAReceipt, "The submitted data is not a receipt: \(error).")
    }
    var fields = info.makeIterator()
    guard let type = fields.next(), try ASN1ObjectIdentifier(berEncoded: type) == .signedData else {
      throw LocalReceiptRefusal(.notAReceipt, "The submitted data is not PKCS#7 SignedData.")
    }
    guard let wrapper = fields.next() else { throw ReceiptFault("the content is missing") }
    var inner = try wrapper.elements(of: .tagged(0), "the content").makeIterator()
    guard let signedData = inner.next() else { throw ReceiptFault("the content is empty") }
    (content, certificates, signerInfos) = try Self.parts(of: signedData)
  }

  private static func parts(
    of signedData: ASN1Node
  ) throws -> (ArraySlice<UInt8>, [ArraySlice<UInt8>], ASN1NodeCollection) {
    var fields = try signedData.elements(of: .sequence, "SignedData").makeIterator()
    guard let version = fields.next(), let digests = fields.next(), let envelope = fields.next()
    else { throw ReceiptFault("SignedData is incomplete") }
    _ = try version.integerBytes("the version")
    _ = try digests.elements(of: .set, "the list of digest algorithms")

    var envelopeFields = try envelope.elements(of: .sequence, "the envelope").makeIterator()
    guard try ASN1ObjectIdentifier(berEncoded: &envelopeFields) == .data else {
      throw ReceiptFault("the content is not of type data")
    }
    guard let wrapper = envelopeFields.next() else { throw ReceiptFault("the content is missing") }
    var wrapped = try wrapper.elements(of: .tagged(0), "the content").makeIterator()
    let content = try ASN1OctetString(berEncoded: &wrapped).bytes
    guard wrapped.next() == nil else { throw ReceiptFault("the content is not one octet string") }

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

  func signer() throws -> ReceiptSigner {
    var signers = signerInfos.makeIterator()
    guard let signer = signers.next(), signers.next() == nil else {
      throw LocalReceiptRefusal(.notOneSigner, "The receipt is not signed by exactly one signer.")
    }
    return try ReceiptSigner(signer)
  }
}

extension ASN1Identifier {
  /// [number] in the standard's notation.
  static func tagged(_ number: UInt) -> ASN1Identifier {
    ASN1Identifier(tagWithNumber: number, tagClass: .contextSpecific)
  }
}

extension ASN1ObjectIdentifier {
  static let data: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 7, 1]
  fileprivate static let signedData: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 7, 2]
}

/// Reads ASN.1 in BER, of which DER is a subset, as Xcode's receipts are not DER; within limits,
/// because the input is not trusted.
enum ReceiptBER {
  /// In bytes; the decoded size of the largest accepted text.
  static let largestReceipt = 12 * 1024 * 1024
  /// The maximum number of elements held at a time, each about a hundred bytes: a receipt itself
  /// has four per purchase, which are parsed separately, so this allows thirty thousand.
  static let mostElements = 1 << 17

  /// Parses the bytes as exactly one element; `name` is the subject of error messages.
  static func parse(_ bytes: ArraySlice<UInt8>, _ name: String) throws -> ASN1Node {
    guard bytes.count <= largestReceipt, hasFewElements(bytes) else {
      throw ReceiptFault("\(name) has too many elements")
    }
    do {
      return try BER.parse(bytes)
    } catch {
      throw ReceiptFault("\(name) is not one complete ASN.1 element")
    }
  }

  /// Whether the limit holds, without allocating memory: steps into constructed elements and over
  /// primitive ones; if it loses its way, parsing fails at the same place.
  private static func hasFewElements(_ bytes: ArraySlice<UInt8>) -> Bool {
    var rest = bytes
    for _ in 0..<mostElements {
      guard let first = rest.popFirst() else { return true }
      if first & 0x1f == 0x1f { rest = rest.drop { $0 & 0x80 != 0 }.dropFirst() }
      guard let length = rest.popFirst() else { return true }
      let isConstructed = first & 0x20 != 0
      guard length & 0x80 != 0 else {
        if !isConstructed { rest = rest.dropFirst(Int(length)) }
        continue
      }
      let digits = rest.prefix(Int(length & 0x7f))
      rest = rest.dropFirst(digits.count)
      guard !isConstructed else { continue }
      // A length of more than 48 bits exceeds any input.
      guard digits.drop(while: { $0 == 0 }).count <= 6 else { return true }
      rest = rest.dropFirst(digits.reduce(0) { $0 << 8 | Int($1) })
    }
    return rest.isEmpty
  }
}

extension ASN1Node {
  func elements(of identifier: ASN1Identifier, _ name: String) throws -> ASN1NodeCollection {
    guard self.identifier == identifier, case .constructed(let nodes) = content else {
      throw ReceiptFault("\(name) is missing or has another type")
    }
    return nodes
  }

  /// The bytes of an INTEGER of any length, without redundant sign bytes.
  func integerBytes(_ name: String) throws -> ArraySlice<UInt8> {
    guard identifier == .integer, case .primitive(var bytes) = content, !bytes.isEmpty else {
      throw ReceiptFault("\(name) is not an integer")
    }
    while let first = bytes.first, let second = bytes.dropFirst().first,
      first == (second & 0x80 == 0 ? 0x00 : 0xff)
    {
      bytes.removeFirst()
    }
    return bytes
  }

  /// Nil if it exceeds 64 bits.
  func integer(_ name: String) throws -> Int64? {
    let bytes = try integerBytes(name)
    guard bytes.count <= 8 else { return nil }
    let isNegative = (bytes.first ?? 0) & 0x80 != 0
    return bytes.reduce(isNegative ? -1 : 0) { $0 << 8 | Int64($1) }
  }
}
