import AppStore
import Crypto
import CryptoExtras
import Foundation
package import JSONText
import SwiftASN1
import X509

/// Signs in place of Apple, with its own root, intermediate and leaf certificates.
///
/// The certificates resemble Apple's: P-384 above a P-256 key, with both marker extensions.
/// Verifiers must be given the root. Each signer has new keys, so its signatures are not valid for
/// another.
package struct SimulatedSigner: Sendable {
  /// The certificate to trust, in PEM.
  package let rootCertificatePEM: String

  let receipts: SimulatedReceiptSigner
  /// The protected header with the chain.
  package let header: JSONValue

  private let key: P256.Signing.PrivateKey
  private let encodedHeader: String

  package init() throws {
    let rootKey = P384.Signing.PrivateKey()
    let intermediateKey = P384.Signing.PrivateKey()
    let key = P256.Signing.PrivateKey()
    let root = try Self.certificate(
      "Simulated App Store Root CA", for: Certificate.PublicKey(rootKey.publicKey),
      by: "Simulated App Store Root CA", signing: rootKey, extensions: Self.authority())
    let intermediate = try Self.certificate(
      "Simulated Developer Relations Certification Authority",
      for: Certificate.PublicKey(intermediateKey.publicKey), by: "Simulated App Store Root CA",
      signing: rootKey, extensions: Self.authority(marker: Self.intermediateMarker, below: 0))
    let leaf = try Self.certificate(
      "Simulated ECC App Store Receipt Signing", for: Certificate.PublicKey(key.publicKey),
      by: "Simulated Developer Relations Certification Authority", signing: intermediateKey,
      extensions: Self.signing())
    receipts = try SimulatedReceiptSigner(below: [intermediate, root]) { key in
      try Self.certificate(
        "Simulated App Store Receipt Signing", for: key,
        by: "Simulated Developer Relations Certification Authority", signing: intermediateKey,
        extensions: Self.signing())
    }

    let chain = try [leaf, intermediate, root].map { try $0.serializeAsPEM() }
    rootCertificatePEM = chain[2].pemString + "\n"
    let x5c = chain.map { JSONValue.string(Data($0.derBytes).base64EncodedString()) }
    header = ["alg": "ES256", "x5c": .array(x5c)]
    encodedHeader = Base64URL.text(header.bytes)
    self.key = key
  }

  /// The payload as a JWS in compact form (RFC 7515), signed with ES256.
  package func sign(_ payload: JSONValue) -> String {
    sign("\(encodedHeader).\(Base64URL.text(payload.bytes))")
  }

  /// Any data as a JWS, for tests of data that Apple would never sign.
  package func sign(_ payload: [UInt8], header: [UInt8]) -> String {
    sign("\(Base64URL.text(header)).\(Base64URL.text(payload))")
  }

  /// Signs arbitrary contents as a receipt, without base64.
  ///
  /// - Parameters:
  ///   - contents: A set of attributes in a genuine receipt.
  ///   - inPieces: Uses BER like Xcode instead of DER like Apple.
  package func signReceipt(_ contents: [UInt8], inPieces: Bool = false) -> [UInt8] {
    receipts.sign(contents, inPieces: inPieces)
  }

  /// The signed contents of a receipt in this format; nil for anything else.
  package static func contents(ofReceipt receipt: [UInt8]) -> [UInt8]? {
    ReceiptContents.signedContents(of: receipt)
  }

  private func sign(_ signed: String) -> String {
    guard let signature = try? key.signature(for: Data(signed.utf8)) else {
      preconditionFailure("A new key can sign.")
    }
    return "\(signed).\(Base64URL.text(signature.rawRepresentation))"
  }

  // MARK: Certificates

  /// Apple's markers of receipt signers and of their authority.
  private static let leafMarker: ASN1ObjectIdentifier = [1, 2, 840, 113_635, 100, 6, 11, 1]
  private static let intermediateMarker: ASN1ObjectIdentifier = [1, 2, 840, 113_635, 100, 6, 2, 1]

  /// Valid for all years, because simulated clocks move far in both directions; 9999-12-31 means no
  /// end (RFC 5280, section 4.1.2.5).
  private static let beginning = Date(timeIntervalSince1970: 0)
  private static let end = Date(timeIntervalSince1970: 253_402_300_799)

  private static func certificate(
    _ name: String, for key: Certificate.PublicKey, by issuer: String,
    signing issuerKey: P384.Signing.PrivateKey, extensions: Certificate.Extensions
  ) throws -> Certificate {
    var extensions = extensions
    try extensions.append(SubjectKeyIdentifier(hash: key).makeCertificateExtension())
    let issuerIdentifier = SubjectKeyIdentifier(
      hash: Certificate.PublicKey(issuerKey.publicKey)
    ).keyIdentifier
    try extensions.append(
      AuthorityKeyIdentifier(keyIdentifier: issuerIdentifier).makeCertificateExtension())
    return try Certificate(
      version: .v3, serialNumber: Certificate.SerialNumber(), publicKey: key,
      notValidBefore: beginning, notValidAfter: end, issuer: distinguishedName(issuer),
      subject: distinguishedName(name), signatureAlgorithm: .ecdsaWithSHA384,
      extensions: extensions, issuerPrivateKey: Certificate.PrivateKey(issuerKey))
  }

  private static func distinguishedName(_ name: String) throws -> DistinguishedName {
    try DistinguishedName {
      CommonName(name)
      OrganizationName("Simulated App Store")
      CountryName("US")
    }
  }

  private static func authority(
    marker: ASN1ObjectIdentifier? = nil, below: Int? = nil
  ) throws -> Certificate.Extensions {
    var extensions = try Certificate.Extensions {
      Critical(BasicConstraints.isCertificateAuthority(maxPathLength: below))
      Critical(KeyUsage(keyCertSign: true, cRLSign: true))
    }
    if let marker { try extensions.append(mark(marker)) }
    return extensions
  }

  private static func signing() throws -> Certificate.Extensions {
    var extensions = try Certificate.Extensions {
      Critical(BasicConstraints.notCertificateAuthority)
      Critical(KeyUsage(digitalSignature: true))
    }
    try extensions.append(mark(leafMarker))
    return extensions
  }

  /// An extension whose presence is its meaning; its value is NULL.
  private static func mark(_ oid: ASN1ObjectIdentifier) -> Certificate.Extension {
    Certificate.Extension(oid: oid, critical: false, value: [0x05, 0x00])
  }
}

/// Signs app receipts in place of Apple: PKCS#7 with SHA-256 and RSA, as since 2023.
struct SimulatedReceiptSigner: Sendable {
  /// Shared by all signers of a process, because creating an RSA key takes long, and receipts are
  /// verified by the certificates they contain.
  private static let key = Result { try _RSA.Signing.PrivateKey(keySize: .bits2048) }

  private let key: _RSA.Signing.PrivateKey
  /// Issuer and serial number of the signer's certificate.
  private let signerName: [UInt8]
  /// The certificates of the signer, the intermediate and the root, concatenated.
  private let chain: [UInt8]

  /// - Parameters:
  ///   - authorities: The intermediate and the root.
  ///   - issue: Creates a certificate for a key.
  init(
    below authorities: [Certificate], _ issue: (Certificate.PublicKey) throws -> Certificate
  ) throws {
    key = try Self.key.get()
    let leaf = try issue(Certificate.PublicKey(key.publicKey))
    var name = DER.Serializer()
    try name.serialize(leaf.issuer)
    try name.serialize(leaf.serialNumber.bytes)
    signerName = DERBytes.element(.sequence, name.serializedBytes)
    chain = try ([leaf] + authorities).flatMap { try $0.serializeAsPEM().derBytes }
  }

  /// Signs a receipt in DER like Apple's, or in BER like Xcode's, with indefinite lengths and split
  /// content.
  func sign(_ content: [UInt8], inPieces: Bool = false) -> [UInt8] {
    do {
      return try container(of: content, inPieces: inPieces)
    } catch {
      preconditionFailure("A new key can sign: \(error)")
    }
  }

  /// SignedData of RFC 5652, section 5, with one signer.
  private func container(of content: [UInt8], inPieces: Bool) throws -> [UInt8] {
    func outer(_ tag: DERBytes.Tag, _ parts: [UInt8]) -> [UInt8] {
      inPieces ? [tag.rawValue, 0x80] + parts + [0, 0] : DERBytes.element(tag, parts)
    }
    let octets =
      inPieces
      ? outer(.pieces, DERBytes.pieces(of: content)) : DERBytes.element(.octetString, content)
    let signature = try key.signature(
      for: SHA256.hash(data: content), padding: .insecurePKCS1v1_5)
    let signer = DERBytes.element(
      .sequence,
      DERBytes.integer(1) + signerName + DERBytes.algorithm(DERBytes.sha256)
        + DERBytes.algorithm(DERBytes.rsaEncryption)
        + DERBytes.element(.octetString, Array(signature.rawRepresentation)))
    let envelope = outer(.sequence, DERBytes.data + outer(.tagged0, octets))
    let signedData = outer(
      .sequence,
      DERBytes.integer(1) + DERBytes.element(.set, DERBytes.algorithm(DERBytes.sha256)) + envelope
        + DERBytes.element(.tagged0, chain) + DERBytes.element(.set, signer))
    return outer(.sequence, DERBytes.signedData + outer(.tagged0, signedData))
  }
}

/// The subset of DER (X.690) that receipts need, hand-written because a simulation writes many
/// receipts with many small elements.
enum DERBytes {
  enum Tag: UInt8 {
    case integer = 0x02
    case octetString = 0x04
    case utf8String = 0x0c
    case ia5String = 0x16
    case sequence = 0x30
    case set = 0x31
    /// An octet string made of others, which is BER and not DER.
    case pieces = 0x24
    /// [0], constructed.
    case tagged0 = 0xa0
  }

  static func element(_ tag: Tag, _ content: [UInt8]) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(content.count + 6)
    bytes.append(tag.rawValue)
    append(length: content.count, to: &bytes)
    bytes += content
    return bytes
  }

  static func integer(_ value: Int) -> [UInt8] {
    if (0...0x7f).contains(value) { return [Tag.integer.rawValue, 1, UInt8(value)] }
    // As many bytes as the value and its sign need.
    let bits = value.bitWidth - (value < 0 ? ~value : value).leadingZeroBitCount + 1
    var bytes: [UInt8] = []
    var shift = (bits - 1) / 8 * 8
    while shift >= 0 {
      bytes.append(UInt8(truncatingIfNeeded: value >> shift))
      shift -= 8
    }
    return element(.integer, bytes)
  }

  static func pieces(of bytes: [UInt8]) -> [UInt8] {
    stride(from: 0, to: bytes.count, by: 1000).flatMap {
      element(.octetString, Array(bytes[$0..<min($0 + 1000, bytes.count)]))
    }
  }

  static func algorithm(_ identifier: [UInt8]) -> [UInt8] {
    element(.sequence, identifier + [0x05, 0x00])
  }

  /// 1.2.840.113549.1.7.1.
  static let data: [UInt8] = [0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1]
  /// 1.2.840.113549.1.7.2.
  static let signedData: [UInt8] = [0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2]
  /// 1.2.840.113549.1.1.1.
  static let rsaEncryption: [UInt8] = [0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1]
  /// 2.16.840.1.101.3.4.2.1.
  static let sha256: [UInt8] = [0x06, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1]

  private static func append(length: Int, to bytes: inout [UInt8]) {
    guard length > 0x7f else { return bytes.append(UInt8(length)) }
    var shift = (length.bitWidth - length.leadingZeroBitCount - 1) / 8 * 8
    bytes.append(0x80 | UInt8(shift / 8 + 1))
    while shift >= 0 {
      bytes.append(UInt8(truncatingIfNeeded: length >> shift))
      shift -= 8
    }
  }
}

/// Base64 with the URL alphabet and without padding (RFC 4648, section 5), as in a JWS.
enum Base64URL {
  static func text(_ bytes: some Sequence<UInt8>) -> String {
    let text = Data(bytes).base64EncodedString().utf8.compactMap { byte -> UInt8? in
      switch byte {
      case UInt8(ascii: "+"): UInt8(ascii: "-")
      case UInt8(ascii: "/"): UInt8(ascii: "_")
      case UInt8(ascii: "="): nil
      default: byte
      }
    }
    return String(decoding: text, as: UTF8.self)
  }

  /// Nil for an invalid text.
  static func bytes(_ text: some StringProtocol) -> Data? {
    var standard: [UInt8] = []
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "-"): standard.append(UInt8(ascii: "+"))
      case UInt8(ascii: "_"): standard.append(UInt8(ascii: "/"))
      case UInt8(ascii: "+"), UInt8(ascii: "/"), UInt8(ascii: "="): return nil
      default: standard.append(byte)
      }
    }
    while !standard.count.isMultiple(of: 4) { standard.append(UInt8(ascii: "=")) }
    return Data(base64Encoded: Data(standard))
  }
}
