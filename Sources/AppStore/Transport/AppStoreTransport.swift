package import Subscriptions

/// What carries requests to Apple and brings the answers back: the one seam for tests.
package protocol AppStoreTransport: Sendable {
  /// Sends the request and returns the whole answer, whatever its HTTP status.
  ///
  /// Throws `AppStoreTransportError` where no whole answer came, and `CancellationError` when the
  /// task is cancelled.
  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse
}

/// One HTTP header field.
package struct HTTPHeader: Hashable, Codable, Sendable {
  package var name: String
  package var value: String

  package init(_ name: String, _ value: String) {
    self.name = name
    self.value = value
  }
}

/// A request to Apple.
///
/// Its body can hold a shared secret and a customer's receipt: its description shows neither.
package struct AppStoreRequest: Sendable, CustomStringConvertible {
  /// As in `POST`.
  package var method: String
  package var url: String
  package var headers: [HTTPHeader]
  package var body: [UInt8]
  /// From the first try to connect until the last byte of the answer.
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

/// What Apple answered, as it came.
package struct AppStoreResponse: Hashable, Sendable, CustomStringConvertible {
  /// The HTTP status.
  package var status: Int
  package var headers: [HTTPHeader]
  package var body: [UInt8]

  package init(status: Int, headers: [HTTPHeader] = [], body: [UInt8]) {
    self.status = status
    self.headers = headers
    self.body = body
  }

  /// The value of the first header field of that name; names are compared without case.
  package func header(_ name: String) -> String? {
    headers.first { $0.name.lowercased() == name.lowercased() }?.value
  }

  package var description: String { "HTTP \(status) (\(body.count) bytes)" }
}

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

/// One request to Apple and what came of it: what the audit trail keeps.
///
/// The request is not in it, for the receipt is kept once, with the submission, and the shared
/// secret nowhere.
package struct Exchange: Hashable, Sendable {
  /// Which of Apple's two environments was asked.
  package var endpoint: Environment
  package var url: String
  package var startedAt: Timestamp
  package var duration: Duration
  /// Apple's answer, byte by byte, or as much of it as arrived.
  package var response: AppStoreResponse?
  /// Why no whole answer arrived, in one sentence.
  package var fault: String?

  /// The HTTP status, where Apple got as far as that.
  package var httpStatus: Int? { response?.status }
  /// The bytes of Apple's answer; empty where none came.
  package var answer: [UInt8] { response?.body ?? [] }
  /// The moment at which the answer was whole, or the attempt had failed.
  package var endedAt: Timestamp { startedAt + duration }

  package init(
    endpoint: Environment, url: String, startedAt: Timestamp, duration: Duration,
    response: AppStoreResponse? = nil, fault: String? = nil
  ) {
    self.endpoint = endpoint
    self.url = url
    self.startedAt = startedAt
    self.duration = duration
    self.response = response
    self.fault = fault
  }
}
