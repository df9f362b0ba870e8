import Crypto
import Foundation
import JSONText
package import Secrets
import Subscriptions
import Synchronization

/// The tokens that requests are authorized with, one per app, each made once and used for minutes.
///
/// Apple's article on them is called Generating JSON Web Tokens for API requests.
final class BearerTokens: Sendable {
  /// Apple allows an hour; what leaks is of use for less.
  static let lifetime = Duration.minutes(5)
  /// A token is not sent when it has less than this to live, for it has to arrive and be checked.
  static let margin = Duration.minutes(1)

  private struct Token {
    var text: String
    var issuedAt: Timestamp
  }

  private let key: ServerAPIKey
  private let tokens = Mutex<[String: Token]>([:])

  init(key: ServerAPIKey) {
    self.key = key
  }

  /// A token that names that app and lives for a while yet.
  ///
  /// A token from the future is made again: the clock has been put back.
  func token(of bundleID: String, now: Timestamp) throws -> String {
    try tokens.withLock { tokens in
      if let token = tokens[bundleID], token.issuedAt <= now,
        now < token.issuedAt + (Self.lifetime - Self.margin)
      {
        return token.text
      }
      let token = Token(text: try make(bundleID, now: now), issuedAt: now)
      tokens[bundleID] = token
      return token.text
    }
  }

  /// Forgets a token that Apple refuses, unless it has been replaced already.
  func discard(_ text: String, of bundleID: String) {
    tokens.withLock { tokens in
      if tokens[bundleID]?.text == text { tokens[bundleID] = nil }
    }
  }

  private func make(_ bundleID: String, now: Timestamp) throws -> String {
    let header: JSONValue = ["alg": "ES256", "kid": .string(key.keyID), "typ": "JWT"]
    let claims: JSONValue = [
      "iss": .string(key.issuerID), "iat": .integer(now.milliseconds / 1000),
      "exp": .integer((now + Self.lifetime).milliseconds / 1000), "aud": "appstoreconnect-v1",
      "bid": .string(bundleID),
    ]
    let signed = Self.base64URL(header.bytes) + "." + Self.base64URL(claims.bytes)
    return signed + "." + Self.base64URL(try key.signature(over: Array(signed.utf8)))
  }

  /// Base 64 with the alphabet of URLs and without padding (RFC 4648, section 5).
  private static func base64URL(_ bytes: [UInt8]) -> String {
    Data(bytes).base64EncodedString()
      .replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
  }
}

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
