import AppStore
import JSONText
import Subscriptions
import Testing

/// The meaning of each of Apple's error responses.
struct ServerAPIErrorTests {
  typealias Kind = AppStoreServerAPIError.Kind

  // swift-format-ignore
  @Test(arguments: [
    // HTTP, code      kind              again
    (400, 4_000_000,   .invalidRequest,  false),
    (400, 4_000_002,   .invalidRequest,  false),
    (400, 4_000_005,   .invalidRequest,  false),
    (400, 4_000_006,   .invalidRequest,  false),
    (400, 4_000_008,   .invalidRequest,  false),
    (400, 4_000_017,   .invalidRequest,  false),
    (400, 4_000_019,   .invalidRequest,  false),
    (400, 4_000_047,   .invalidRequest,  false),
    (400, 4_000_183,   .invalidRequest,  false),
    (400, 4_000_185,   .invalidRequest,  false),
    (400, 4_000_187,   .invalidRequest,  false),
    (400, nil,         .invalidRequest,  false),
    (401, nil,         .unauthorized,    false),
    (401, 4_010_000,   .unauthorized,    false),
    (403, 4_030_004,   .forbidden,       false),
    (403, 4_030_005,   .forbidden,       false),
    (403, 4_030_007,   .forbidden,       false),
    (403, nil,         .forbidden,       false),
    (404, 4_040_001,   .notFound,        false),
    (404, 4_040_002,   .unavailable,     true),
    (404, 4_040_003,   .notFound,        false),
    (404, 4_040_004,   .unavailable,     true),
    (404, 4_040_005,   .notFound,        false),
    (404, 4_040_006,   .unavailable,     true),
    (404, 4_040_007,   .notFound,        false),
    (404, 4_040_008,   .notFound,        false),
    (404, 4_040_010,   .notFound,        false),
    (404, 4_040_019,   .notFound,        false),
    (404, nil,         .misconfigured,   false),
    (429, 4_290_000,   .rateLimited,     true),
    (429, nil,         .rateLimited,     true),
    (500, 5_000_000,   .unavailable,     true),
    (500, 5_000_001,   .unavailable,     true),
    (500, nil,         .unavailable,     true),
    (502, nil,         .unavailable,     true),
    (503, nil,         .unavailable,     true),
    (408, nil,         .unavailable,     true),
    // Unknown codes.
    (400, 9_990_000,   .invalidRequest,  false),
    (404, 9_990_000,   .notFound,        false),
    (409, 4_090_001,   .invalidRequest,  false),
    (500, 9_990_000,   .unavailable,     true),
    // No App Store Server API answers so.
    (301, nil,         .misconfigured,   false),
    (302, nil,         .misconfigured,   false),
    (405, nil,         .misconfigured,   false),
    (407, nil,         .misconfigured,   false),
    (410, nil,         .misconfigured,   false),
  ] as [(Int, Int64?, Kind, Bool)])
  func `what an answer means`(status: Int, code: Int64?, kind: Kind, again: Bool) async throws {
    let api = ScriptedServerAPI(.refusal(status, code: code))
    let client = try api.client(patience: .zero)
    let error = try #require(
      await serverAPIError {
        try await client.transactionInfo("1", of: "com.example.app", in: .production)
      })
    #expect(error.kind == kind)
    #expect(error.isRetryable == again)
    #expect(error.httpStatus == status)
    #expect(error.code?.rawValue == code)
    #expect(error.endpoint == .transactionInfo)
    #expect(error.environment == .production)
    if code != nil { #expect(error.description.contains("Apple's words (HTTP \(status), code")) }
    #expect(error.description.contains("Get Transaction Info in production"))
  }

  @Test(arguments: [503, 429, 500])
  func `an answer can say when to ask again`(status: Int) async throws {
    let moment = Signed.now + .hours(1)
    let header = HTTPHeader("Retry-After", "\(moment.milliseconds)")
    let client = try ScriptedServerAPI(.refusal(status, headers: [header])).client()
    let error = await serverAPIError {
      try await client.subscriptionStatuses(of: "1", in: "com.example.app", environment: .sandbox)
    }
    #expect(error?.notBefore == moment)
    #expect(error?.isRetryable == true)
  }

  @Test func `a key that Apple refuses is reported with the settings and the clock`() async throws {
    let date = HTTPHeader("Date", "Sun, 01 Jun 2025 12:07:00 GMT")
    for (headers, words) in [([], "this machine's clock;"), ([date], "is 420 seconds behind")] {
      let client = try ScriptedServerAPI(.refusal(401, headers: headers)).client()
      let error = await serverAPIError {
        try await client.requestTestNotification(of: "com.example.app", in: .production)
      }
      let text = error?.description ?? ""
      #expect(text.contains(words), "\(text)")
      for name in ["ISSUER_ID", "KEY_ID", "PRIVATE_KEY"] {
        #expect(text.contains("TENURE_APPSTORE_\(name)"), "\(text)")
      }
    }
  }

  @Test func `a fault on the way can be tried again, and a wrong address cannot`() async throws {
    for (kind, isRetryable) in [
      (AppStoreTransportError.Kind.timedOut, true), (.connectionLost, true), (.tlsFailed, true),
      (.nameNotResolved, true), (.connectionFailed, true), (.invalidURL, false),
    ] {
      let api = ScriptedServerAPI { _ in throw AppStoreTransportError(kind, detail: "so it is") }
      let client = try api.client()
      let error = await serverAPIError {
        try await client.orderLookup("MQ1", in: "com.example.app")
      }
      #expect(error?.kind == (isRetryable ? .unreachable : .misconfigured))
      #expect(error?.isRetryable == isRetryable)
      #expect(error?.description.contains("so it is") == true)
      #expect(api.asked.count == 1)
    }
  }

  // swift-format-ignore
  @Test(arguments: [
    ("",                                       "the JSON ends too early",                           true),
    ("<html>Busy</html>",                      "the JSON has a character",                          true),
    ("[]",                                     "it is not an object",                               false),
    (#"{"environment":"Sandbox"}"#,            "it is for a different environment",                 false),
    (#"{"environment":"Elsewhere"}"#,          "it is for a different environment",                 false),
    (#"{"bundleId":"com.example.other"}"#,     "it is for a different app",                         false),
    (#"{"appAppleId":"blue"}"#,                "it has a field appAppleId that is not an integer", false),
    (#"{"revision":"1","revision":"2"}"#,      "the JSON has a member twice",                       true),
  ])
  func `an answer that is none`(body: String, words: String, again: Bool) async throws {
    let client = try ScriptedServerAPI(AppStoreResponse(status: 200, body: Array(body.utf8)))
      .client()
    let error = await serverAPIError {
      try await client.transactionHistoryPages(
        of: "1", in: "com.example.app", environment: .production
      ).first { _ in true }
    }
    #expect(error?.kind == .unexpectedAnswer)
    #expect(error?.isRetryable == again)
    #expect(error?.description.contains(words) == true, "\(error?.description ?? "")")
  }

  @Test func `an answer has a largest size`() async throws {
    let body = Array(repeating: UInt8(ascii: " "), count: 8 * 1024 * 1024 + 1)
    let client = try ScriptedServerAPI(AppStoreResponse(status: 200, body: body)).client()
    let error = await serverAPIError {
      try await client.transactionInfo("1", of: "com.example.app", in: .production)
    }
    #expect(error?.kind == .unexpectedAnswer)
    #expect(error?.description.contains("8388609 bytes") == true)
  }

  @Test(arguments: ["", "..", ".", "1 2", "1\n", "ü", String(repeating: "1", count: 256)])
  func `an identifier that would lead elsewhere is not sent`(id: String) async throws {
    let api = ScriptedServerAPI(.api([:]))
    let client = try api.client()
    let error = await serverAPIError {
      try await client.subscriptionStatuses(of: id, in: "com.example.app")
    }
    #expect(error?.kind == .invalidRequest)
    #expect(api.asked.isEmpty)
  }

  @Test func `Apple's text is printed on one line, shortened`() async throws {
    let message = "one\ntwo\r\n\u{1B}[31m" + String(repeating: " word", count: 500)
    let body: JSONValue = ["errorCode": 4_000_000, "errorMessage": .string(message)]
    let client = try ScriptedServerAPI(.api(body, status: 400)).client()
    let error = await serverAPIError {
      try await client.orderLookup("MQ1", in: "com.example.app")
    }
    let text = error?.description ?? ""
    #expect(text.count < 500)
    #expect(!text.unicodeScalars.contains { $0.properties.generalCategory == .control })
    #expect(text.contains("one two"))
  }
}
