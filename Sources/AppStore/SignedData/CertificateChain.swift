import Crypto
import Foundation
import JSONText
package import Subscriptions
import SwiftASN1
import Synchronization

@_spi(FixedExpiryValidationTime) import X509

/// The certificates of a JWS, not yet trusted.
struct CertificateChain {
  let leaf: Certificate
  let intermediate: Certificate
  let key: P256.Signing.PublicKey

  /// Reads the certificates; the third one, the claimed root, is parsed and otherwise ignored.
  init(_ encoded: [String]) throws(SignedDataFault) {
    var certificates: [Certificate] = []
    for (index, text) in encoded.enumerated() {
      guard let der = Base64.decode(standard: Array(text.utf8)),
        let certificate = try? Certificate(derEncoded: der)
      else {
        throw SignedDataFault(
          .invalidCertificate, "has an invalid certificate, number \(index + 1)")
      }
      certificates.append(certificate)
    }
    (leaf, intermediate) = (certificates[0], certificates[1])
    guard let key = P256.Signing.PublicKey(leaf.publicKey) else {
      throw SignedDataFault(.wrongKey, "has a certificate whose key is not on ES256's curve")
    }
    self.key = key
  }

  /// Verifies that all certificates are valid at a moment, that the chain leads to a trusted root
  /// and that Apple issued it for this purpose; returns the period in which all of them are valid.
  func verify(at moment: Timestamp, roots: TrustedRoots) async throws(SignedDataFault) -> Validity {
    guard leaf.signsReceipts else {
      throw SignedDataFault(
        .missingLeafMarker, "was signed with a certificate that is not for signing receipts")
    }
    guard intermediate.isAppleIntermediate else {
      throw SignedDataFault(
        .missingIntermediateMarker, "has an intermediate certificate that is not Apple's")
    }
    guard leaf.permits(\.digitalSignature), intermediate.permits(\.keyCertSign) else {
      throw SignedDataFault(
        .wrongKeyUsage, "has a certificate whose key must not be used for this purpose")
    }
    let validity = try Validity([leaf, intermediate])
    try validity.check(moment)
    // The dates are checked above; the policy adds the root's and all other checks.
    let date = Date(timeIntervalSince1970: Double(moment.milliseconds / 1000))
    var verifier = Verifier(rootCertificates: roots.store) {
      RFC5280Policy(fixedExpiryValidationTime: date)
    }
    let result = await verifier.validate(
      leaf: leaf, intermediates: CertificateStore([intermediate]))
    guard case .validCertificate(let chain) = result, chain.count == 3,
      chain[1] == intermediate
    else {
      throw SignedDataFault(.untrustedChain, "has certificates that do not lead to a trusted root")
    }
    return try Validity(Array(chain))
  }
}

// Apple marks its certificates by the presence of extensions, see
// https://images.apple.com/certificateauthority/pdf/Apple_WWDR_CPS_v1.31.pdf
extension Certificate {
  var signsReceipts: Bool { extensions[oid: [1, 2, 840, 113635, 100, 6, 11, 1]] != nil }
  /// Whether it belongs to Apple's intermediate authority for developers.
  var isAppleIntermediate: Bool { extensions[oid: [1, 2, 840, 113635, 100, 6, 2, 1]] != nil }

  /// Whether the key may be used this way; a certificate without a restriction permits any use.
  func permits(_ use: KeyPath<KeyUsage, Bool>) -> Bool {
    do {
      return try extensions.keyUsage.map { $0[keyPath: use] } ?? true
    } catch {
      return false
    }
  }
}

/// The period in which all certificates of a chain are valid.
struct Validity: Sendable {
  private let dates: ClosedRange<Timestamp>
  var end: Timestamp { dates.upperBound }

  init(_ certificates: [Certificate]) throws(SignedDataFault) {
    let start = certificates.map(\.notValidBefore).max() ?? .distantPast
    let end = certificates.map(\.notValidAfter).min() ?? .distantFuture
    guard start <= end else {
      throw SignedDataFault(
        .certificateExpired, "has certificates that are never valid at the same time")
    }
    // A certificate is valid to the end of its last second.
    dates =
      Timestamp(
        milliseconds: Int64(start.timeIntervalSince1970) * 1000)...Timestamp(
        milliseconds: Int64(end.timeIntervalSince1970) * 1000 + 999)
  }

  func check(_ moment: Timestamp) throws(SignedDataFault) {
    guard moment <= dates.upperBound else {
      throw SignedDataFault(.certificateExpired, "was signed with an expired certificate")
    }
    guard moment >= dates.lowerBound else {
      throw SignedDataFault(
        .certificateNotYetValid, "was signed with a certificate that was not yet valid")
    }
  }
}

/// A verified chain, reduced to the data needed for later signatures.
struct VerifiedChain: Sendable {
  /// The encoded header and its dot, with which every JWS signed by the chain begins.
  let prefix: String
  let key: P256.Signing.PublicKey
  let validity: Validity
  /// The hash of the prefix, to be continued.
  let hash: SHA256
}

/// Caches verified chains, of which few exist at a time.
///
/// Verifying a chain costs eighteen times as much as a payload, because Apple's authorities sign on
/// P-384. Only Apple can add entries, because a chain is added after one of its payloads was
/// verified.
final class ChainCache: Sendable {
  /// Apple has been seen to use two chains at a time.
  static let capacity = 64

  /// Compared one by one, because they differ in one of their first bytes.
  private let chains = Mutex<[VerifiedChain]>([])

  /// The encoded headers, without their dots.
  var headers: [String] { chains.withLock { $0.map { String($0.prefix.dropLast()) } } }

  /// The chain that a JWS begins with; an expired chain is removed.
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

  /// Adds a chain that has not expired, evicting the one that expires first.
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

/// The root certificates that signed data must lead to.
package struct TrustedRoots: Sendable {
  /// Only Apple Root CA - G3.
  package static let apple = bundled(appleRootCAG3)
  /// Only Apple Root CA, which receipts lead to.
  package static let appleReceipts = bundled(appleRootCA)

  private static func bundled(_ pem: String) -> TrustedRoots {
    do {
      return try TrustedRoots(pem: pem)
    } catch {
      preconditionFailure("Apple's bundled certificate can't be read: \(error)")
    }
  }

  let certificates: [Certificate]
  let store: CertificateStore

  package init(pem: String) throws(AppStoreSettingError) {
    do {
      certificates = try PEMDocument.parseMultiple(pemString: pem).map {
        try Certificate(pemDocument: $0)
      }
    } catch {
      throw AppStoreSettingError(
        "it contains something other than certificates: use PEM, one certificate after another")
    }
    guard !certificates.isEmpty else {
      throw AppStoreSettingError(
        "it contains no certificate: use PEM, one certificate after another")
    }
    for (index, certificate) in certificates.enumerated() {
      guard case .isCertificateAuthority = try? certificate.extensions.basicConstraints else {
        throw AppStoreSettingError(
          "certificate \(index + 1) is not a certificate authority's: only roots are accepted")
      }
    }
    store = CertificateStore(certificates)
  }

  package var ends: [(subject: String, end: Timestamp)] {
    certificates.map { certificate in
      (
        "\(certificate.subject)",
        Timestamp(milliseconds: Int64(certificate.notValidAfter.timeIntervalSince1970 * 1000))
      )
    }
  }

  /// From https://www.apple.com/certificateauthority/AppleRootCA-G3.cer, valid until 2039-04-30; a
  /// test compares the SHA-256 of its DER,
  /// `63343ABFB89A6A03EBB57E9B3F5FA7BE7C4F5C756F3017B3A8C488C3653E9179`.
  static let appleRootCAG3 = String(
    decoding: PackageResources.AppleRootCA_G3_pem, as: UTF8.self)

  /// From https://www.apple.com/appleca/AppleIncRootCertificate.cer, valid until 2035-02-09; a test
  /// compares the SHA-256 of its DER,
  /// `b0b1730ecbc7ff4505142c49f1295e6eda6bcaed7e2c68c5be91b5a11001f024`.
  static let appleRootCA = String(decoding: PackageResources.AppleRootCA_pem, as: UTF8.self)
}
