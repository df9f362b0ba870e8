import AppStore
import Crypto
import CryptoExtras
import Foundation
package import JSONText
import SwiftASN1
import X509

/// What signs in Apple's place: a root, an intermediate and a leaf of its own.
///
/// The certificates look like Apple's to whoever verifies them: P-384 above a P-256 key, with both
/// marker extensions. Who is to believe them has to be told their root. The keys are new in every
/// signer, so nothing that one has signed is good for another.
package struct SimulatedSigner: Sendable {
  /// The certificate to trust, as PEM.
  package let rootCertificatePEM: String

  /// What signs receipts below the same root.
  let receipts: SimulatedReceiptSigner
  /// The protected header with the chain.
  package let header: JSONValue

  private let key: P256.Signing.PrivateKey
  /// The header as it stands in every JWS.
  private let encodedHeader: String

  /// Makes new keys and certificates.
  ///
  /// - Throws: What the cryptographic library throws; it has no reason to.
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

  /// Anything as a JWS: for tests of what Apple would never sign.
  package func sign(_ payload: [UInt8], header: [UInt8]) -> String {
    sign("\(Base64URL.text(header)).\(Base64URL.text(payload))")
  }

  /// The contents of an app receipt, whatever they are, as a signed receipt.
  ///
  /// - Parameters:
  ///   - contents: What is to be signed: of a true receipt, a set of attributes.
  ///   - inPieces: In BER as Xcode's receipts, and not in DER as Apple's.
  /// - Returns: The receipt, not yet in base64.
  package func signReceipt(_ contents: [UInt8], inPieces: Bool = false) -> [UInt8] {
    receipts.sign(contents, inPieces: inPieces)
  }

  /// What is signed in a receipt of this form; nil where it is none.
  package static func contents(ofReceipt receipt: [UInt8]) -> [UInt8]? {
    ReceiptContents.signedContents(of: receipt)
  }

  private func sign(_ signed: String) -> String {
    guard let signature = try? key.signature(for: Data(signed.utf8)) else {
      preconditionFailure("A key that was just made signs.")
    }
    return "\(signed).\(Base64URL.text(signature.rawRepresentation))"
  }

  // MARK: Certificates

  /// Apple's marks, of what signs receipts and of the authority above it.
  private static let leafMarker: ASN1ObjectIdentifier = [1, 2, 840, 113_635, 100, 6, 11, 1]
  private static let intermediateMarker: ASN1ObjectIdentifier = [1, 2, 840, 113_635, 100, 6, 2, 1]

  /// Simulated clocks go through many years, in both directions: 9999-12-31 means no end (RFC 5280,
  /// section 4.1.2.5).
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

  /// An extension that says all by being there: its value is NULL.
  private static func mark(_ oid: ASN1ObjectIdentifier) -> Certificate.Extension {
    Certificate.Extension(oid: oid, critical: false, value: [0x05, 0x00])
  }
}

/// What signs app receipts in Apple's place: PKCS#7 with SHA-256 and RSA, as since 2023.
struct SimulatedReceiptSigner: Sendable {
  /// Making such a key takes long, and no receipt is good for more than the certificates in it say:
  /// one key will do for all signers of a process.
  private static let key = Result { try _RSA.Signing.PrivateKey(keySize: .bits2048) }

  private let key: _RSA.Signing.PrivateKey
  /// Issuer and serial number of the signer's certificate.
  private let signerName: [UInt8]
  /// The signer's, the intermediate and the root, one behind the other.
  private let chain: [UInt8]

  /// - Parameters:
  ///   - authorities: The intermediate and the root.
  ///   - issue: Makes a certificate for a key.
  /// - Throws: What the cryptographic library throws; it has no reason to.
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

  /// The content as a signed receipt: in DER as Apple's, or in BER as Xcode's, where lengths are
  /// indefinite and the content comes in pieces.
  func sign(_ content: [UInt8], inPieces: Bool = false) -> [UInt8] {
    do {
      return try container(of: content, inPieces: inPieces)
    } catch {
      preconditionFailure("A key that was just made signs: \(error)")
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

/// The little of DER (X.690) that receipts need, put together by hand: a simulation writes many
/// receipts, of many small elements.
enum DERBytes {
  enum Tag: UInt8 {
    case integer = 0x02
    case octetString = 0x04
    case utf8String = 0x0c
    case ia5String = 0x16
    case sequence = 0x30
    case set = 0x31
    /// An octet string that is made of others, which is BER and not DER.
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

  /// The octet strings that come to the bytes.
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

/// Base64 for URLs without padding (RFC 4648, section 5), as JWS writes its three parts.
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

  /// Nil for what is no such text.
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
