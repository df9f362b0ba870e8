import AppStore
import Crypto
import Foundation
import JSONText
import Subscriptions
import SwiftASN1
import Testing
import X509

/// A text that must be refused, and the reason that must be given; nil: it is no forgery.
struct Forgery: Sendable, CustomTestStringConvertible {
  let testDescription: String
  let reason: SignedDataError.Reason?
  let text: @Sendable () throws -> String

  init(
    _ name: String, _ reason: SignedDataError.Reason?,
    _ text: @escaping @Sendable () throws -> String
  ) {
    testDescription = name
    self.reason = reason
    self.text = text
  }

  /// A genuine transaction with a change.
  init(
    _ name: String, _ reason: SignedDataError.Reason?,
    changing change: @escaping @Sendable (inout DraftJWS) -> Void
  ) {
    self.init(name, reason) { try DraftJWS(Signed.transaction).with(change).text }
  }

  /// A transaction with other fields, signed as it stands.
  init(
    _ name: String, _ reason: SignedDataError.Reason?, signing changes: [String: JSONValue?]
  ) {
    self.init(name, reason) { try DraftJWS(Signed.transaction.with(changes)).text }
  }

  /// A genuine transaction whose three parts are changed afterwards.
  init(
    _ name: String, _ reason: SignedDataError.Reason?,
    parts change: @escaping @Sendable (inout [String]) throws -> Void
  ) {
    self.init(name, reason) {
      var parts = try DraftJWS(Signed.transaction).text.split(separator: ".").map(String.init)
      try change(&parts)
      return parts.joined(separator: ".")
    }
  }
}

/// Data that only Apple can sign, and data that is not meant for us.
struct ForgeryTests {
  private typealias Leaf = TestLeaf
  private static let apple = TestAuthority.apple
  private static let forger = TestAuthority.forger

  /// A chain whose leaf or intermediate is not as it should be.
  private static func chain(
    leaf usage: KeyUsage = KeyUsage(digitalSignature: true),
    leafMarker: ASN1ObjectIdentifier? = TestAuthority.leafMarker,
    from: String = "2023-09-12T19:51:53Z", until: String = "2025-10-11T19:51:52Z",
    intermediate intermediateUsage: KeyUsage = KeyUsage(keyCertSign: true),
    intermediateMarker: ASN1ObjectIdentifier? = TestAuthority.intermediateMarker,
    intermediateFrom: String = "2021-03-17T20:37:10Z",
    intermediateUntil: String = "2036-03-19T00:00:00Z", isAuthority: Bool = true,
    critical: ASN1ObjectIdentifier? = nil
  ) -> TestLeaf {
    let key = P256.Signing.PrivateKey()
    let intermediate = Certificate.make(
      apple.intermediateKey.publicKey, named: TestAuthority.intermediateName, by: apple.rootKey,
      named: TestAuthority.rootName, from: intermediateFrom, until: intermediateUntil,
      isAuthority: isAuthority, marker: intermediateMarker, usage: intermediateUsage)
    let leaf = Certificate.make(
      key.publicKey, named: TestAuthority.leafName, by: apple.intermediateKey,
      named: TestAuthority.intermediateName, from: from, until: until, isAuthority: false,
      marker: leafMarker, usage: usage, criticalExtension: critical)
    return TestLeaf(key: key, certificates: [leaf, intermediate, apple.root])
  }

  /// A leaf that the root itself has signed, without anything between.
  private static var leafOfTheRoot: TestLeaf {
    let key = P256.Signing.PrivateKey()
    let leaf = Certificate.make(
      key.publicKey, named: TestAuthority.leafName, by: apple.rootKey,
      named: TestAuthority.rootName, from: "2023-09-12T19:51:53Z", until: "2025-10-11T19:51:52Z",
      isAuthority: false, marker: TestAuthority.leafMarker,
      usage: KeyUsage(digitalSignature: true))
    return TestLeaf(key: key, certificates: [leaf, apple.intermediate, apple.root])
  }

  /// A leaf on the authorities' curve.
  private static var leafOfAnotherCurve: [JSONValue] {
    let leaf = Certificate.make(
      P384.Signing.PrivateKey().publicKey, named: TestAuthority.leafName,
      by: apple.intermediateKey, named: TestAuthority.intermediateName,
      from: "2023-09-12T19:51:53Z", until: "2025-10-11T19:51:52Z", isAuthority: false,
      marker: TestAuthority.leafMarker, usage: KeyUsage(digitalSignature: true))
    return [leaf, apple.intermediate, apple.root].map { .string($0.base64) }
  }

  private static func encoded(_ certificates: [Certificate]) -> [JSONValue] {
    certificates.map { .string($0.base64) }
  }

  /// The header of ``TestLeaf/apple`` with the leaf's certificate written in another way.
  private static func leaf(_ change: (String) -> String) -> [JSONValue] {
    let others = encoded(Array(TestLeaf.apple.certificates.dropFirst()))
    return [.string(change(TestLeaf.apple.certificates[0].base64))] + others
  }

  /// The same bytes with bits set that no byte is made of.
  private static func surplus(_ signature: String) -> String {
    let last = ["A": "B", "Q": "R", "g": "h", "w": "x"][signature.suffix(1)] ?? "?"
    return signature.dropLast() + last
  }

  private static func header(_ text: String) -> [UInt8] { Array(text.utf8) }

  private static func nested(_ depth: Int) -> String {
    String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
  }

  // swift-format-ignore
  private static let texts = [
    Forgery("nothing",                             .notThreeSegments)       { "" },
    Forgery("one part",                            .notThreeSegments)       { "e30" },
    Forgery("two parts",                           .notThreeSegments)       { $0.removeLast() },
    Forgery("four parts",                          .notThreeSegments)       { $0.append("e30") },
    Forgery("larger than anything of Apple's",     .tooLarge)               { $0[1] = String(repeating: "A", count: 300_000) },
    Forgery("a huge header",                       .tooLarge)               { $0[0] = String(repeating: "A", count: 20_000) },
    Forgery("padding behind the header",           .invalidBase64)          { $0[0] += "=" },
    Forgery("a header that is no base64",          .invalidBase64)          { $0[0] = "e30*" },
    Forgery("a header in base64's other alphabet", .invalidBase64)          { $0[0] = "e30+e30/" },
    Forgery("a header one character short",        .invalidBase64)          { $0[0] = String($0[0].prefix(5)) },
    Forgery("an empty header",                     .invalidHeader)          { $0[0] = "" },
    Forgery("padding behind the payload",          .wrongSignature)         { $0[1] += "=" },
    Forgery("padding behind the signature",        .invalidBase64)          { $0[2] += "==" },
    Forgery("a line feed at the end",              .invalidBase64)          { $0[2] += "\n" },
    Forgery("a space in the signature",            .invalidBase64)          { $0[2] = " " + $0[2] },
    Forgery("a letter that is not ASCII",          .invalidBase64)          { $0[2] = "ä" + $0[2].dropFirst(2) },
    Forgery("bits behind the last byte",           .invalidBase64)          { $0[2] = surplus($0[2]) },
    Forgery("another payload",                     .wrongSignature)         { $0[1] = DraftJWS.base64url(Signed.transaction.with(["productId": "yearly"]).bytes) },
    Forgery("another payload of Apple's",          .wrongSignature)         { $0[1] = try String(DraftJWS(Signed.renewalInfo).text.split(separator: ".")[1]) },
    Forgery("an empty payload",                    .wrongSignature)         { $0[1] = "" },
    Forgery("no signature behind its dot",         .wrongSignatureLength)   { $0[2] = "" },
    Forgery("a cut signature",                     .wrongSignatureLength)   { $0[2] = String($0[2].prefix(84)) },
    Forgery("bytes behind the signature",          .wrongSignatureLength)   { $0[2] = String($0[2].prefix(84)) + "AAAA" },
    Forgery("a signature of noughts",              .wrongSignature)         { $0[2] = DraftJWS.base64url(Array(repeating: 0, count: 64)) },
    Forgery("a signature of the largest numbers",  .wrongSignature)         { $0[2] = DraftJWS.base64url(Array(repeating: 255, count: 64)) },
    Forgery("another's signature",                 .wrongSignature)         { $0[2] = try String(DraftJWS(Signed.renewalInfo).text.split(separator: ".")[2]) },
  ]

  // swift-format-ignore
  private static let headers = [
    Forgery("none",                        .unsupportedAlgorithm)  { $0.algorithm = "none"; $0.sign = { _ in [] } },
    Forgery("None",                        .unsupportedAlgorithm)  { $0.algorithm = "None"; $0.sign = { _ in [] } },
    Forgery("no algorithm",                .unsupportedAlgorithm)  { $0.header = header(#"{"x5c":[]}"#) },
    Forgery("an algorithm that is no text", .unsupportedAlgorithm) { $0.algorithm = ["ES256"] },
    Forgery("ES256 in small letters",      .unsupportedAlgorithm)  { $0.algorithm = "es256" },
    Forgery("ES384",                       .unsupportedAlgorithm)  { $0.algorithm = "ES384" },
    Forgery("RS256",                       .unsupportedAlgorithm)  { $0.algorithm = "RS256" },
    Forgery("HS256 with the public key",   .unsupportedAlgorithm)  { $0.algorithm = "HS256"; $0.sign = hmac },
    Forgery("HS256 that says ES256",       .wrongSignatureLength)  { $0.sign = hmac },
    Forgery("the signature in DER",        .wrongSignatureLength)  { $0.sign = { try Array(Leaf.apple.key.signature(for: $0).derRepresentation) } },
    Forgery("another key's signature",     .wrongSignature)        { $0.sign = { try Array(Leaf.forger.key.signature(for: $0).rawRepresentation) } },
    Forgery("r and s the wrong way round", .wrongSignature)        { $0.sign = { let raw = Array(try Leaf.apple.key.signature(for: $0).rawRepresentation); return Array(raw[32...] + raw[..<32]) } },
    Forgery("no JSON",                     .invalidHeader)         { $0.header = header("alg=ES256") },
    Forgery("no object",                   .invalidHeader)         { $0.header = header(#"["ES256"]"#) },
    Forgery("no UTF-8",                    .invalidHeader)         { $0.header = header(#"{"alg":"ES256","a":""#) + [0xFF] + header(#""}"#) },
    Forgery("the algorithm twice",         .invalidHeader)         { $0.header = header(#"{"alg":"none","alg":"ES256"}"#) },
    Forgery("the algorithm twice, once in escapes", .invalidHeader) { $0.header = header(#"{"alg":"none","\u0061lg":"ES256"}"#) },
    Forgery("a deep header",               .invalidHeader)         { $0.header = header(#"{"alg":"ES256","x":\#(nested(40))}"#) },
    Forgery("a header with a tail",        .invalidHeader)         { $0.header = $0.headerJSON.bytes + header("{}") },
    Forgery("demands",                     .criticalHeader)        { $0.headerMembers = [("crit", ["b64"]), ("b64", false)] },
    Forgery("demands that are empty",      .criticalHeader)        { $0.headerMembers = [("crit", [])] },
    Forgery("a key of its own",            .wrongSignature)        { $0.headerMembers = [("jwk", jwk), ("kid", "mine")]; $0.sign = { try Array(Leaf.forger.key.signature(for: $0).rawRepresentation) } },
    Forgery("where to get its key",        .wrongSignature)        { $0.headerMembers = [("jku", "https://example.com/keys"), ("x5u", "https://example.com/chain")]; $0.sign = { try Array(Leaf.forger.key.signature(for: $0).rawRepresentation) } },
    Forgery("no certificates",             .wrongCertificateCount) { $0.header = header(#"{"alg":"ES256"}"#) },
    Forgery("certificates as a text",      .wrongCertificateCount) { $0.header = header(#"{"alg":"ES256","x5c":"MIIB"}"#) },
    Forgery("an empty chain",              .wrongCertificateCount) { $0.certificates = [] },
    Forgery("one certificate",             .wrongCertificateCount) { $0.certificates = encoded([Leaf.apple.certificates[0]]) },
    Forgery("two certificates",            .wrongCertificateCount) { $0.certificates = encoded([Leaf.apple.certificates[0], apple.intermediate]) },
    Forgery("four certificates",           .wrongCertificateCount) { $0.certificates = encoded(Leaf.apple.certificates + [apple.root]) },
    Forgery("three, one of them a number", .wrongCertificateCount) { $0.certificates = leaf { $0 }.dropLast() + [3] },
    Forgery("four, one of them a number",  .wrongCertificateCount) { $0.certificates = leaf { $0 } + [3] },
    Forgery("Xcode's key",                 .notSignedByApple)      { $0.certificates = encoded([Leaf.apple.certificates[0]]); $0.headerMembers = [("kid", "Apple_Xcode_Key")] },
    Forgery("garbage for a certificate",   .invalidCertificate)    { $0.certificates = leaf { _ in "garbage!" } },
    Forgery("base64 that is no DER",       .invalidCertificate)    { $0.certificates = leaf { _ in "Z2FyYmFnZSEh" } },
    Forgery("an empty certificate",        .invalidCertificate)    { $0.certificates = leaf { _ in "" } },
    Forgery("a certificate in base64url",  .invalidCertificate)    { $0.certificates = leaf { $0.replacing("+", with: "-").replacing("/", with: "_") + ($0.contains(/[+\/]/) ? "" : "-") } },
    Forgery("a certificate with line feeds", .invalidCertificate)  { $0.certificates = leaf { $0.prefix(64) + "\n" + $0.dropFirst(64) } },
    Forgery("a certificate with a tail",   .invalidCertificate)    { $0.certificates = leaf { Data([UInt8](Data(base64Encoded: $0) ?? Data()) + [5, 0]).base64EncodedString() } },
    Forgery("garbage for the root",        .invalidCertificate)    { $0.certificates = leaf { $0 }.dropLast() + ["Z2FyYmFnZSEh"] },
  ]

  // swift-format-ignore
  private static let chains = [
    Forgery("another root of the same names", .untrustedChain)        { $0.leaf = .forger },
    Forgery("the real root over another's chain", .untrustedChain)    { $0.leaf = .forger.with(certificates: [Leaf.forger.certificates[0], forger.intermediate, apple.root]) },
    Forgery("the real intermediate over another's leaf", .untrustedChain) { $0.leaf = .forger.with(certificates: [Leaf.forger.certificates[0], apple.intermediate, apple.root]) },
    Forgery("the real leaf under another's intermediate", .untrustedChain) { $0.leaf = .apple.with(certificates: [Leaf.apple.certificates[0], forger.intermediate, apple.root]) },
    Forgery("a leaf of the root's own",     .untrustedChain)          { $0.leaf = leafOfTheRoot },
    Forgery("a leaf without its marker",    .missingLeafMarker)       { $0.leaf = chain(leafMarker: nil) },
    Forgery("a leaf with the other marker", .missingLeafMarker)       { $0.leaf = chain(leafMarker: TestAuthority.intermediateMarker) },
    Forgery("an intermediate without its marker", .missingIntermediateMarker) { $0.leaf = chain(intermediateMarker: nil) },
    Forgery("expired",                      .certificateExpired)      { $0.leaf = chain(until: "2025-06-01T11:59:58Z") },
    Forgery("not valid yet",                .certificateNotYetValid)  { $0.leaf = chain(from: "2025-06-01T12:00:00Z") },
    Forgery("never valid",                  .certificateExpired)      { $0.leaf = chain(from: "2025-07-01T12:00:00Z", until: "2025-05-01T12:00:00Z") },
    Forgery("an expired intermediate",      .certificateExpired)      { $0.leaf = chain(intermediateUntil: "2025-06-01T11:59:58Z") },
    Forgery("an intermediate not valid yet", .certificateNotYetValid) { $0.leaf = chain(intermediateFrom: "2025-06-01T12:00:00Z") },
    Forgery("a leaf that must not sign",    .wrongKeyUsage)           { $0.leaf = chain(leaf: KeyUsage(keyAgreement: true)) },
    Forgery("an intermediate that must not certify", .wrongKeyUsage)  { $0.leaf = chain(intermediate: KeyUsage(digitalSignature: true)) },
    Forgery("an intermediate that is no authority", .untrustedChain)  { $0.leaf = chain(isAuthority: false) },
    Forgery("a leaf with unknown demands",  .untrustedChain)          { $0.leaf = chain(critical: [1, 2, 3, 4]) },
    Forgery("a leaf of another curve",      .wrongKey)                { $0.certificates = leafOfAnotherCurve },
    Forgery("leaf and intermediate swapped", .wrongKey)               { $0.certificates = encoded([apple.intermediate, Leaf.apple.certificates[0], apple.root]) },
    Forgery("the chain upside down",        .wrongKey)                { $0.certificates = encoded(Leaf.apple.certificates.reversed()) },
    Forgery("intermediate and root swapped", .missingIntermediateMarker) { $0.certificates = encoded([Leaf.apple.certificates[0], apple.root, apple.intermediate]) },
    Forgery("the leaf three times",         .missingIntermediateMarker) { $0.certificates = encoded(Array(repeating: Leaf.apple.certificates[0], count: 3)) },
  ]

  // swift-format-ignore
  private static let contents = [
    Forgery("padding behind a signed payload", .invalidBase64)       { try DraftJWS(Signed.transaction.with(["price": nil])).with { $0.payloadText = DraftJWS.base64url($0.payload) + "=" }.text },
    Forgery("a signed payload of the other alphabet", .invalidBase64) { try DraftJWS("{}").with { $0.payloadText = "e30+" }.text },
    Forgery("a signed payload of nothing",    .invalidPayload)       { try DraftJWS("").text },
    Forgery("a payload that is no JSON",      .invalidPayload)       { try DraftJWS("transactionId=1").text },
    Forgery("a payload that is no object",    .invalidPayload)       { try DraftJWS("[]").text },
    Forgery("a deep payload",                 .invalidPayload)       { try DraftJWS(#"{"a":\#(nested(40))}"#).text },
    Forgery("a field twice",                  .invalidPayload)       { try DraftJWS(#"{"productId":"a","productId":"b"}"#).text },
    Forgery("a payload with a tail",          .invalidPayload)       { try DraftJWS("{}{}").text },
    Forgery("a field of another type",        .invalidPayload,       signing: ["expiresDate": "2025-01-01"]),
    Forgery("signed in two days",             .signedInTheFuture,    signing: ["signedDate": 1_748_952_000_000]),
    Forgery("signed before the leaf was valid", .certificateNotYetValid, signing: ["signedDate": 1_600_000_000_000]),
    Forgery("no date, and the leaf had expired by now", .certificateExpired) { try DraftJWS(Signed.transaction.with(["signedDate": nil])).with { $0.leaf = chain(until: "2025-06-01T11:59:59Z") }.text },
    Forgery("no date",                        .missingField,         signing: ["signedDate": nil]),
    Forgery("no environment",                 .missingField,         signing: ["environment": nil]),
    Forgery("an environment of its own",      .wrongEnvironment,     signing: ["environment": "Staging"]),
    Forgery("the environment in small letters", .wrongEnvironment,   signing: ["environment": "production"]),
    Forgery("Xcode",                          .notSignedByApple,     signing: ["environment": "Xcode"]),
    Forgery("LocalTesting",                   .notSignedByApple,     signing: ["environment": "LocalTesting"]),
    Forgery("no bundle id",                   .missingField,         signing: ["bundleId": nil]),
    Forgery("another app",                    .wrongBundleID,        signing: ["bundleId": "com.example.stranger"]),
    Forgery("the app in capitals",            .wrongBundleID,        signing: ["bundleId": "com.example.APP"]),
    Forgery("no line",                        .missingField,         signing: ["originalTransactionId": nil]),
    Forgery("an empty line",                  .missingField,         signing: ["originalTransactionId": ""]),
    Forgery("no transaction id",              .missingField,         signing: ["transactionId": nil]),
    Forgery("no product",                     .missingField,         signing: ["productId": nil]),
    Forgery("no purchase date",               .missingField,         signing: ["purchaseDate": nil]),
    Forgery("a subscription without its end", .missingField,         signing: ["expiresDate": nil]),
    Forgery("a long transaction id",          .unusableField,        signing: ["transactionId": .string(String(repeating: "1", count: 129))]),
    Forgery("a control character",            .unusableField,        signing: ["productId": "month\u{7}ly"]),
    Forgery("a nought byte",                  .unusableField,        signing: ["offerIdentifier": "\u{0}"]),
    Forgery("no quantity at all",             .unusableField,        signing: ["quantity": 0]),
    Forgery("a currency that is none",        .unusableField,        signing: ["currency": "usd"]),
    Forgery("a long previous line",           .unusableField,        signing: ["previousOriginalTransactionId": .string(String(repeating: "1", count: 129))]),
    Forgery("a renewal info",                 .missingField)         { try DraftJWS(Signed.renewalInfo).text },
    Forgery("an app transaction",             .missingField)         { try DraftJWS(Signed.appTransaction).text },
    Forgery("a notification",                 .missingField)         { try DraftJWS(Signed.notification()).text },
  ]

  private static let all = texts + headers + chains + contents

  @Test(arguments: all)
  func `a forged transaction is refused for its reason`(_ forgery: Forgery) async throws {
    let text = try forgery.text()
    let cold = try Signed.verifier()
    let refusal = await cold.transaction(text)
    #expect(refusal.reason == forgery.reason, "\(refusal)")

    // Nor does it help that the genuine chain is known.
    let warm = try Signed.verifier()
    try #require(await warm.transaction(DraftJWS(Signed.transaction).text).reason == nil)
    #expect(await warm.transaction(text).reason == forgery.reason)
  }

  @Test func `no forged chain is remembered`() async throws {
    let verifier = try Signed.verifier()
    for forgery in Self.texts + Self.headers + Self.chains {
      _ = await verifier.transaction(try forgery.text())
      #expect(verifier.verifiedHeaders.count == 0, "\(forgery.testDescription)")
    }
  }

  @Test func `every kind of forgery has a row`() {
    let rows = Self.all
    let elsewhere: Set<SignedDataError.Reason> = [
      .wrongType, .wrongAppAppleID, .otherEnvironment, .otherApp, .otherOriginalTransaction,
    ]
    let reasons = Set(rows.compactMap(\.reason)).union(elsewhere)
    #expect(reasons == Set(SignedDataError.Reason.allCases))
  }

  /// Harmless variations: extra header members and a self-declared root are ignored.
  // swift-format-ignore
  private static let genuine = [
    Forgery("members beside",        nil) { $0.headerMembers = [("kid", "K"), ("jwk", jwk), ("jku", "https://example.com"), ("typ", "JWT")] },
    Forgery("another's root beside", nil) { $0.certificates = encoded(Leaf.apple.certificates.dropLast() + [forger.root]) },
    Forgery("white space",           nil) { $0.header = header(" ") + $0.headerJSON.bytes + header("\n") },
    Forgery("its last second",       nil) { $0.leaf = chain(until: "2025-06-01T11:59:59Z") },
    Forgery("its first second",      nil) { $0.leaf = chain(from: "2025-06-01T11:59:59Z") },
    Forgery("signed tomorrow",       nil, signing: ["signedDate": 1_748_865_600_000]),
  ]

  @Test(arguments: genuine)
  func `what Apple may write is accepted`(_ text: Forgery) async throws {
    let result = try await Signed.verifier().transaction(text.text())
    #expect(result.reason == nil, "\(result)")
  }

  @Test func `a refusal is one sentence without contents`() async throws {
    let verifier = try Signed.verifier()
    for forgery in Self.all {
      guard case .failure(let refusal) = await verifier.transaction(try forgery.text()) else {
        Issue.record("accepted: \(forgery.testDescription)")
        continue
      }
      let sentence = refusal.description
      #expect(sentence.hasPrefix("The signed transaction ") && sentence.hasSuffix("."))
      #expect(!sentence.contains("com.example") && !sentence.contains("monthly"), "\(sentence)")
    }
  }

  /// The leaf's public key as a secret of HS256, the oldest trick.
  private static let hmac: @Sendable ([UInt8]) throws -> [UInt8] = { input in
    let key = SymmetricKey(data: Leaf.apple.key.publicKey.x963Representation)
    return Array(HMAC<SHA256>.authenticationCode(for: input, using: key))
  }

  private static var jwk: JSONValue {
    let key = Array(Leaf.forger.key.publicKey.rawRepresentation)
    return [
      "kty": "EC", "crv": "P-256", "x": .string(DraftJWS.base64url(Array(key[..<32]))),
      "y": .string(DraftJWS.base64url(Array(key[32...]))),
    ]
  }
}
