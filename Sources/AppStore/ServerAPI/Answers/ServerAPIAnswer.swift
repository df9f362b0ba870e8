package import Subscriptions

/// What Apple said, and which of its environments said it.
package struct ServerAPIAnswer<Content: Sendable>: Sendable {
  package let environment: Environment
  package let content: Content

  /// The same environment with something else.
  func map<Other: Sendable>(
    _ transform: (Content) async throws -> Other
  ) async rethrows -> ServerAPIAnswer<Other> {
    ServerAPIAnswer<Other>(environment: environment, content: try await transform(content))
  }
}

/// Apple has accepted a request, and has nothing to say to it.
package struct ServerAPIAcknowledgement: Hashable, Sendable {}

/// A signed part of an answer, and what its verification came to.
///
/// Its description shows nothing of what is signed.
package struct SignedPart<Value: Hashable & Sendable>: Hashable, Sendable, CustomStringConvertible {
  /// As Apple sent it.
  package let jws: String
  package let verdict: Result<Value, SignedDataRefusal>

  /// What is signed; nil where it is refused.
  package var value: Value? { try? verdict.get() }

  /// Why it is refused; nil where it is verified.
  package var refusal: SignedDataRefusal? {
    if case .failure(let refusal) = verdict { refusal } else { nil }
  }

  package var description: String { refusal.map { "refused: \($0)" } ?? "verified" }
}
