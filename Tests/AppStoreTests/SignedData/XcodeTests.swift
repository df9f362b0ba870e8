import AppStore
import JSONText
import Subscriptions
import Testing

/// Data signed by Xcode instead of Apple, accepted only where a development setting allows it.
struct XcodeTests {
  /// A JWS as StoreKit Testing writes it: one certificate, its own key, fractions of milliseconds.
  private static func jws(
    _ changes: [String: JSONValue?] = [:], _ change: (inout DraftJWS) -> Void = { _ in }
  ) throws -> String {
    var fields: [String: JSONValue?] = [
      "environment": "Xcode", "signedDate": .number(1_748_779_199_000.7297), "transactionId": "0",
    ]
    fields.merge(changes) { $1 }
    let key = TestLeaf.forger.certificates[0].base64
    return try DraftJWS(Signed.transaction.with(fields)).with {
      $0.certificates = [.string(key)]
      $0.headerMembers = [("kid", "Apple_Xcode_Key"), ("typ", "JWT")]
      $0.leaf = .forger
      change(&$0)
    }.text
  }

  @Test func `accepted as of the sandbox, and only if the setting says so`() async throws {
    let text = try Self.jws()
    #expect(try await Signed.verifier().transaction(text).reason == .notSignedByApple)
    let accepted = try await Signed.verifier(acceptsXcode: true).transaction(text).get()
    #expect(accepted.environment == .sandbox)
    #expect(accepted.record.key.line == OriginalTransactionKey(.sandbox, "10"))
    #expect(accepted.record.asOf == Timestamp(milliseconds: 1_748_779_199_000))
  }

  // swift-format-ignore
  private static let rows = [
    Forgery("LocalTesting", nil) { try jws(["environment": "LocalTesting"]) },
    Forgery("no signature", nil) { try jws { $0.sign = { _ in [] } } },
    Forgery("no certificates", nil) { try jws { $0.certificates = [] } },
    Forgery("another app", .wrongBundleID) { try jws(["bundleId": "com.example.stranger"]) },
    Forgery("no product", .missingField) { try jws(["productId": nil]) },
    Forgery("signed in two days", .signedInTheFuture) { try jws(["signedDate": 1_748_952_000_000]) },
    Forgery("none", .unsupportedAlgorithm) { try jws { $0.algorithm = "none" } },
    Forgery("demands", .criticalHeader) { try jws { $0.headerMembers = [("crit", ["b64"])] } },
    Forgery("a field twice", .invalidPayload) { try DraftJWS(#"{"environment":"Xcode","environment":"Xcode"}"#).text },
    Forgery("padding", .invalidBase64) { try jws() + "=" },
    Forgery("unsigned, and of the sandbox", .wrongCertificateCount) { try jws(["environment": "Sandbox"]) { $0.headerMembers = [] } },
    Forgery("unsigned, and of production", .notSignedByApple) { try jws(["environment": "Production"]) },
    Forgery("unsigned, and of nowhere", .notSignedByApple) { try jws(["environment": nil]) },
    Forgery("forged, and of production", .untrustedChain) { try jws(["environment": "Production"]) { $0.certificates = nil } },
  ]

  @Test(arguments: rows)
  func `signature and chain are not asked for, and everything else is`(
    _ row: Forgery
  ) async throws {
    let verifier = try Signed.verifier(acceptsXcode: true)
    #expect(try await verifier.transaction(row.text()).reason == row.reason)
    #expect(verifier.verifiedHeaders.count == 0)
  }

  @Test func `what is unsigned does not enter a notification of Apple's`() async throws {
    let verifier = try Signed.verifier(acceptsXcode: true)
    let data: [String: JSONValue?] = ["signedTransactionInfo": .string(try Self.jws())]
    let text = try DraftJWS(Signed.notification(data: data)).text
    let reason = await verifier.notification(text, receivedAt: Signed.now).reason
    #expect(reason == .otherEnvironment)
  }

  @Test func `what Apple signs is verified as ever`() async throws {
    let verifier = try Signed.verifier(acceptsXcode: true)
    let genuine = try DraftJWS(Signed.transaction).text
    #expect(await verifier.transaction(genuine).reason == nil)
    let parts = genuine.split(separator: ".")
    let cut = parts[0] + "." + parts[1] + "."
    #expect(await verifier.transaction(String(cut)).reason == .wrongSignatureLength)
  }
}
