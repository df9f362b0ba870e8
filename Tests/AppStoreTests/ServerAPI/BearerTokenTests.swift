import AppStore
import Crypto
import Foundation
import JSONText
import Secrets
import Subscriptions
import Synchronization
import Testing

/// The tokens that requests are authorized with.
struct BearerTokenTests {
  private static let app = "com.example.app"

  private func ask(_ client: AppStoreServerAPI, of app: String = app) async throws {
    _ = try await client.setAppAccountToken(UUID(), on: "1", of: app, in: .production)
  }

  private static func decode(_ text: Substring) throws -> [UInt8] {
    let standard = text.replacing("-", with: "+").replacing("_", with: "/")
    let padding = String(repeating: "=", count: (4 - standard.count % 4) % 4)
    return Array(try #require(Data(base64Encoded: standard + padding)))
  }

  @Test func `a token says who asks about which app, and the key has signed it`() async throws {
    let api = ScriptedServerAPI(.api([:]))
    try await ask(api.client())
    let token = try #require(api.asked.first).token
    let parts = token.split(separator: ".")
    try #require(parts.count == 3)
    #expect(!token.contains { "+/=".contains($0) })
    let header = try JSONValue(parsing: Self.decode(parts[0]))
    #expect(header.sorted == ["alg": "ES256", "kid": "2X9R4HXF34", "typ": "JWT"])
    let now = Signed.now.milliseconds / 1000
    let claims = try JSONValue(parsing: Self.decode(parts[1]))
    #expect(
      claims.sorted == [
        "aud": "appstoreconnect-v1", "bid": "com.example.app", "exp": .integer(now + 300),
        "iat": .integer(now), "iss": "57246542-96fe-1a63-e053-0824d011072a",
      ])
    let signature = try P256.Signing.ECDSASignature(rawRepresentation: Self.decode(parts[2]))
    let signed = Array("\(parts[0]).\(parts[1])".utf8)
    #expect(ScriptedServerAPI.privateKey.publicKey.isValidSignature(signature, for: signed))
  }

  // swift-format-ignore
  @Test(arguments: [
    // passes between two requests   the same token
    (Duration.zero,                  true),
    (.seconds(239),                  true),
    // It lives for a minute yet, which may be too short for a request.
    (.seconds(240),                  false),
    (.minutes(6),                    false),
    // The clock was put back: a token from the future is refused.
    (.seconds(-1),                   false),
  ])
  func `a token is used again until shortly before its end`(
    passes: Duration, isSame: Bool
  ) async throws {
    let api = ScriptedServerAPI(.api([:]))
    let client = try api.client()
    try await ask(client)
    api.pass(passes)
    try await ask(client)
    #expect((api.asked[0].token == api.asked[1].token) == isSame)
  }

  @Test func `each app has its token, and requests at once share it`() async throws {
    let api = ScriptedServerAPI(.api([:]))
    let client = try api.client()
    try await withThrowingTaskGroup { group in
      for index in 0..<20 {
        let app = index.isMultiple(of: 2) ? Self.app : "com.example.other"
        group.addTask { try await ask(client, of: app) }
      }
      try await group.waitForAll()
    }
    #expect(api.asked.count == 20)
    #expect(Set(api.asked.map(\.token)).count == 2)
  }

  @Test func `a token that is refused is made anew, once`() async throws {
    let api = ScriptedServerAPI(.refusal(401))
    let client = try api.client()
    let error = await serverAPIError { try await ask(client) }
    #expect(error?.kind == .unauthorized)
    #expect(api.asked.count == 2)
    #expect(Set(api.asked.map(\.token)).count == 2)
  }

  @Test func `a new token can be good where the old one was not`() async throws {
    let first = Mutex("")
    let api = ScriptedServerAPI { asked in
      first.withLock { first in
        if first.isEmpty { first = asked.token }
        return asked.token == first ? .refusal(401) : .api([:])
      }
    }
    let client = try api.client()
    try await ask(client)
    try await ask(client)
    #expect(api.asked.count == 3)
    #expect(api.asked[1].token == api.asked[2].token)
  }

  // swift-format-ignore
  @Test(arguments: [
    ("", "k",    P256.Signing.PrivateKey().pemRepresentation,  "issuer ID"),
    ("i d", "k", P256.Signing.PrivateKey().pemRepresentation,  "issuer ID"),
    ("i", "",    P256.Signing.PrivateKey().pemRepresentation,  "key ID"),
    ("i", "k\n", P256.Signing.PrivateKey().pemRepresentation,  "key ID"),
    ("i", "k",   "",                                           "private key"),
    ("i", "k",   "MIGTAgEAMBMGByqGSM49AgEG",                   "private key"),
    ("i", "k",   P384.Signing.PrivateKey().pemRepresentation,  "private key"),
    ("i", "k",   P256.Signing.PrivateKey().publicKey.pemRepresentation, "private key"),
  ])
  func `a key that is none is refused without being repeated`(
    issuer: String, id: String, privateKey: String, named: String
  ) {
    let error = #expect(throws: AppStoreSettingError.self) {
      try ServerAPIKey(issuerID: issuer, keyID: id, privateKey: Secret(privateKey))
    }
    #expect(error?.description.contains(named) == true)
    #expect(error?.description.contains("MIGT") == false)
  }
}
