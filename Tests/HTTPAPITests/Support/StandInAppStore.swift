import AppStore
import AppStoreSimulator
import Foundation
import Subscriptions
import Synchronization

/// Stands in for the network to Apple: the simulated App Store answers, or what a test laid ready.
final class StandInAppStore: AppStoreTransport {
  let simulation: AppStoreSimulation
  /// What signs in Apple's place, and whatever a test wants signed.
  let signer: SimulatedSigner

  private struct State {
    var answers: [String: [UInt8]] = [:]
    var fault: String?
    var gate: Gate?
  }

  private let state = Mutex(State())

  init() throws {
    signer = try SimulatedSigner()
    var configuration = AppStoreSimulation.Configuration(seed: 1, renewalLead: .zero ... .zero)
    configuration.signer = signer
    simulation = try AppStoreSimulation(configuration: configuration)
  }

  /// Answers with these bytes whoever asks about the receipt.
  func answer(_ receipt: String, with body: [UInt8]) {
    state.withLock { $0.answers[receipt] = body }
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
    let receipt = try JSONDecoder().decode(VerifyRequest.self, from: Data(request.body)).receipt
    let (answer, fault) = state.withLock { ($0.answers[receipt], $0.fault) }
    if let fault { throw AppStoreTransportError(.connectionFailed, detail: fault) }
    if let answer { return AppStoreResponse(status: 200, body: answer) }
    let simulated = simulation.verifyReceipt(
      request.body, at: request.url.contains("sandbox") ? .sandbox : .production)
    return AppStoreResponse(status: simulated.httpStatus, body: simulated.body)
  }
}

/// Something that is closed until it is opened, and says when somebody waits in front of it.
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

  /// Returns when somebody stands in front of the gate.
  func reached() async {
    guard !isReached else { return }
    await withCheckedContinuation { watchers.append($0) }
  }
}
