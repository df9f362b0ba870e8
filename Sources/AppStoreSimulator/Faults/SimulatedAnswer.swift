import AppStore
package import JSONText

/// An answer of the simulated App Store, together with how it reaches the client.
package struct SimulatedAnswer: Hashable, Sendable {
  /// How the answer reaches the client.
  package enum Delivery: Hashable, Sendable {
    case whole
    /// No byte of it arrives, ever.
    case never
    /// The connection is reset before the first byte.
    case reset
    /// The connection closes after so many bytes of the body.
    case cutOff(afterBytes: Int)
  }

  package var httpStatus: Int
  package var contentType: String
  /// The header `Retry-After`: seconds, or of the App Store Server API an instant.
  package var retryAfter: String?
  package var body: [UInt8]
  package var delivery = Delivery.whole
  /// In real time.
  package var delay = Duration.zero

  /// An answer that arrives whole and at once.
  package init(httpStatus: Int = 200, contentType: String = "application/json", body: [UInt8]) {
    self.httpStatus = httpStatus
    self.contentType = contentType
    self.body = body
  }

  /// 200 with a JSON body.
  package init(_ json: JSONValue) {
    self.init(body: json.bytes)
  }

  /// An answer that consists of a status alone.
  package init(status: Int) {
    self.init(["status": .integer(Int64(status))])
  }
}

extension SimulatedAnswer {
  private static let page = Array(
    """
    <html><head><title>503 Service Unavailable</title></head>
    <body><h1>Service Unavailable</h1><p>Reference&#32;&#35;11.5e0e1402</p></body></html>
    """.utf8)

  /// This answer as `fault` makes it.
  func with(_ fault: SimulatedFault) -> SimulatedAnswer {
    var answer = self
    switch fault {
    case .timeout: answer.delivery = .never
    case .reset: answer.delivery = .reset
    case .cutOff: answer.delivery = .cutOff(afterBytes: body.count / 2)
    case .unavailable:
      return SimulatedAnswer(httpStatus: 503, contentType: "text/html", body: Self.page)
    case .html: return SimulatedAnswer(contentType: "text/html", body: Self.page)
    case .truncated: answer.body.removeLast(body.count - body.count / 2)
    case .tooManyRequests(let seconds):
      answer = SimulatedAnswer(httpStatus: 429, contentType: "text/html", body: Self.page)
      answer.retryAfter = String(seconds)
    case .status(let status): return SimulatedAnswer(status: status)
    case .serverError(let code):
      let error = ServerAPIError.ofFaults.first { $0.code == code } ?? .internalError
      return error.answer
    case .internalError(let status, let isRetryable, let asNumber):
      return SimulatedAnswer([
        "status": .integer(Int64(status)),
        "is-retryable": asNumber ? .integer(isRetryable ? 1 : 0) : .bool(isRetryable),
      ])
    case .slow(let milliseconds): answer.delay = .milliseconds(milliseconds)
    case .large(let bytes):
      // White space before a JSON text changes nothing but its size.
      let padding = max(0, bytes - body.count)
      answer.body = Array(repeating: UInt8(ascii: " "), count: padding) + body
    }
    return answer
  }
}
