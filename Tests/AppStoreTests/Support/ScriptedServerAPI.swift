import AppStore
import Crypto
import Foundation
import JSONText
import Logging
import Secrets
import Subscriptions
import Synchronization

/// A stand-in for the App Store Server API that answers from a script and records the requests,
/// with a clock that only waiting advances.
final class ScriptedServerAPI: AppStoreTransport {
  struct Asked: Sendable {
    var method: String
    var environment: Environment
    /// The path and the query, as they were sent.
    var target: String
    var headers: [HTTPHeader]
    var body: [UInt8]
    var at: Timestamp

    /// The bearer token.
    var token: String {
      let value = headers.first { $0.name == "Authorization" }?.value ?? ""
      return value.hasPrefix("Bearer ") ? String(value.dropFirst(7)) : ""
    }
  }

  static let privateKey = P256.Signing.PrivateKey()
  static let key: ServerAPIKey = {
    do {
      return try ServerAPIKey(
        issuerID: "57246542-96fe-1a63-e053-0824d011072a", keyID: "2X9R4HXF34",
        privateKey: Secret(privateKey.pemRepresentation))
    } catch {
      preconditionFailure("A test's key is refused: \(error)")
    }
  }()

  private let script: @Sendable (Asked) throws -> AppStoreResponse
  private let requests = Mutex<[Asked]>([])
  private let time = Mutex(Signed.now)

  init(_ script: @escaping @Sendable (Asked) throws -> AppStoreResponse) {
    self.script = script
  }

  /// Always answers the same.
  convenience init(_ response: AppStoreResponse) {
    self.init { _ in response }
  }

  var asked: [Asked] { requests.withLock { $0 } }
  var now: Timestamp { time.withLock { $0 } }

  /// Lets time pass.
  func pass(_ duration: Duration) {
    time.withLock { $0 = $0 + duration }
  }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    let addresses = AppleURLs.serverAPI
    let environment: Environment =
      request.url.hasPrefix(addresses.sandbox) ? .sandbox : .production
    let asked = Asked(
      method: request.method, environment: environment,
      target: String(request.url.dropFirst(addresses[environment].count)),
      headers: request.headers, body: request.body, at: now)
    requests.withLock { $0.append(asked) }
    return try script(asked)
  }

  /// A client that asks here, and trusts ``TestAuthority/apple``.
  func client(
    patience: Duration = AppStoreServerAPI.patience,
    logger: Logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }),
    sleep: (@Sendable (Duration) async throws -> Void)? = nil
  ) throws -> AppStoreServerAPI {
    AppStoreServerAPI(
      transport: self, key: Self.key, verifier: try Signed.verifier(), timeout: .seconds(240),
      patience: patience, logger: logger, now: { self.now },
      sleep: sleep ?? { self.pass($0) })
  }
}

extension AppStoreResponse {
  /// An answer as Apple's server sends it.
  static func api(
    _ body: JSONValue, status: Int = 200, headers: [HTTPHeader] = []
  ) -> AppStoreResponse {
    AppStoreResponse(
      status: status, headers: [HTTPHeader("Content-Type", "application/json")] + headers,
      body: body.bytes)
  }

  /// A no, as Apple's server says it; without a code there is no body.
  static func refusal(
    _ status: Int, code: Int64? = nil, headers: [HTTPHeader] = []
  ) -> AppStoreResponse {
    guard let code else { return AppStoreResponse(status: status, headers: headers, body: []) }
    let body: JSONValue = ["errorCode": .integer(code), "errorMessage": "Apple's words."]
    return api(body, status: status, headers: headers)
  }
}

/// The error that a call ended with; nil where it did not.
func serverAPIError(
  _ body: () async throws -> some Sendable
) async -> AppStoreServerAPIError? {
  do {
    _ = try await body()
    return nil
  } catch {
    return error as? AppStoreServerAPIError
  }
}
