package import Subscriptions

/// Sends requests to Apple; tests substitute this.
package protocol AppStoreTransport: Sendable {
  /// Returns the complete response, whatever its HTTP status; fails with
  /// ``AppStoreTransportError``, or `CancellationError` if the task is cancelled.
  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse
}

package struct HTTPHeader: Hashable, Codable, Sendable {
  package var name: String
  package var value: String

  package init(_ name: String, _ value: String) {
    (self.name, self.value) = (name, value)
  }
}

/// A request to Apple; its description omits the body, which may contain secrets.
package struct AppStoreRequest: Sendable, CustomStringConvertible {
  package var method: String  // Such as `POST`
  package var url: String
  package var headers: [HTTPHeader]
  package var body: [UInt8]
  /// From the first connection attempt to the last byte of the response.
  package var timeout: Duration

  package init(
    method: String, url: String, headers: [HTTPHeader], body: [UInt8], timeout: Duration
  ) {
    self.method = method
    self.url = url
    self.headers = headers
    self.body = body
    self.timeout = timeout
  }

  package var description: String { "\(method) \(url) (\(body.count) bytes)" }
}

package struct AppStoreResponse: Hashable, Sendable, CustomStringConvertible {
  package var status: Int
  package var headers: [HTTPHeader]
  package var body: [UInt8]

  package init(status: Int, headers: [HTTPHeader] = [], body: [UInt8]) {
    (self.status, self.headers, self.body) = (status, headers, body)
  }

  /// The first header field with this name, compared case-insensitively.
  package func header(_ name: String) -> String? {
    headers.first { $0.name.lowercased() == name.lowercased() }?.value
  }

  package var description: String { "HTTP \(status) (\(body.count) bytes)" }
}

/// The reason why no complete response arrived, which says nothing about a purchase.
package struct AppStoreTransportError: Error, CustomStringConvertible {
  package enum Kind: String, Sendable {
    case timedOut
    case nameNotResolved
    /// No address accepted the connection.
    case connectionFailed
    case tlsFailed
    /// The connection was reset or closed before the response was complete.
    case connectionLost
    case answerTooLarge
    case invalidURL
    case other
  }

  package var kind: Kind
  /// The library's message; it names hosts and addresses, never contents.
  package var detail: String
  package var partial: AppStoreResponse?

  package init(_ kind: Kind, detail: String, partial: AppStoreResponse? = nil) {
    (self.kind, self.detail, self.partial) = (kind, detail, partial)
  }

  package var description: String {
    switch kind {
    case .timedOut: "Apple did not respond in time: \(detail)."
    case .nameNotResolved: "The name of Apple's server could not be resolved: \(detail)."
    case .connectionFailed: "Could not connect to Apple: \(detail)."
    case .tlsFailed: "Could not establish a trusted connection to Apple: \(detail)."
    case .connectionLost: "The connection to Apple was lost: \(detail)."
    case .answerTooLarge: "Apple's response is too large: \(detail)."
    case .invalidURL: "The URL is not valid: \(detail)."
    case .other: "The request to Apple failed: \(detail)."
    }
  }
}

/// A request to Apple and its outcome, as kept for audits, without its body: the receipt is stored
/// with its submission, and the shared secret nowhere.
package struct Exchange: Hashable, Sendable {
  package var endpoint: Environment
  package var url: String
  package var startedAt: Timestamp
  package var duration: Duration
  /// Apple's response, byte for byte, or the part of it that arrived.
  package var response: AppStoreResponse?
  /// One sentence on why no complete response arrived.
  package var fault: String?

  package var httpStatus: Int? { response?.status }
  package var answer: [UInt8] { response?.body ?? [] }
  /// The time at which the response was complete or the attempt failed.
  package var endedAt: Timestamp { startedAt + duration }
}
