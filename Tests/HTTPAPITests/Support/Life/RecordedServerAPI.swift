import AppStore
import AppStoreSimulator
import Synchronization

/// A transport to the simulated App Store Server API that records the responses.
final class RecordedServerAPI: AppStoreTransport {
  private let simulation: AppStoreSimulation
  private let recorded = Mutex<[String: [UInt8]]>([:])

  init(_ simulation: AppStoreSimulation) { self.simulation = simulation }

  /// By path and query.
  var answers: [String: [UInt8]] { recorded.withLock { $0 } }

  func forget() { recorded.withLock { $0 = [:] } }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    let response = try simulation.answer(request)
    recorded.withLock { $0[request.target] = response.body }
    return response
  }
}
