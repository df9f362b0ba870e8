import AppStore
import Crypto
import Foundation
import JSONText
import SwiftASN1
import Testing
import X509

/// A JWS taken apart without our verifier.
struct SignedParts {
  let header: JSONValue
  let payload: JSONValue
  /// Leaf, intermediate and root.
  let chain: [Certificate]
  private let signed: String
  private let signature: Data

  init(_ jws: String) throws {
    let parts = jws.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
    try #require(parts.count == 3)
    header = try JSONValue(parsing: try Self.bytes(parts[0]))
    payload = try JSONValue(parsing: try Self.bytes(parts[1]))
    signature = try Self.bytes(parts[2])
    signed = "\(parts[0]).\(parts[1])"
    chain = try (header["x5c"]?.array ?? []).map { entry in
      let der = try #require(entry.string.flatMap { Data(base64Encoded: $0) })
      return try Certificate(derEncoded: Array(der))
    }
  }

  /// Whether the leaf's key signed header and payload with ES256.
  var isSigned: Bool {
    guard let leaf = chain.first, let key = P256.Signing.PublicKey(leaf.publicKey),
      let signature = try? P256.Signing.ECDSASignature(rawRepresentation: signature)
    else { return false }
    return key.isValidSignature(signature, for: Data(signed.utf8))
  }

  private static func bytes(_ text: String) throws -> Data {
    try #require(!text.contains { "+/=".contains($0) })
    var text = text.replacingOccurrences(of: "-", with: "+")
      .replacingOccurrences(of: "_", with: "/")
    while !text.count.isMultiple(of: 4) { text += "=" }
    return try #require(Data(base64Encoded: text))
  }
}
