import Subscriptions
import SwiftASN1
import X509

/// The certificates in a receipt, before anything of them is believed.
///
/// swift-certificates' `Verifier` is not asked, for a chain has only one form here: the signer's
/// certificate, an intermediate, and a pinned root that may stand in the receipt or not. Until 2023
/// Apple signed all of it with SHA-1.
struct ReceiptChain {
  /// "Receipt signing", of the signer; presence counts.
  ///
  /// https://images.apple.com/certificateauthority/pdf/Apple_WWDR_CPS_v1.31.pdf
  private static let leafMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 11, 1]
  /// "Apple Worldwide Developer Relations", of the intermediate.
  private static let intermediateMarker: ASN1ObjectIdentifier = [1, 2, 840, 113635, 100, 6, 2, 1]

  /// The signer's.
  let leaf: Certificate
  private let others: [Certificate]

  /// Reads the certificates and finds the signer's among them.
  init(_ encoded: [ArraySlice<UInt8>], signer: ReceiptSigner.Name) throws(LocalReceiptRefusal) {
    var certificates: [Certificate] = []
    for bytes in encoded {
      guard let certificate = try? Certificate(derEncoded: Array(bytes)) else {
        throw LocalReceiptRefusal(
          .strangeCertificate, "The receipt brings a certificate that can't be read.")
      }
      certificates.append(certificate)
    }
    guard let position = certificates.firstIndex(where: signer.names) else {
      throw LocalReceiptRefusal(
        .missingCertificate, "The receipt does not bring the certificate of its signer.")
    }
    leaf = certificates.remove(at: position)
    others = certificates
  }

  /// Verifies that the chain leads to a trusted root and is Apple's for this purpose.
  ///
  /// - Parameters:
  ///   - roots: The only ones that count.
  ///   - moment: When everything in it has to be valid.
  /// - Throws: ``LocalReceiptRefusal``.
  func verify(roots: [Certificate], at moment: Timestamp) throws(LocalReceiptRefusal) {
    let intermediates = others.filter { !roots.contains($0) }
    guard intermediates.count == 1, let intermediate = intermediates.first else {
      throw LocalReceiptRefusal(
        .strangeCertificate,
        "The receipt brings other certificates than a signer's, an intermediate and a trusted root."
      )
    }
    guard let root = roots.first(where: { Self.has($0, issued: intermediate) }),
      Self.has(intermediate, issued: leaf)
    else {
      throw LocalReceiptRefusal(
        .untrustedChain, "The receipt's certificates do not lead to a trusted root.")
    }
    guard Self.may(intermediate, \.keyCertSign), Self.may(leaf, \.digitalSignature),
      case .isCertificateAuthority = try? intermediate.extensions.basicConstraints
    else {
      throw LocalReceiptRefusal(
        .wrongUse, "The receipt brings a certificate that must not be used in this way.")
    }
    guard leaf.extensions[oid: Self.leafMarker] != nil,
      intermediate.extensions[oid: Self.intermediateMarker] != nil
    else {
      throw LocalReceiptRefusal(
        .missingMarker, "The receipt was signed with a certificate that is not for receipts.")
    }
    do {
      try Validity([leaf, intermediate, root]).check(moment)
    } catch {
      throw LocalReceiptRefusal(.outsideValidity, "The receipt \(error.clause).")
    }
  }

  private static func has(_ issuer: Certificate, issued certificate: Certificate) -> Bool {
    issuer.subject == certificate.issuer
      && issuer.publicKey.isValidSignature(certificate.signature, for: certificate)
  }

  /// Whether the certificate allows its key a use; one that doesn't say allows everything.
  private static func may(_ certificate: Certificate, _ use: KeyPath<KeyUsage, Bool>) -> Bool {
    do {
      return try certificate.extensions.keyUsage.map { $0[keyPath: use] } ?? true
    } catch {
      return false
    }
  }
}

extension ReceiptSigner.Name {
  /// Whether the certificate is the one that is meant.
  fileprivate func names(_ certificate: Certificate) -> Bool {
    switch self {
    case .issuer(let issuer, let serialNumber):
      certificate.issuer == issuer
        && certificate.serialNumber.bytes.drop { $0 == 0 } == serialNumber
    case .subjectKeyIdentifier(let identifier):
      (try? certificate.extensions.subjectKeyIdentifier)?.keyIdentifier == identifier
    }
  }
}
