/// Why no whole answer of Apple's arrived.
///
/// Never a statement about a purchase.
package struct AppStoreTransportError: Error, CustomStringConvertible {
  /// What failed.
  package enum Kind: String, Sendable {
    /// The request's time was up.
    case timedOut
    /// The name of the host leads to no address.
    case nameNotResolved
    /// Nothing accepted the connection.
    case connectionFailed
    /// The two sides could not agree on a trusted connection.
    case tlsFailed
    /// The connection was reset, or closed before the answer was whole.
    case connectionLost
    /// The answer is larger than is accepted.
    case answerTooLarge
    /// The URL is none that can be asked.
    case invalidURL
    case other
  }

  package var kind: Kind
  /// The library's own words; they name hosts and addresses, never contents.
  package var detail: String
  /// As much of the answer as did arrive.
  package var partial: AppStoreResponse?

  package init(_ kind: Kind, detail: String, partial: AppStoreResponse? = nil) {
    self.kind = kind
    self.detail = detail
    self.partial = partial
  }

  /// One plain sentence.
  package var description: String {
    switch kind {
    case .timedOut: "Apple did not answer in time: \(detail)."
    case .nameNotResolved: "The name of Apple's server could not be resolved: \(detail)."
    case .connectionFailed: "No connection to Apple could be made: \(detail)."
    case .tlsFailed: "No trusted connection to Apple could be made: \(detail)."
    case .connectionLost: "The connection to Apple was lost: \(detail)."
    case .answerTooLarge: "Apple's answer is too large: \(detail)."
    case .invalidURL: "The URL cannot be asked: \(detail)."
    case .other: "Apple could not be asked: \(detail)."
    }
  }
}
