import Crypto
import Subscriptions
import SwiftASN1
import X509

/// The signer of a receipt: SignerInfo (RFC 5652, section 5.3).
struct ReceiptSigner {
  enum Name {
    case issuer(DistinguishedName, serialNumber: ArraySlice<UInt8>)
    case subjectKeyIdentifier(ArraySlice<UInt8>)
  }

  /// Apple used SHA-1 until 2023, and SHA-256 since then.
  struct Digest: Sendable {
    let identifier: ASN1ObjectIdentifier
    /// RSA combined with the digest.
    let combined: ASN1ObjectIdentifier
    let algorithm: Certificate.SignatureAlgorithm
    let hash: @Sendable (ArraySlice<UInt8>) -> [UInt8]

    fileprivate static let all = [
      Digest(
        identifier: .sha1, combined: .sha1WithRSAEncryption, algorithm: .sha1WithRSAEncryption
      ) { Array(Insecure.SHA1.hash(data: $0)) },
      Digest(
        identifier: .sha256, combined: .AlgorithmIdentifier.sha256WithRSAEncryption,
        algorithm: .sha256WithRSAEncryption
      ) { Array(SHA256.hash(data: $0)) },
    ]
  }

  let name: Name
  private let digest: Digest
  /// Nil if the content itself is signed.
  private let signedAttributes: SignedAttributes?
  private let signature: ArraySlice<UInt8>

  init(_ node: ASN1Node) throws {
    var fields = try node.elements(of: .sequence, "SignerInfo").makeIterator()
    guard try fields.next()?.integerBytes("the version") != nil, let name = fields.next(),
      let digest = fields.next()
    else { throw ReceiptFault("SignerInfo is incomplete") }
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
    self.signature = try ASN1OctetString(berEncoded: signature).bytes
  }

  func hasSigned(_ content: ArraySlice<UInt8>, with certificate: Certificate) -> Bool {
    var signed = content
    if let signedAttributes {
      guard signedAttributes.messageDigest == digest.hash(content)[...] else { return false }
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
    // X509 stores serial numbers without the zero that marks them as positive.
    let number = try serialNumber.integerBytes("the serial number").drop { $0 == 0 }
    self = .issuer(name, serialNumber: number)
  }
}

extension ReceiptSigner.Digest {
  fileprivate init(digestAlgorithm node: ASN1Node) throws {
    let identifier = try Self.identifier(of: node)
    guard let digest = Self.all.first(where: { $0.identifier == identifier }) else {
      throw LocalReceiptRefusal(
        .unsupportedAlgorithm, "The receipt's digest is neither SHA-1 nor SHA-256.")
    }
    self = digest
  }

  /// Accepts RSA, alone or combined with the same digest.
  fileprivate func check(signatureAlgorithm node: ASN1Node) throws {
    let identifier = try Self.identifier(of: node)
    guard identifier == .AlgorithmIdentifier.rsaEncryption || identifier == combined else {
      throw LocalReceiptRefusal(
        .unsupportedAlgorithm, "The receipt's signature is not RSA over its digest.")
    }
  }

  private static func identifier(of algorithm: ASN1Node) throws -> ASN1ObjectIdentifier {
    var fields = try algorithm.elements(of: .sequence, "an algorithm").makeIterator()
    return try ASN1ObjectIdentifier(berEncoded: &fields)
  }
}

/// The attributes signed instead of the content: its digest, its type and others (RFC 5652, 5.4).
private struct SignedAttributes {
  let messageDigest: ArraySlice<UInt8>
  /// The signed bytes: the set under its own tag, with a definite length.
  let encoded: [UInt8]

  init(_ node: ASN1Node) throws {
    let attributes = try node.elements(of: .tagged(0), "the list of signed attributes")
    var values: [ASN1ObjectIdentifier: ASN1Node] = [:]
    var contents: [UInt8] = []
    for attribute in attributes {
      contents += attribute.encodedBytes
      var fields = try attribute.elements(of: .sequence, "a signed attribute").makeIterator()
      let type = try ASN1ObjectIdentifier(berEncoded: &fields)
      guard let list = fields.next() else { throw ReceiptFault("a signed attribute is incomplete") }
      var entries = try list.elements(of: .set, "a signed attribute's values").makeIterator()
      guard let value = entries.next(), entries.next() == nil,
        values.updateValue(value, forKey: type) == nil
      else { throw ReceiptFault("a signed attribute does not have exactly one value") }
    }
    guard let type = values[.contentType], try ASN1ObjectIdentifier(berEncoded: type) == .data
    else { throw ReceiptFault("the signed content type is not data") }
    guard let digest = values[.messageDigest] else { throw ReceiptFault("the digest is missing") }
    messageDigest = try ASN1OctetString(berEncoded: digest).bytes
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

/// The certificates of a receipt, not yet trusted.
///
/// swift-certificates' `Verifier` is not needed, because the chain has one fixed form: the signer's
/// certificate, an intermediate, and a pinned root that may be in the receipt. Apple signed with
/// SHA-1 until 2023.
struct ReceiptChain {
  let leaf: Certificate
  private let others: [Certificate]

  init(_ encoded: [ArraySlice<UInt8>], signer: ReceiptSigner.Name) throws(LocalReceiptRefusal) {
    var certificates: [Certificate] = []
    for bytes in encoded {
      guard let certificate = try? Certificate(derEncoded: Array(bytes)) else {
        throw LocalReceiptRefusal(
          .strangeCertificate, "The receipt contains a certificate that can't be read.")
      }
      certificates.append(certificate)
    }
    guard let position = certificates.firstIndex(where: signer.names) else {
      throw LocalReceiptRefusal(
        .missingCertificate, "The receipt does not contain its signer's certificate.")
    }
    leaf = certificates.remove(at: position)
    others = certificates
  }

  /// Verifies that the chain leads to a trusted root and that Apple issued it for this purpose.
  ///
  /// - Parameter moment: The date at which all certificates must be valid.
  func verify(roots: [Certificate], at moment: Timestamp) throws(LocalReceiptRefusal) {
    let intermediates = others.filter { !roots.contains($0) }
    guard intermediates.count == 1, let intermediate = intermediates.first else {
      throw LocalReceiptRefusal(
        .strangeCertificate,
        "The receipt's certificates are not a signer's, an intermediate and a trusted root."
      )
    }
    guard let root = roots.first(where: { Self.has($0, issued: intermediate) }),
      Self.has(intermediate, issued: leaf)
    else {
      throw LocalReceiptRefusal(
        .untrustedChain, "The receipt's certificates do not lead to a trusted root.")
    }
    guard intermediate.permits(\.keyCertSign), leaf.permits(\.digitalSignature),
      case .isCertificateAuthority = try? intermediate.extensions.basicConstraints
    else {
      throw LocalReceiptRefusal(
        .wrongUse, "The receipt contains a certificate that must not be used for this purpose.")
    }
    guard leaf.signsReceipts, intermediate.isAppleIntermediate else {
      throw LocalReceiptRefusal(
        .missingMarker, "The receipt was signed with a certificate that is not for receipts.")
    }
    do {
      try Validity([leaf, intermediate, root]).check(moment)
    } catch {
      throw LocalReceiptRefusal(.outsideValidity, "The receipt \(error.clause).")
    }
  }

  private static func has(_ issuer: Certificate, issued certificate: Certificate) -> Bool {
    issuer.subject == certificate.issuer
      && issuer.publicKey.isValidSignature(certificate.signature, for: certificate)
  }
}

extension ReceiptSigner.Name {
  fileprivate func names(_ certificate: Certificate) -> Bool {
    switch self {
    case .issuer(let issuer, let serialNumber):
      certificate.issuer == issuer
        && certificate.serialNumber.bytes.drop { $0 == 0 } == serialNumber
    case .subjectKeyIdentifier(let identifier):
      (try? certificate.extensions.subjectKeyIdentifier)?.keyIdentifier == identifier
    }
  }
}
