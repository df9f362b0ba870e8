import Crypto
import Foundation
package import Secrets

/// The key with which an app's developer asks the App Store Server API.
///
/// App Store Connect makes it, under Users and Access, Integrations, In-App Purchase.
package struct ServerAPIKey: Sendable, CustomStringConvertible {
  package let issuerID: String
  package let keyID: String
  private let privateKey: Secret<P256.Signing.PrivateKey>

  /// Checks the parts of a key.
  ///
  /// - Parameters:
  ///   - issuerID: A UUID, the same for all keys of a team.
  ///   - keyID: Ten letters and digits.
  ///   - privateKey: What the `.p8` file holds: PEM of an elliptic curve's key, P-256.
  /// - Throws: `AppStoreSettingError`, which repeats nothing of the private key.
  package init(issuerID: String, keyID: String, privateKey: Secret<String>) throws {
    for (name, text) in [("issuer id", issuerID), ("key id", keyID)] {
      guard !text.isEmpty, !text.contains(where: \.isWhitespace) else {
        throw AppStoreSettingError(
          "the \(name) is empty or contains spaces: copy it as App Store Connect shows it")
      }
    }
    guard let key = try? P256.Signing.PrivateKey(pemRepresentation: privateKey.revealed) else {
      throw AppStoreSettingError(
        "the private key is none: name the .p8 file as it came from App Store Connect, which "
          + "begins with -----BEGIN PRIVATE KEY-----")
    }
    self.issuerID = issuerID
    self.keyID = keyID
    self.privateKey = Secret(key)
  }

  /// The signature over those bytes: 64 bytes, as JWS has it.
  func signature(over bytes: [UInt8]) throws -> [UInt8] {
    Array(try privateKey.revealed.signature(for: bytes).rawRepresentation)
  }

  /// The key's id alone.
  package var description: String { "App Store Server API key \(keyID)" }
}
