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
