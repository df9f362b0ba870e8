import AppStore
import Crypto
import JSONText
import Subscriptions

import Foundation

/// A key for the App Store Server API, as App Store Connect gives it to a developer.
///
/// It is the only one that the simulated App Store knows, good for every app there.
package struct SimulatedAPIKey: Sendable {
  /// The developer's account: the claim `iss`.
  package let issuerID: String
  /// The header `kid`.
  package let keyID: String
  /// The file that ends in `.p8`.
  package let privateKeyPEM: String

  private let publicKey: P256.Signing.PublicKey

  /// Makes a new key.
  package init() {
    let key = P256.Signing.PrivateKey()
    issuerID = UUID().uuidString.lowercased()
    keyID = String((0..<Self.keyIDLength).compactMap { _ in Self.keyIDCharacters.randomElement() })
    privateKeyPEM = key.pemRepresentation + "\n"
    publicKey = key.publicKey
  }

  private static let keyIDLength = 10
  private static let keyIDCharacters = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"

  // MARK: Checking

  /// Apple's documentation of the App Store Server API, "Generating JSON Web Tokens for API
  /// requests".
  private static let audience = "appstoreconnect-v1"
  private static let longestLife = Duration.minutes(60)

  /// The bundle id that a token asks for; nil where Apple would answer 401.
  ///
  /// The token's times have to fit one of the clocks: who asks may live in real or in simulated
  /// time.
  func bundleID(in token: String, at clocks: [Timestamp]) -> String? {
    let parts = token.split(separator: ".", omittingEmptySubsequences: false)
    guard parts.count == 3, let header = Self.json(parts[0]), let claims = Self.json(parts[1]),
      header["alg"] == "ES256", header["kid"]?.string == keyID, header["typ"] == "JWT",
      let bytes = Base64URL.bytes(parts[2]),
      let signature = try? P256.Signing.ECDSASignature(rawRepresentation: bytes),
      publicKey.isValidSignature(signature, for: Data("\(parts[0]).\(parts[1])".utf8)),
      claims["iss"]?.string == issuerID, claims["aud"]?.string == Self.audience,
      let issued = claims["iat"]?.integer, let expires = claims["exp"]?.integer,
      clocks.contains(where: { Self.isInTime($0, issued: issued, expires: expires) })
    else { return nil }
    return claims["bid"]?.string
  }

  private static func json(_ part: Substring) -> JSONValue? {
    Base64URL.bytes(part).flatMap { try? JSONValue(parsing: $0) }
  }

  private static func isInTime(_ now: Timestamp, issued: Int64, expires: Int64) -> Bool {
    guard let issuedAt = moment(issued), let expiresAt = moment(expires) else { return false }
    return issuedAt <= now + .clockTolerance && now < expiresAt && issuedAt < expiresAt
      && expiresAt - issuedAt <= longestLife
  }

  private static func moment(_ seconds: Int64) -> Timestamp? {
    let (milliseconds, overflows) = seconds.multipliedReportingOverflow(by: 1000)
    let moment = Timestamp(milliseconds: milliseconds)
    return !overflows && Timestamp.writable.contains(moment) ? moment : nil
  }
}
