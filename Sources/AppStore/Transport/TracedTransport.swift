import Tracing

/// The way to Apple, with a span for each request.
///
/// Apple is not told of the trace, and the span not of the request's path, which names a customer's
/// transaction.
package struct TracedTransport: AppStoreTransport {
  private let transport: any AppStoreTransport

  /// Sends by way of `transport`.
  package init(_ transport: any AppStoreTransport) {
    self.transport = transport
  }

  package func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    try await withSpan("Apple", ofKind: .client) { span in
      let response = try await transport.send(request)
      if span.isRecording {
        span.attributes["http.request.method"] = request.method
        span.attributes["http.response.status_code"] = response.status
        if response.status >= 400 { span.setStatus(SpanStatus(code: .error)) }
      }
      return response
    }
  }
}
