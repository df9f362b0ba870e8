import AppStore
import Foundation
import Synchronization

/// The way from Tenure to the simulated App Store, on which what concerns one receipt can get lost
/// or stuck.
///
/// Faults of Apple's own are the simulation's; these are the network's, and meet one receipt while
/// others pass.
final class DemoNetwork: AppStoreTransport {
  /// An answer of Apple's that is under way for as long as the story wants.
  struct StuckAnswer: Sendable {
    /// Apple has answered; the answer is as of now.
    let isGiven = Latch()
    /// It may arrive.
    let mayArrive = Latch()
  }

  private enum Trouble {
    case nothingPasses
    case isStuck(StuckAnswer)
  }

  private let transport: any AppStoreTransport
  private let troubles = Mutex<[String: Trouble]>([:])

  init(transport: any AppStoreTransport) {
    self.transport = transport
  }

  /// Lets no request about a receipt through.
  func cut(_ receipt: String) {
    troubles.withLock { $0[receipt] = .nothingPasses }
  }

  /// Lets one request about a receipt through and holds its answer; further requests are lost.
  func hold(_ receipt: String) -> StuckAnswer {
    let answer = StuckAnswer()
    troubles.withLock { $0[receipt] = .isStuck(answer) }
    return answer
  }

  /// Ends all trouble about a receipt.
  func mend(_ receipt: String) {
    troubles.withLock { $0[receipt] = nil }
  }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    switch takeTrouble(with: String(decoding: request.body, as: UTF8.self)) {
    case nil: return try await transport.send(request)
    case .nothingPasses:
      throw AppStoreTransportError(.connectionLost, detail: "the demo has cut it")
    case .isStuck(let answer):
      let response = try await transport.send(request)
      answer.isGiven.open()
      await answer.mayArrive.wait()
      return response
    }
  }

  private func takeTrouble(with body: String) -> Trouble? {
    troubles.withLock { troubles in
      guard let receipt = troubles.keys.first(where: body.contains) else { return nil }
      let trouble = troubles[receipt]
      troubles[receipt] = .nothingPasses
      return trouble
    }
  }
}
