import AppStore
import CryptoExtras
import Foundation
import Subscriptions
import SwiftASN1
import Testing
import X509

/// Certificates for receipts like Apple's, below a root of the tests' own; keys are made once.
struct ReceiptAuthority {
  /// The properties of a certificate, for those that should be rejected.
  struct Request {
    var subject = "Receipt Signing"
    var issuer = "Intermediate"
    /// Its highest bit is set, so that it needs a zero in front.
    var serialNumber = 0x9F6C
    var marker: ASN1ObjectIdentifier?
    var isAuthority = false
    var usage = KeyUsage(digitalSignature: true)
    var from = "2020-01-01T00:00:00Z"
    var to = "2030-01-01T00:00:00Z"
    var algorithm = Certificate.SignatureAlgorithm.sha256WithRSAEncryption
  }

  static let leafMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 11, 1]
  static let intermediateMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 2, 1]

  /// The requests that give certificates as Apple's are.
  static let rootRequest = Request(
    subject: "Root", issuer: "Root", serialNumber: 2, isAuthority: true,
    usage: KeyUsage(keyCertSign: true, cRLSign: true), from: "2006-01-01T00:00:00Z",
    to: "2035-01-01T00:00:00Z")
  static let intermediateRequest = Request(
    subject: "Intermediate", issuer: "Root", serialNumber: 3, marker: intermediateMarker,
    isAuthority: true, usage: KeyUsage(digitalSignature: true, keyCertSign: true, cRLSign: true))
  static let leafRequest = Request(marker: leafMarker)

  typealias Key = _RSA.Signing.PrivateKey

  let rootKey: Key
  let intermediateKey: Key
  let leafKey: Key
  /// Unused.
  let strangeKey: Key
  let root: [UInt8]
  let intermediate: [UInt8]
  let leaf: [UInt8]

  private static let made = Result { try ReceiptAuthority() }

  static var shared: ReceiptAuthority { get throws { try made.get() } }

  private init() throws {
    rootKey = try Key(keySize: .bits2048)
    intermediateKey = try Key(keySize: .bits2048)
    leafKey = try Key(keySize: .bits2048)
    strangeKey = try Key(keySize: .bits2048)
    root = try Self.certificate(Self.rootRequest, of: rootKey, by: rootKey)
    intermediate = try Self.certificate(
      Self.intermediateRequest, of: intermediateKey, by: rootKey)
    leaf = try Self.certificate(Self.leafRequest, of: leafKey, by: intermediateKey)
  }

  /// The roots that make a verifier accept these receipts.
  var roots: TrustedRoots {
    get throws {
      try TrustedRoots(pem: PEMDocument(type: "CERTIFICATE", derBytes: root).pemString)
    }
  }

  func verifier(
    _ bundleIDs: [String] = ["com.example.app"], acceptsXcode: Bool = false
  ) throws -> LocalReceiptVerifier {
    LocalReceiptVerifier(
      roots: try roots, apps: try AppStoreApps(bundleIDs.map { try AppStoreApp(bundleID: $0) }),
      acceptsXcode: acceptsXcode)
  }

  /// The certificate as DER.
  static func certificate(
    _ request: Request, of key: Key, by issuerKey: Key
  ) throws -> [UInt8] {
    let certificate = try Certificate(
      version: .v3, serialNumber: Certificate.SerialNumber(request.serialNumber),
      publicKey: Certificate.PublicKey(key.publicKey), notValidBefore: try date(request.from),
      notValidAfter: try date(request.to), issuer: try name(request.issuer),
      subject: try name(request.subject), signatureAlgorithm: request.algorithm,
      extensions: try extensions(request), issuerPrivateKey: Certificate.PrivateKey(issuerKey))
    var serializer = DER.Serializer()
    try serializer.serialize(certificate)
    return serializer.serializedBytes
  }

  private static func extensions(_ request: Request) throws -> Certificate.Extensions {
    var extensions = try Certificate.Extensions {
      Critical(
        request.isAuthority
          ? BasicConstraints.isCertificateAuthority(maxPathLength: nil)
          : BasicConstraints.notCertificateAuthority)
      Critical(request.usage)
      SubjectKeyIdentifier(keyIdentifier: ArraySlice(request.subject.utf8))
    }
    if let marker = request.marker {
      try extensions.append(Certificate.Extension(oid: marker, critical: false, value: [0x05, 0]))
    }
    return extensions
  }

  static func name(_ commonName: String) throws -> DistinguishedName {
    try DistinguishedName {
      CommonName(commonName)
      OrganizationName("Tests")
    }
  }

  private static func date(_ text: String) throws -> Date {
    Date(timeIntervalSince1970: Double(try Timestamp(text).milliseconds) / 1000)
  }
}
