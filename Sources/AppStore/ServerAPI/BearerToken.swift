import Crypto
import JSONText
package import Secrets
import Subscriptions
import Synchronization

/// The bearer tokens of requests, one per app, reused for minutes; see Apple's article "Generating
/// JSON Web Tokens for API requests".
final class BearerTokens: Sendable {
  /// Apple allows an hour; a shorter lifetime limits the damage of a leak.
  static let lifetime = Duration.minutes(5)
  /// A token closer to its expiry than this is replaced, because it has to arrive and be checked.
  static let margin = Duration.minutes(1)

  private let key: ServerAPIKey
  private let tokens = Mutex<[String: (text: String, issuedAt: Timestamp)]>([:])

  init(key: ServerAPIKey) { self.key = key }

  /// A token for this app that stays valid for a while; one from the future, issued before the
  /// clock was set back, is replaced.
  func token(of bundleID: String, now: Timestamp) throws -> String {
    try tokens.withLock { tokens in
      if let token = tokens[bundleID], token.issuedAt <= now,
        now < token.issuedAt + (Self.lifetime - Self.margin)
      {
        return token.text
      }
      let text = try make(bundleID, now: now)
      tokens[bundleID] = (text, now)
      return text
    }
  }

  /// Drops a token that Apple rejected, unless it was already replaced.
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
    let signed = Base64.encode(url: header.bytes) + "." + Base64.encode(url: claims.bytes)
    return signed + "." + Base64.encode(url: try key.signature(over: Array(signed.utf8)))
  }
}

/// The developer's key for the App Store Server API, created in App Store Connect under Users and
/// Access, Integrations, In-App Purchase.
package struct ServerAPIKey: Sendable, CustomStringConvertible {
  package let issuerID: String
  package let keyID: String
  private let privateKey: Secret<P256.Signing.PrivateKey>

  /// Errors never repeat the private key.
  ///
  /// - Parameter privateKey: The contents of the `.p8` file, a P-256 key in PEM format.
  package init(issuerID: String, keyID: String, privateKey: Secret<String>) throws {
    for (name, text) in [("issuer ID", issuerID), ("key ID", keyID)] {
      guard !text.isEmpty, !text.contains(where: \.isWhitespace) else {
        throw AppStoreSettingError(
          "the \(name) is empty or contains spaces: copy it as App Store Connect shows it")
      }
    }
    guard let key = try? P256.Signing.PrivateKey(pemRepresentation: privateKey.revealed) else {
      throw AppStoreSettingError(
        "the private key is not valid: use the .p8 file from App Store Connect, which begins "
          + "with -----BEGIN PRIVATE KEY-----")
    }
    (self.issuerID, self.keyID) = (issuerID, keyID)
    self.privateKey = Secret(key)
  }

  func signature(over bytes: [UInt8]) throws -> [UInt8] {
    Array(try privateKey.revealed.signature(for: bytes).rawRepresentation)
  }

  package var description: String { "App Store Server API key \(keyID)" }
}
