import Foundation
package import Subscriptions
import SwiftASN1
import X509

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
