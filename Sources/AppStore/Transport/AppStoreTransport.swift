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
