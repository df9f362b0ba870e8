import AppStore
import JSONText
import Subscriptions
import Testing

/// The choice of Apple's environment, and the one that answered.
struct ServerAPIEnvironmentTests {
  private static let app = "com.example.app"

  enum Answer: Sendable {
    case yes
    case no(Int, Int64?)
    case silence

    var response: AppStoreResponse {
      get throws {
        switch self {
        case .yes: .api(["data": []])
        case .no(let status, let code): .refusal(status, code: code)
        case .silence: throw AppStoreTransportError(.timedOut, detail: "10 seconds have passed")
        }
      }
    }
  }

  // swift-format-ignore
  @Test(arguments: [
    // production          sandbox              spoke        error
    (.yes,                 .silence,            .production, nil),
    (.no(404, 4_040_010),  .yes,                .sandbox,    nil),
    (.no(404, 4_040_005),  .yes,                .sandbox,    nil),
    (.no(404, 4_040_001),  .yes,                .sandbox,    nil),
    // An app that was never released: production knows no key for it.
    (.no(401, nil),        .yes,                .sandbox,    nil),
    (.no(404, 4_040_010),  .no(404, 4_040_010), nil,         .notFound),
    (.no(404, 4_040_010),  .no(404, 4_040_001), nil,         .notFound),
    (.no(401, nil),        .no(401, nil),       .production, .unauthorized),
    (.no(401, nil),        .no(404, 4_040_010), .production, .unauthorized),
    // Whether the sandbox knows it is not known.
    (.no(404, 4_040_010),  .silence,            .sandbox,    .unreachable),
    (.no(404, 4_040_010),  .no(500, 5_000_001), .sandbox,    .unavailable),
    (.no(404, 4_040_010),  .no(401, nil),       .sandbox,    .unauthorized),
    // Production has not said that it does not know it.
    (.no(404, 4_040_002),  .yes,                .production, .unavailable),
    (.no(404, 4_040_006),  .yes,                .production, .unavailable),
    (.no(404, nil),        .yes,                .production, .misconfigured),
    (.no(400, 4_000_006),  .yes,                .production, .invalidRequest),
    (.no(500, nil),        .yes,                .production, .unavailable),
    (.silence,             .yes,                .production, .unreachable),
  ] as [(Answer, Answer, Environment?, AppStoreServerAPIError.Kind?)])
  func `where the environment is not known`(
    production: Answer, sandbox: Answer, spoke: Environment?, kind: AppStoreServerAPIError.Kind?
  ) async throws {
    let api = ScriptedServerAPI { asked in
      try (asked.environment == .production ? production : sandbox).response
    }
    let client = try api.client()
    var environment: Environment?
    let error = await serverAPIError {
      environment = try await client.subscriptionStatuses(of: "1", in: Self.app).environment
    }
    #expect(error?.kind == kind)
    #expect((error == nil ? environment : error?.environment) == spoke)
    #expect(api.asked.first?.environment == .production)
  }

  @Test func `an unknown id is reported for both environments`() async throws {
    let client = try ScriptedServerAPI(.refusal(404, code: 4_040_010)).client()
    let error = await serverAPIError {
      try await client.subscriptionStatuses(of: "1", in: Self.app)
    }
    #expect(error?.description.contains("in either environment") == true)
  }

  @Test(arguments: Environment.allCases)
  func `where it is known, the other one is left alone`(environment: Environment) async throws {
    let api = ScriptedServerAPI(.refusal(404, code: 4_040_010))
    let client = try api.client()
    let error = await serverAPIError {
      try await client.subscriptionStatuses(of: "1", in: Self.app, environment: environment)
    }
    #expect(error?.kind == .notFound)
    #expect(error?.environment == environment)
    #expect(api.asked.map(\.environment) == [environment])
  }

  @Test(arguments: [
    "", "api.storekit.apple.com", "ftp://127.0.0.1", "http://", "http://a/?b=c", "http://a/#b",
    "http://user:secret@a", "http://a/" + String(repeating: "b", count: 255),
  ])
  func `no address`(text: String) throws {
    let good = "http://127.0.0.1:8090"
    for (production, sandbox) in [(text, good), (good, text)] {
      #expect(throws: AppStoreSettingError.self) {
        try AppleURLs.serverAPI.replaced(production: production, sandbox: sandbox)
      }
    }
  }

  @Test func `an address can have a path, and a slash at its end is no part of it`() throws {
    let addresses = try AppleURLs.serverAPI.replaced(
      production: "http://127.0.0.1:1/", sandbox: "https://localhost:2/sandbox//")
    #expect(addresses[.production] == "http://127.0.0.1:1")
    #expect(addresses[.sandbox] == "https://localhost:2/sandbox")
    #expect(AppleURLs.serverAPI[.production] == "https://api.storekit.apple.com")
    #expect(AppleURLs.serverAPI[.sandbox] == "https://api.storekit-sandbox.apple.com")
  }
}
