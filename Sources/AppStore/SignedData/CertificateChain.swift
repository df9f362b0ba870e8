import Crypto
import Foundation
package import Subscriptions
import SwiftASN1
import Synchronization

@_spi(FixedExpiryValidationTime) import X509

/// The certificates of a JWS, before anything of them is believed.
struct CertificateChain {
  /// Of a leaf that signs receipts; its presence counts.
  private static let leafMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 11, 1]
  /// Of Apple's intermediate authority for developers.
  private static let intermediateMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 2, 1]

  let leaf: Certificate
  let intermediate: Certificate
  /// The leaf's.
  let key: P256.Signing.PublicKey

  /// Reads the certificates; the third, which calls itself the root, is read and not used.
  init(_ encoded: [String]) throws(SignedDataFault) {
    var certificates: [Certificate] = []
    for (index, text) in encoded.enumerated() {
      guard let der = Base64.decode(standard: text.utf8),
        let certificate = try? Certificate(derEncoded: der)
      else {
        throw SignedDataFault(
          .invalidCertificate, "brings a certificate, number \(index + 1), that is none")
      }
      certificates.append(certificate)
    }
    (leaf, intermediate) = (certificates[0], certificates[1])
    guard let key = P256.Signing.PublicKey(leaf.publicKey) else {
      throw SignedDataFault(.wrongKey, "brings a certificate whose key is not of ES256's curve")
    }
    self.key = key
  }

  /// Verifies that the chain leads to a trusted root and is Apple's for this purpose.
  ///
  /// - Parameters:
  ///   - moment: When everything in it has to be valid.
  ///   - roots: The only ones that count.
  /// - Returns: When all of it is valid.
  /// - Throws: ``SignedDataFault``.
  func verify(
    at moment: Timestamp, roots: TrustedRoots
  ) async throws(SignedDataFault) -> Validity {
    guard leaf.extensions[oid: Self.leafMarker] != nil else {
      throw SignedDataFault(
        .missingLeafMarker, "was signed with a certificate that is not for signing receipts")
    }
    guard intermediate.extensions[oid: Self.intermediateMarker] != nil else {
      throw SignedDataFault(
        .missingIntermediateMarker, "brings an intermediate certificate that is not Apple's")
    }
    guard Self.may(\.digitalSignature, leaf), Self.may(\.keyCertSign, intermediate) else {
      throw SignedDataFault(
        .wrongKeyUsage, "brings a certificate whose key must not be used in this way")
    }
    let validity = try Validity([leaf, intermediate])
    try validity.check(moment)
    // The dates have been compared: what the policy adds are the root's, and everything else.
    let date = Date(timeIntervalSince1970: Double(moment.milliseconds / 1000))
    var verifier = Verifier(rootCertificates: roots.store) {
      RFC5280Policy(fixedExpiryValidationTime: date)
    }
    let result = await verifier.validate(
      leaf: leaf, intermediates: CertificateStore([intermediate]))
    guard case .validCertificate(let chain) = result, chain.count == 3,
      chain[1] == intermediate
    else {
      throw SignedDataFault(
        .untrustedChain, "brings certificates that do not lead to a trusted root")
    }
    return try Validity(Array(chain))
  }

  /// Whether the certificate allows its key a use; one that doesn't say allows everything.
  private static func may(_ use: KeyPath<KeyUsage, Bool>, _ certificate: Certificate) -> Bool {
    do {
      return try certificate.extensions.keyUsage.map { $0[keyPath: use] } ?? true
    } catch {
      return false
    }
  }
}

/// When all certificates of a chain are valid.
struct Validity: Sendable {
  private let dates: ClosedRange<Timestamp>
  /// When the first of them expires.
  var end: Timestamp { dates.upperBound }

  init(_ certificates: [Certificate]) throws(SignedDataFault) {
    let start = certificates.map(\.notValidBefore).max() ?? .distantPast
    let end = certificates.map(\.notValidAfter).min() ?? .distantFuture
    guard start <= end else {
      throw SignedDataFault(.certificateExpired, "brings certificates that never are all valid")
    }
    // A certificate's last second is valid to its end.
    dates =
      Timestamp(
        milliseconds: Int64(start.timeIntervalSince1970) * 1000)...Timestamp(
        milliseconds: Int64(end.timeIntervalSince1970) * 1000 + 999)
  }

  /// Compares a date with it.
  func check(_ moment: Timestamp) throws(SignedDataFault) {
    guard moment <= dates.upperBound else {
      throw SignedDataFault(
        .certificateExpired, "was signed with a certificate that had expired by then")
    }
    guard moment >= dates.lowerBound else {
      throw SignedDataFault(
        .certificateNotYetValid, "was signed with a certificate that was not valid yet")
    }
  }
}

/// A chain that has led to a trusted root, and what is needed of it from then on.
struct VerifiedChain: Sendable {
  /// With which all begins that the chain has signed: the header as it is encoded, and its dot.
  let prefix: String
  /// The leaf's.
  let key: P256.Signing.PublicKey
  let validity: Validity
  /// Begun with the prefix.
  let hash: SHA256
}

/// The chains that have been verified; few exist at a time.
///
/// Verifying a chain costs eighteen times what verifying a payload does: Apple's authorities sign
/// on P-384. A header is covered by the signature, and a chain enters only after a payload of its
/// own was verified: nobody but Apple can fill this.
final class ChainCache: Sendable {
  /// How many are kept; Apple has been seen to use two at a time.
  static let capacity = 64

  /// Compared one by one, for they differ in one of their first bytes.
  private let chains = Mutex<[VerifiedChain]>([])

  var count: Int { chains.withLock { $0.count } }

  /// The chain that a JWS begins with; an expired one is forgotten.
  func chain(of text: String, now: Timestamp) -> VerifiedChain? {
    chains.withLock { chains in
      guard let index = chains.firstIndex(where: { text.hasPrefix($0.prefix) }) else { return nil }
      guard now <= chains[index].validity.end else {
        chains.remove(at: index)
        return nil
      }
      return chains[index]
    }
  }

  /// Keeps a chain, unless it has expired; the one that expires first makes room.
  func remember(_ chain: VerifiedChain, now: Timestamp) {
    guard now <= chain.validity.end else { return }
    chains.withLock { chains in
      guard !chains.contains(where: { $0.prefix == chain.prefix }) else { return }
      if chains.count >= Self.capacity { chains.removeAll { $0.validity.end < now } }
      if chains.count >= Self.capacity,
        let first = chains.indices.min(by: { chains[$0].validity.end < chains[$1].validity.end })
      {
        chains.remove(at: first)
      }
      chains.append(chain)
    }
  }
}

/// The certificates that everything signed has to lead back to.
package struct TrustedRoots: Sendable {
  /// Apple Root CA - G3, and no other.
  package static let apple: TrustedRoots = {
    do {
      return try TrustedRoots(pem: appleRootCAG3)
    } catch {
      preconditionFailure("The bundled certificate of Apple's can't be read: \(error)")
    }
  }()

  let certificates: [Certificate]
  let store: CertificateStore

  /// Reads one or more certificates, PEM.
  ///
  /// - Throws: `AppStoreSettingError` where there is none, or one that can't be a root.
  package init(pem: String) throws(AppStoreSettingError) {
    do {
      certificates = try PEMDocument.parseMultiple(pemString: pem).map {
        try Certificate(pemDocument: $0)
      }
    } catch {
      throw AppStoreSettingError(
        "it holds something else than certificates: write them in PEM, one behind the other")
    }
    guard !certificates.isEmpty else {
      throw AppStoreSettingError(
        "there is no certificate in it: write them in PEM, one behind the other")
    }
    for (index, certificate) in certificates.enumerated() {
      guard case .isCertificateAuthority = try? certificate.extensions.basicConstraints else {
        throw AppStoreSettingError(
          "certificate \(index + 1) is not marked as an authority's: only roots belong here")
      }
    }
    store = CertificateStore(certificates)
  }

  /// When each of them ends, under its subject's name.
  package var ends: [(subject: String, end: Timestamp)] {
    certificates.map { certificate in
      (
        "\(certificate.subject)",
        Timestamp(milliseconds: Int64(certificate.notValidAfter.timeIntervalSince1970 * 1000))
      )
    }
  }

  /// From https://www.apple.com/certificateauthority/AppleRootCA-G3.cer, valid until 2039-04-30.
  ///
  /// SHA-256 of its DER:
  /// `63343ABFB89A6A03EBB57E9B3F5FA7BE7C4F5C756F3017B3A8C488C3653E9179`, which a test compares.
  static let appleRootCAG3 = """
    -----BEGIN CERTIFICATE-----
    MIICQzCCAcmgAwIBAgIILcX8iNLFS5UwCgYIKoZIzj0EAwMwZzEbMBkGA1UEAwwS
    QXBwbGUgUm9vdCBDQSAtIEczMSYwJAYDVQQLDB1BcHBsZSBDZXJ0aWZpY2F0aW9u
    IEF1dGhvcml0eTETMBEGA1UECgwKQXBwbGUgSW5jLjELMAkGA1UEBhMCVVMwHhcN
    MTQwNDMwMTgxOTA2WhcNMzkwNDMwMTgxOTA2WjBnMRswGQYDVQQDDBJBcHBsZSBS
    b290IENBIC0gRzMxJjAkBgNVBAsMHUFwcGxlIENlcnRpZmljYXRpb24gQXV0aG9y
    aXR5MRMwEQYDVQQKDApBcHBsZSBJbmMuMQswCQYDVQQGEwJVUzB2MBAGByqGSM49
    AgEGBSuBBAAiA2IABJjpLz1AcqTtkyJygRMc3RCV8cWjTnHcFBbZDuWmBSp3ZHtf
    TjjTuxxEtX/1H7YyYl3J6YRbTzBPEVoA/VhYDKX1DyxNB0cTddqXl5dvMVztK517
    IDvYuVTZXpmkOlEKMaNCMEAwHQYDVR0OBBYEFLuw3qFYM4iapIqZ3r6966/ayySr
    MA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/BAQDAgEGMAoGCCqGSM49BAMDA2gA
    MGUCMQCD6cHEFl4aXTQY2e3v9GwOAEZLuN+yRhHFD/3meoyhpmvOwgPUnPWTxnS4
    at+qIxUCMG1mihDK1A3UT82NQz60imOlM27jbdoXt2QfyFMm+YhidDkLF1vLUagM
    6BgD56KyKA==
    -----END CERTIFICATE-----
    """
}
