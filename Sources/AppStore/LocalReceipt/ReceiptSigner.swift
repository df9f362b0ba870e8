import Crypto
import SwiftASN1
import X509

/// Who signed a receipt, and how: SignerInfo (RFC 5652, section 5.3).
struct ReceiptSigner {
  /// How the signer's certificate is named.
  enum Name {
    case issuer(DistinguishedName, serialNumber: ArraySlice<UInt8>)
    case subjectKeyIdentifier(ArraySlice<UInt8>)
  }

  /// The digests that Apple has used: SHA-1 until 2023, SHA-256 since.
  enum Digest {
    case sha1
    case sha256

    func hash(of bytes: ArraySlice<UInt8>) -> [UInt8] {
      switch self {
      case .sha1: Array(Insecure.SHA1.hash(data: bytes))
      case .sha256: Array(SHA256.hash(data: bytes))
      }
    }

    fileprivate var algorithm: Certificate.SignatureAlgorithm {
      switch self {
      case .sha1: .sha1WithRSAEncryption
      case .sha256: .sha256WithRSAEncryption
      }
    }
  }

  let name: Name
  private let digest: Digest
  /// Nil: the content itself is signed.
  private let signedAttributes: SignedAttributes?
  private let signature: ArraySlice<UInt8>

  init(_ node: ASN1Node) throws {
    var fields = try node.elements(of: .sequence, "SignerInfo").makeIterator()
    guard try fields.next()?.integerBytes("the version") != nil, let name = fields.next(),
      let digest = fields.next()
    else { throw ReceiptFault("SignerInfo breaks off") }
    self.name = try Name(name)
    self.digest = try Digest(digestAlgorithm: digest)
    var field = fields.next()
    if let attributes = field, attributes.identifier == .tagged(0) {
      signedAttributes = try SignedAttributes(attributes)
      field = fields.next()
    } else {
      signedAttributes = nil
    }
    guard let algorithm = field, let signature = fields.next() else {
      throw ReceiptFault("the signature is missing")
    }
    try self.digest.check(signatureAlgorithm: algorithm)
    self.signature = try signature.octets("the signature")
  }

  /// Whether the owner of the certificate signed that content.
  func hasSigned(_ content: ArraySlice<UInt8>, with certificate: Certificate) -> Bool {
    var signed = content
    if let signedAttributes {
      guard signedAttributes.messageDigest == digest.hash(of: content)[...] else { return false }
      signed = signedAttributes.encoded[...]
    }
    return certificate.publicKey.isValidSignature(
      signature, for: signed, signatureAlgorithm: digest.algorithm)
  }
}

extension ReceiptSigner.Name {
  fileprivate init(_ node: ASN1Node) throws {
    guard node.identifier != .tagged(0) else {
      guard case .primitive(let identifier) = node.content else {
        throw ReceiptFault("the signer's key identifier is in pieces")
      }
      self = .subjectKeyIdentifier(identifier)
      return
    }
    var fields = try node.elements(of: .sequence, "the signer's name").makeIterator()
    guard let issuer = fields.next(), let serialNumber = fields.next(),
      let name = try? DistinguishedName(derEncoded: issuer)
    else { throw ReceiptFault("the signer's name can't be read") }
    // As X509 has serial numbers: without the zero that says that they are positive.
    let number = try serialNumber.integerBytes("the serial number").drop { $0 == 0 }
    self = .issuer(name, serialNumber: number)
  }
}

extension ReceiptSigner.Digest {
  fileprivate init(digestAlgorithm node: ASN1Node) throws {
    switch try Self.identifier(of: node) {
    case .sha1: self = .sha1
    case .sha256: self = .sha256
    default:
      throw LocalReceiptRefusal(
        .unsupportedAlgorithm, "The receipt's digest is neither SHA-1 nor SHA-256.")
    }
  }

  /// The signature's algorithm is RSA, alone or together with the same digest.
  fileprivate func check(signatureAlgorithm node: ASN1Node) throws {
    let identifier = try Self.identifier(of: node)
    let combined: ASN1ObjectIdentifier =
      switch self {
      case .sha1: .sha1WithRSAEncryption
      case .sha256: .AlgorithmIdentifier.sha256WithRSAEncryption
      }
    guard identifier == .AlgorithmIdentifier.rsaEncryption || identifier == combined else {
      throw LocalReceiptRefusal(
        .unsupportedAlgorithm, "The receipt's signature is not RSA over its digest.")
    }
  }

  private static func identifier(of algorithm: ASN1Node) throws -> ASN1ObjectIdentifier {
    var fields = try algorithm.elements(of: .sequence, "an algorithm").makeIterator()
    guard let identifier = fields.next() else { throw ReceiptFault("an algorithm is empty") }
    return try identifier.objectIdentifier("an algorithm")
  }
}

/// What is signed in the content's place: its digest and type, and whatever else (RFC 5652, 5.4).
private struct SignedAttributes {
  let messageDigest: ArraySlice<UInt8>
  /// The bytes that the signature is over: the set under its own tag, with a definite length.
  let encoded: [UInt8]

  init(_ node: ASN1Node) throws {
    let attributes = try node.elements(of: .tagged(0), "the list of signed attributes")
    var values: [ASN1ObjectIdentifier: ASN1Node] = [:]
    var contents: [UInt8] = []
    for attribute in attributes {
      contents += attribute.encodedBytes
      var fields = try attribute.elements(of: .sequence, "a signed attribute").makeIterator()
      guard let type = try fields.next()?.objectIdentifier("a signed attribute's type"),
        let list = fields.next()
      else { throw ReceiptFault("a signed attribute breaks off") }
      var entries = try list.elements(of: .set, "a signed attribute's values").makeIterator()
      guard let value = entries.next(), entries.next() == nil,
        values.updateValue(value, forKey: type) == nil
      else { throw ReceiptFault("a signed attribute has not one value") }
    }
    guard try values[.contentType]?.objectIdentifier("the signed content type") == .data else {
      throw ReceiptFault("the signed content type is not data")
    }
    guard let digest = try values[.messageDigest]?.octets("the signed digest") else {
      throw ReceiptFault("the signed digest is missing")
    }
    messageDigest = digest
    var serializer = DER.Serializer()
    serializer.appendConstructedNode(identifier: .set) { $0.serializeRawBytes(contents) }
    encoded = serializer.serializedBytes
  }
}

extension ASN1ObjectIdentifier {
  fileprivate static let contentType: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 9, 3]
  fileprivate static let messageDigest: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 9, 4]
  fileprivate static let sha1: ASN1ObjectIdentifier = [1, 3, 14, 3, 2, 26]
  fileprivate static let sha1WithRSAEncryption: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 1, 5]
  fileprivate static let sha256: ASN1ObjectIdentifier = [2, 16, 840, 1, 101, 3, 4, 2, 1]
}
