import AppStore
import Crypto
package import JSONText
import SwiftASN1
import X509

import Foundation

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
