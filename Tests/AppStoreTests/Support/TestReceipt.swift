import Crypto
import CryptoExtras
import Foundation
import SwiftASN1
import X509

/// An app receipt that a test puts together and signs, right or wrong.
struct TestReceipt {
  enum Encoding {
    case distinguished
    /// Indefinite lengths, and the content in pieces.
    case xcode
  }

  enum Digest { case sha1, sha256, sha384 }

  enum SignerName { case issuer, subjectKeyIdentifier }

  /// Value bytes by type, in their order.
  var attributes: [(type: Int64, value: [UInt8])] = [
    (0, ASN1Bytes.utf8("Production")), (2, ASN1Bytes.utf8("com.example.app")),
    (3, ASN1Bytes.utf8("1.2")), (4, [1, 2, 3, 4]), (5, [UInt8](repeating: 7, count: 20)),
    (8, ASN1Bytes.ia5("")), (10, ASN1Bytes.ia5("4+")),
    (12, ASN1Bytes.ia5("2024-06-01T10:00:00Z")), (18, ASN1Bytes.ia5("2023-01-02T03:04:05Z")),
    (19, ASN1Bytes.utf8("1.0")), (25, ASN1Bytes.integer(3)),
  ]

  // How it is signed.
  var encoding = Encoding.distinguished
  var digest = Digest.sha256
  /// Whether attributes are signed in the content's place.
  var signsAttributes = false
  var signedDigest: [UInt8]?
  var signerName = SignerName.issuer
  var key: ReceiptAuthority.Key
  var certificates: [[UInt8]]
  /// The request that the signer's certificate was made with.
  var leafRequest = ReceiptAuthority.leafRequest
  var signerCount = 1

  init(by authority: ReceiptAuthority) {
    key = authority.leafKey
    certificates = [authority.leaf, authority.intermediate, authority.root]
  }

  /// The receipt with another value for a type; nil removes it.
  mutating func set(_ type: Int64, _ value: [UInt8]?) {
    attributes.removeAll { $0.type == type }
    if let value { attributes.append((type, value)) }
  }

  mutating func add(_ purchase: TestPurchase) {
    attributes.append((17, Self.set(of: purchase.attributes)))
  }

  static func set(of attributes: [(type: Int64, value: [UInt8])]) -> [UInt8] {
    ASN1Bytes.element(
      0x31,
      attributes.flatMap { type, value in
        ASN1Bytes.element(
          0x30, ASN1Bytes.integer(type), ASN1Bytes.integer(1), ASN1Bytes.element(0x04, value))
      })
  }

  var content: [UInt8] { Self.set(of: attributes) }

  /// The receipt as a device sends it.
  func base64() throws -> String { Data(try bytes()).base64EncodedString() }

  func bytes() throws -> [UInt8] {
    let content = content
    let signers = try (0..<signerCount).map { _ in try signerInfo(content) }
    let signedData = ASN1Bytes.objectIdentifier(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2)
    let data = ASN1Bytes.objectIdentifier(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1)
    let certificates = Array(self.certificates.joined())
    switch encoding {
    case .distinguished:
      return ASN1Bytes.element(
        0x30, signedData,
        ASN1Bytes.element(
          0xa0,
          ASN1Bytes.element(
            0x30, ASN1Bytes.integer(1), ASN1Bytes.element(0x31, digestAlgorithm),
            ASN1Bytes.element(
              0x30, data, ASN1Bytes.element(0xa0, ASN1Bytes.element(0x04, content))),
            ASN1Bytes.element(0xa0, certificates),
            ASN1Bytes.element(0x31, Array(signers.joined())))))
    case .xcode:
      let pieces = stride(from: 0, to: content.count, by: 100).map {
        ASN1Bytes.element(0x04, Array(content[$0..<min($0 + 100, content.count)]))
      }
      return ASN1Bytes.indefinite(
        0x30, signedData,
        ASN1Bytes.indefinite(
          0xa0,
          ASN1Bytes.indefinite(
            0x30, ASN1Bytes.integer(1), ASN1Bytes.element(0x31, digestAlgorithm),
            ASN1Bytes.indefinite(
              0x30, data,
              ASN1Bytes.indefinite(0xa0, ASN1Bytes.indefinite(0x04, Array(pieces.joined())))),
            ASN1Bytes.element(0xa0, certificates),
            ASN1Bytes.element(0x31, Array(signers.joined())))))
    }
  }

  // MARK: Signing

  private func signerInfo(_ content: [UInt8]) throws -> [UInt8] {
    var parts = [ASN1Bytes.integer(1), try name(), digestAlgorithm]
    var signed = content
    if signsAttributes {
      let attributes = signedAttributes(content)
      parts.append(ASN1Bytes.element(0xa0, attributes))
      signed = ASN1Bytes.element(0x31, attributes)
    }
    parts.append(
      ASN1Bytes.element(
        0x30, ASN1Bytes.objectIdentifier(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1), [5, 0]))
    parts.append(ASN1Bytes.element(0x04, try signature(signed)))
    return ASN1Bytes.element(0x30, Array(parts.joined()))
  }

  private func name() throws -> [UInt8] {
    switch signerName {
    case .issuer:
      var serializer = DER.Serializer()
      try serializer.serialize(try ReceiptAuthority.name(leafRequest.issuer))
      return ASN1Bytes.element(
        0x30, serializer.serializedBytes, ASN1Bytes.integer(Int64(leafRequest.serialNumber)))
    case .subjectKeyIdentifier:
      return ASN1Bytes.element(0x80, Array(leafRequest.subject.utf8))
    }
  }

  private func signedAttributes(_ content: [UInt8]) -> [UInt8] {
    let contentType = ASN1Bytes.element(
      0x30, ASN1Bytes.objectIdentifier(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 3),
      ASN1Bytes.element(
        0x31, ASN1Bytes.objectIdentifier(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1)))
    let messageDigest = ASN1Bytes.element(
      0x30, ASN1Bytes.objectIdentifier(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 4),
      ASN1Bytes.element(0x31, ASN1Bytes.element(0x04, signedDigest ?? hash(content))))
    return contentType + messageDigest
  }

  private var digestAlgorithm: [UInt8] {
    let identifier =
      switch digest {
      case .sha1: ASN1Bytes.objectIdentifier(0x2b, 0x0e, 3, 2, 0x1a)
      case .sha256: ASN1Bytes.objectIdentifier(0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1)
      case .sha384: ASN1Bytes.objectIdentifier(0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2)
      }
    return ASN1Bytes.element(0x30, identifier, [5, 0])
  }

  private func hash(_ bytes: [UInt8]) -> [UInt8] {
    switch digest {
    case .sha1: Array(Insecure.SHA1.hash(data: bytes))
    case .sha256: Array(SHA256.hash(data: bytes))
    case .sha384: Array(SHA384.hash(data: bytes))
    }
  }

  private func signature(_ bytes: [UInt8]) throws -> [UInt8] {
    let padding = _RSA.Signing.Padding.insecurePKCS1v1_5
    let signature =
      switch digest {
      case .sha1: try key.signature(for: Insecure.SHA1.hash(data: bytes), padding: padding)
      case .sha256: try key.signature(for: SHA256.hash(data: bytes), padding: padding)
      case .sha384: try key.signature(for: SHA384.hash(data: bytes), padding: padding)
      }
    return Array(signature.rawRepresentation)
  }
}

/// One purchase in a test's receipt.
struct TestPurchase {
  /// Value bytes by type.
  var attributes: [(type: Int64, value: [UInt8])]

  /// As Apple writes it; nil is written as an empty text.
  init(
    _ transactionID: String, of original: String, product: String = "monthly", type: Int64 = 3,
    from purchase: String, to expiry: String? = nil, cancelled: String? = nil, quantity: Int64 = 1,
    isTrial: Bool = false, isIntro: Bool = false, offer: String? = nil, lineItem: Int64 = 0
  ) {
    attributes = [
      (1701, ASN1Bytes.integer(quantity)), (1702, ASN1Bytes.utf8(product)),
      (1703, ASN1Bytes.utf8(transactionID)), (1704, ASN1Bytes.ia5(purchase)),
      (1705, ASN1Bytes.utf8(original)), (1706, ASN1Bytes.ia5(purchase)),
      (1707, ASN1Bytes.integer(type)), (1708, ASN1Bytes.ia5(expiry ?? "")),
      (1711, ASN1Bytes.integer(lineItem)), (1712, ASN1Bytes.ia5(cancelled ?? "")),
      (1713, ASN1Bytes.integer(isTrial ? 1 : 0)), (1714, ASN1Bytes.utf8("")),
      (1719, ASN1Bytes.integer(isIntro ? 1 : 0)), (1721, ASN1Bytes.utf8(offer ?? "")),
    ]
  }

  /// The same with another value for a type; nil removes it.
  func with(_ type: Int64, _ value: [UInt8]?) -> TestPurchase {
    var copy = self
    copy.attributes.removeAll { $0.type == type }
    if let value { copy.attributes.append((type, value)) }
    return copy
  }
}

extension Result {
  /// The failure, or nil.
  var failure: Failure? {
    guard case .failure(let failure) = self else { return nil }
    return failure
  }
}
