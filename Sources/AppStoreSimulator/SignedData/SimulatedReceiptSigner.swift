import Crypto
import CryptoExtras
import SwiftASN1
import X509

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
