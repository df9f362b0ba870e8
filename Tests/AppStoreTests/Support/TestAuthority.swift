import AppStore
import Crypto
import Foundation
import Subscriptions
import SwiftASN1
import X509

/// A root and an intermediate authority like Apple's, with keys made for the test.
struct TestAuthority: Sendable {
  static let apple = TestAuthority()
  /// Another authority with the same names.
  static let forger = TestAuthority()

  static let leafMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 11, 1]
  static let intermediateMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 2, 1]

  let rootKey = P384.Signing.PrivateKey()
  let root: Certificate
  let intermediateKey = P384.Signing.PrivateKey()
  let intermediate: Certificate

  init() {
    root = .make(
      rootKey.publicKey, named: Self.rootName, by: rootKey, named: Self.rootName,
      from: "2014-04-30T18:19:06Z", until: "2039-04-30T18:19:06Z", isAuthority: true)
    intermediate = .make(
      intermediateKey.publicKey, named: Self.intermediateName, by: rootKey, named: Self.rootName,
      from: "2021-03-17T20:37:10Z", until: "2036-03-19T00:00:00Z", isAuthority: true,
      marker: Self.intermediateMarker)
  }

  /// The roots that a verifier trusts.
  var roots: TrustedRoots {
    get throws { try TrustedRoots(pem: root.serializeAsPEM().pemString) }
  }

  /// A leaf of the intermediate's.
  func leaf(
    from: String = "2023-09-12T19:51:53Z", until: String = "2025-10-11T19:51:52Z",
    marker: ASN1ObjectIdentifier? = leafMarker, usage: KeyUsage = KeyUsage(digitalSignature: true)
  ) -> TestLeaf {
    let key = P256.Signing.PrivateKey()
    let certificate = Certificate.make(
      key.publicKey, named: Self.leafName, by: intermediateKey, named: Self.intermediateName,
      from: from, until: until, isAuthority: false, marker: marker, usage: usage)
    return TestLeaf(key: key, certificates: [certificate, intermediate, root])
  }

  static let rootName = name("Apple Root CA - G3", "Apple Certification Authority")
  static let intermediateName = name("Apple Worldwide Developer Relations", "G6")
  static let leafName = name("Prod ECC Mac App Store and iTunes Store Receipt Signing", "WWDR")

  private static func name(_ common: String, _ unit: String) -> DistinguishedName {
    do {
      return try DistinguishedName {
        CommonName(common)
        OrganizationalUnitName(unit)
        OrganizationName("Apple Inc.")
        CountryName("US")
      }
    } catch {
      preconditionFailure("A name can't be written: \(error)")
    }
  }
}

/// A signing key with its certificate chain.
struct TestLeaf: Sendable {
  static let apple = TestAuthority.apple.leaf()
  static let forger = TestAuthority.forger.leaf()

  var key: P256.Signing.PrivateKey
  /// In the order of the header.
  var certificates: [Certificate]

  func with(certificates: [Certificate]) -> TestLeaf {
    TestLeaf(key: key, certificates: certificates)
  }
}

extension Certificate {
  /// Makes a certificate whose dates are in RFC 3339.
  static func make(
    _ key: some TestPublicKey, named subject: DistinguishedName,
    by issuerKey: P384.Signing.PrivateKey,
    named issuer: DistinguishedName, from: String, until: String, isAuthority: Bool,
    marker: ASN1ObjectIdentifier? = nil, usage: KeyUsage? = nil,
    criticalExtension: ASN1ObjectIdentifier? = nil
  ) -> Certificate {
    do {
      var extensions = try Extensions {
        Critical(
          isAuthority
            ? BasicConstraints.isCertificateAuthority(maxPathLength: nil)
            : BasicConstraints.notCertificateAuthority)
        Critical(usage ?? KeyUsage(keyCertSign: true, cRLSign: true))
      }
      // ASN.1 NULL, as Apple's.
      if let marker {
        try extensions.append(Extension(oid: marker, critical: false, value: [5, 0]))
      }
      if let criticalExtension {
        try extensions.append(Extension(oid: criticalExtension, critical: true, value: [5, 0]))
      }
      return try Certificate(
        version: .v3, serialNumber: SerialNumber(), publicKey: key.certified,
        notValidBefore: try Date(from, strategy: .iso8601),
        notValidAfter: try Date(until, strategy: .iso8601), issuer: issuer, subject: subject,
        signatureAlgorithm: .ecdsaWithSHA384, extensions: extensions,
        issuerPrivateKey: PrivateKey(issuerKey))
    } catch {
      preconditionFailure("A certificate can't be made: \(error)")
    }
  }

  /// The encoding in a header.
  var base64: String {
    do {
      var serializer = DER.Serializer()
      try serializer.serialize(self)
      return Data(serializer.serializedBytes).base64EncodedString()
    } catch {
      preconditionFailure("A certificate can't be written: \(error)")
    }
  }
}

/// A key that a certificate can be about.
protocol TestPublicKey {
  var certified: Certificate.PublicKey { get }
}

extension P256.Signing.PublicKey: TestPublicKey {
  var certified: Certificate.PublicKey { Certificate.PublicKey(self) }
}

extension P384.Signing.PublicKey: TestPublicKey {
  var certified: Certificate.PublicKey { Certificate.PublicKey(self) }
}
