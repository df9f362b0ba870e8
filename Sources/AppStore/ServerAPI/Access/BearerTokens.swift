import Foundation
import JSONText
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
