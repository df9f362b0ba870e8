import AppStore
import AppStoreSimulator
import Crypto
import Foundation
import JSONText
import Subscriptions
import Synchronization
import Testing

/// A stand-in for an app's server that records its requests; a test sets the responses.
final class StandInServer: AppStoreTransport {
  private struct State {
    var statuses: [Int] = []
    var usual: Int
    var requests: [AppStoreRequest] = []
    var error: AppStoreTransportError?
  }

  private let state: Mutex<State>

  init(_ usual: Int = 200) {
    state = Mutex(State(usual: usual))
  }

  /// Sets the statuses of the next responses, and of all later ones.
  func answer(_ statuses: [Int] = [], then usual: Int) {
    state.withLock {
      $0.statuses = statuses
      $0.usual = usual
    }
  }

  func fail(_ kind: AppStoreTransportError.Kind?) {
    state.withLock { $0.error = kind.map { AppStoreTransportError($0, detail: "on purpose") } }
  }

  var requests: [AppStoreRequest] { state.withLock(\.requests) }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    try state.withLock { state in
      state.requests.append(request)
      if let error = state.error { throw error }
      let status = state.statuses.isEmpty ? state.usual : state.statuses.removeFirst()
      return AppStoreResponse(status: status, body: [])
    }
  }
}

extension Stage {
  static let url = "https://app.example.com/notifications"

  /// Lets notifications be written from now on.
  func notify(_ versions: SimulatedNotification.Version...) throws {
    try simulation.setNotificationTargets(versions.map { NotificationTarget($0, url: Self.url) })
  }

  /// Trusts the simulation only.
  func verifier() throws -> SignedDataVerifier {
    let simulation = simulation
    let app = SimulatedApp.sample
    return SignedDataVerifier(
      roots: try TrustedRoots(pem: simulation.rootCertificatePEM),
      apps: try AppStoreApps([
        AppStoreApp(bundleID: app.bundleID, appleID: Int64(app.appAppleID))
      ]), now: { simulation.now })
  }

  /// A notification as a server reads it that verifies everything.
  func verified(_ notification: SimulatedNotification) async throws -> SignedNotification {
    let jws = try #require(notification.signedPayload)
    return try await verifier().notification(jws, receivedAt: simulation.now).get()
  }

  // MARK: The App Store Server API

  func token(_ change: (inout APIToken) -> Void = { _ in }) throws -> String {
    var token = APIToken(simulation)
    change(&token)
    return try token.text(simulation.apiKey.privateKeyPEM)
  }

  /// Asks the API as the sample app.
  func ask(
    _ method: String = "GET", _ path: String, _ query: [(String, String)] = [],
    body: JSONValue? = nil, at environment: Environment? = nil
  ) throws -> SimulatedAnswer {
    simulation.serverAPI(
      ServerAPIRequest(
        method: method, path: path,
        query: query.map { ServerAPIRequest.QueryItem($0.0, $0.1) },
        authorization: "Bearer \(try token())", body: body?.bytes ?? []),
      at: environment ?? self.environment)
  }

  /// The same where the answer has to be good.
  func json(
    _ method: String = "GET", _ path: String, _ query: [(String, String)] = [],
    body: JSONValue? = nil, at environment: Environment? = nil
  ) throws -> JSONValue {
    let answer = try ask(method, path, query, body: body, at: environment)
    #expect(answer.httpStatus == 200, "\(String(decoding: answer.body, as: UTF8.self))")
    return try JSONValue(parsing: answer.body)
  }
}

/// The bearer token of a request to the App Store Server API.
struct APIToken {
  var header: [JSONValue.Member]
  var claims: [JSONValue.Member]
  var key: P256.Signing.PrivateKey?

  init(_ simulation: AppStoreSimulation) {
    let now = simulation.now.milliseconds / 1000
    header = [
      JSONValue.Member(key: "alg", value: "ES256"),
      JSONValue.Member(key: "kid", value: .string(simulation.apiKey.keyID)),
      JSONValue.Member(key: "typ", value: "JWT"),
    ]
    claims = [
      JSONValue.Member(key: "iss", value: .string(simulation.apiKey.issuerID)),
      JSONValue.Member(key: "iat", value: .integer(now)),
      JSONValue.Member(key: "exp", value: .integer(now + 300)),
      JSONValue.Member(key: "aud", value: "appstoreconnect-v1"),
      JSONValue.Member(key: "bid", value: .string(SimulatedApp.sample.bundleID)),
    ]
  }

  /// Changes a member of the header or a claim; nil takes it away.
  mutating func set(_ name: String, _ value: JSONValue?) {
    header = Self.set(header, name, value)
    claims = Self.set(claims, name, value)
  }

  private static func set(_ members: [JSONValue.Member], _ name: String, _ value: JSONValue?)
    -> [JSONValue.Member]
  {
    members.compactMap { member in
      guard member.key.rawValue == name else { return member }
      return value.map { JSONValue.Member(key: name, value: $0) }
    }
  }

  func text(_ pem: String) throws -> String {
    let signed =
      "\(Self.base64URL(JSONValue.object(header).bytes))."
      + Self.base64URL(JSONValue.object(claims).bytes)
    let key = try self.key ?? P256.Signing.PrivateKey(pemRepresentation: pem)
    let signature = try key.signature(for: Data(signed.utf8))
    return "\(signed).\(Self.base64URL(signature.rawRepresentation))"
  }

  private static func base64URL(_ bytes: some Sequence<UInt8>) -> String {
    Data(bytes).base64EncodedString().replacingOccurrences(of: "+", with: "-")
      .replacingOccurrences(of: "/", with: "_").replacingOccurrences(of: "=", with: "")
  }
}
