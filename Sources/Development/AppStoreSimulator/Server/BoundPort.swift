import Synchronization

/// The port assigned by the operating system, for callers that wait for it.
final class BoundPort: Sendable {
  private enum State: Sendable {
    case waiting([CheckedContinuation<Int, any Error>])
    case settled(Result<Int, any Error>)
  }

  private let state = Mutex(State.waiting([]))

  /// Waits until the server listens; throws if it fails to.
  var value: Int {
    get async throws {
      try await withCheckedThrowingContinuation { continuation in
        let result = state.withLock { state -> Result<Int, any Error>? in
          switch state {
          case .settled(let result): return result
          case .waiting(let waiting):
            state = .waiting(waiting + [continuation])
            return nil
          }
        }
        if let result { continuation.resume(with: result) }
      }
    }
  }

  /// Resumes all waiters; only the first result counts.
  func settle(_ result: Result<Int, any Error>) {
    let waiting = state.withLock { state -> [CheckedContinuation<Int, any Error>] in
      guard case .waiting(let waiting) = state else { return [] }
      state = .settled(result)
      return waiting
    }
    for continuation in waiting { continuation.resume(with: result) }
  }
}
