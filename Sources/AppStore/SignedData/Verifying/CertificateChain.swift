import Crypto
import Foundation
import Subscriptions
import SwiftASN1
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
