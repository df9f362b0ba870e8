import AppStore
import AppStoreSimulator
import Foundation
import Secrets
import Subscriptions
import Synchronization

/// Stands in for the network to Apple: the simulated App Store or a test's responses.
final class StandInAppStore: AppStoreTransport {
  let simulation: AppStoreSimulation
  /// Signs in Apple's place; tests use it too.
  let signer: SimulatedSigner

  private struct State {
    var answers: [String: [UInt8]] = [:]
    var serverAnswers: [String: [UInt8]]?
    var serverError: AppStoreResponse?
    var fault: String?
    var gate: Gate?
  }

  private let state = Mutex(State())

  /// Keys and certificates take longer to make than most tests.
  private static let sharedSigner = Result { try SimulatedSigner() }

  /// Signs with the keys of `signer`, or with those of all tests that name none.
  init(signer: SimulatedSigner? = nil) throws {
    self.signer = try signer ?? Self.sharedSigner.get()
    var configuration = AppStoreSimulation.Configuration(seed: 1, renewalLead: .zero ... .zero)
    configuration.signer = self.signer
    simulation = try AppStoreSimulation(configuration: configuration)
  }

  /// Answers every request about the receipt with these bytes.
  func answer(_ receipt: String, with body: [UInt8]) {
    state.withLock { $0.answers[receipt] = body }
  }

  /// Lets the App Store Server API answer these bytes, by path and query, and nothing else; nil:
  /// the simulation answers.
  func answerServerAPI(with bodies: [String: [UInt8]]?) {
    state.withLock { $0.serverAnswers = bodies }
  }

  /// Lets the App Store Server API answer everything with an error.
  func answerServerAPI(with status: Int, _ body: [UInt8]) {
    state.withLock { $0.serverError = AppStoreResponse(status: status, body: body) }
  }

  /// Makes Apple unreachable, or reachable again.
  func setDown(_ isDown: Bool, because reason: String = "the test said so") {
    state.withLock { $0.fault = isDown ? reason : nil }
  }

  /// Lets every request wait in front of a gate until it opens.
  func hold(at gate: Gate) {
    state.withLock { $0.gate = gate }
  }

  private struct VerifyRequest: Decodable {
    var receipt: String

    enum CodingKeys: String, CodingKey {
      case receipt = "receipt-data"
    }
  }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    if let gate = state.withLock({ $0.gate }) { await gate.pass() }
    if request.url.contains("/inApps/") { return try answerServerAPI(request) }
    let receipt = try JSONDecoder().decode(VerifyRequest.self, from: Data(request.body)).receipt
    let (answer, fault) = state.withLock { ($0.answers[receipt], $0.fault) }
    if let fault { throw AppStoreTransportError(.connectionFailed, detail: fault) }
    if let answer { return AppStoreResponse(status: 200, body: answer) }
    let simulated = simulation.verifyReceipt(
      request.body, at: request.url.contains("sandbox") ? .sandbox : .production)
    return AppStoreResponse(status: simulated.httpStatus, body: simulated.body)
  }
}

extension StandInAppStore {
  /// Answers for the App Store Server API.
  private func answerServerAPI(_ request: AppStoreRequest) throws -> AppStoreResponse {
    let (answers, fault, error) = state.withLock { ($0.serverAnswers, $0.fault, $0.serverError) }
    if let fault { throw AppStoreTransportError(.connectionFailed, detail: fault) }
    if let error { return error }
    guard let answers else { return try simulation.answer(request) }
    guard let body = answers[request.target] else {
      return AppStoreResponse(status: 500, body: Array("No test asked that before.".utf8))
    }
    return AppStoreResponse(status: 200, body: body)
  }
}

extension AppStoreRequest {
  /// The path and the query, as they were sent.
  var target: String { url.firstRange(of: "/inApps/").map { String(url[$0.lowerBound...]) } ?? "" }
}

extension AppStoreSimulation {
  /// Lets the simulated App Store Server API answer a request.
  func answer(_ request: AppStoreRequest) throws -> AppStoreResponse {
    guard let parts = URLComponents(string: request.target) else {
      throw AppStoreTransportError(.invalidURL, detail: request.target)
    }
    let answer = serverAPI(
      ServerAPIRequest(
        method: request.method, path: parts.path,
        query: (parts.queryItems ?? []).map { ServerAPIRequest.QueryItem($0.name, $0.value ?? "") },
        authorization: request.headers.first { $0.name == "Authorization" }?.value,
        body: request.body),
      at: request.url.contains("sandbox") ? .sandbox : .production)
    return AppStoreResponse(
      status: answer.httpStatus,
      headers: answer.retryAfter.map { [HTTPHeader("Retry-After", $0)] } ?? [], body: answer.body)
  }

  /// A client of the simulated App Store Server API, by some way to it.
  func serverAPI(
    over transport: any AppStoreTransport, verifier: SignedDataVerifier
  ) throws -> AppStoreServerAPI {
    AppStoreServerAPI(
      transport: transport,
      key: try ServerAPIKey(
        issuerID: apiKey.issuerID, keyID: apiKey.keyID, privateKey: Secret(apiKey.privateKeyPEM)),
      verifier: verifier, timeout: .seconds(240), patience: .zero, logger: quietLogger,
      now: { [clock] in clock.now }, sleep: { _ in })
  }
}

/// A gate that is closed until it is opened, and reports when a task waits at it.
actor Gate {
  private var isOpen = false
  private var isReached = false
  private var passers: [CheckedContinuation<Void, Never>] = []
  private var watchers: [CheckedContinuation<Void, Never>] = []

  func pass() async {
    isReached = true
    watchers.forEach { $0.resume() }
    watchers = []
    guard !isOpen else { return }
    await withCheckedContinuation { passers.append($0) }
  }

  func open() {
    isOpen = true
    passers.forEach { $0.resume() }
    passers = []
  }

  /// Returns when a task waits at the gate.
  func reached() async {
    guard !isReached else { return }
    await withCheckedContinuation { watchers.append($0) }
  }
}
