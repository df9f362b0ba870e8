package import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
package import Subscriptions
import Tracing

package struct HTTPClientTransport: AppStoreTransport {
  /// Above the largest responses, several megabytes of history; larger ones are errors.
  package static let answerLimitBytes = 20 * 1024 * 1024

  /// The maximum number of concurrent connections per host; slow responses, for which the sandbox
  /// takes minutes, must not delay other requests until their timeout.
  private static let connectionLimit = 64

  private let client: HTTPClient
  private let answerLimitBytes: Int

  /// The caller shuts down the client.
  package init(client: HTTPClient, answerLimitBytes: Int = Self.answerLimitBytes) {
    (self.client, self.answerLimitBytes) = (client, answerLimitBytes)
  }

  /// The configuration of clients for Apple, without redirects, because receipts and shared secrets
  /// must only reach the configured host; a refused connection is left to the worker.
  package static var clientConfiguration: HTTPClient.Configuration {
    var configuration = HTTPClient.Configuration(redirectConfiguration: .disallow)
    configuration.connectionPool.retryConnectionEstablishment = false
    // ``TracedTransport`` records the span, without IDs and without sending the trace to Apple.
    configuration.tracing.tracer = nil
    configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = connectionLimit
    return configuration
  }

  package func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    try await withThrowingTaskGroup(of: Outcome.self) { group in
      group.addTask { await perform(request) }
      group.addTask {
        try await Task.sleep(for: request.timeout)
        return .timeIsUp
      }
      defer { group.cancelAll() }
      switch try await group.next() {
      case .answered(let response): return response
      case .failed(let error):
        try Task.checkCancellation()
        throw error
      case .timeIsUp, nil: break
      }
      group.cancelAll()
      let late = try await group.next()
      if case .answered(let response) = late { return response }
      var error = AppStoreTransportError(.timedOut, detail: "\(request.timeout) have passed")
      if case .failed(let interruption) = late { error.partial = interruption.partial }
      throw error
    }
  }

  private enum Outcome: Sendable {
    case answered(AppStoreResponse)
    case failed(AppStoreTransportError)
    case timeIsUp
  }

  private func perform(_ request: AppStoreRequest) async -> Outcome {
    var outgoing = HTTPClientRequest(url: request.url)
    outgoing.method = HTTPMethod(rawValue: request.method)
    for header in request.headers { outgoing.headers.add(name: header.name, value: header.value) }
    outgoing.body = .bytes(request.body)
    var partial: AppStoreResponse?
    do {
      let answer = try await client.execute(
        outgoing, timeout: .milliseconds(request.timeout.components.seconds * 1000 + 1000))
      var response = AppStoreResponse(
        status: Int(answer.status.code),
        headers: answer.headers.map { HTTPHeader($0.name, $0.value) }, body: [])
      partial = response
      for try await chunk in answer.body {
        guard response.body.count + chunk.readableBytes <= answerLimitBytes else {
          return .failed(
            AppStoreTransportError(
              .answerTooLarge, detail: "more than \(answerLimitBytes) bytes", partial: response))
        }
        response.body.append(contentsOf: chunk.readableBytesView)
        partial = response
      }
      return .answered(response)
    } catch {
      return .failed(AppStoreTransportError(error, partial: partial))
    }
  }
}

extension AppStoreTransportError {
  fileprivate init(_ error: any Error, partial: AppStoreResponse?) {
    let kind: Kind =
      switch error {
      case let error as HTTPClientError: Kind(error)
      case let error as NIOConnectionError:
        error.connectionErrors.isEmpty ? .nameNotResolved : .connectionFailed
      case is NIOSSLError, is NIOSSLExtraError, is BoringSSLError: .tlsFailed
      case ChannelError.connectTimeout: .timedOut
      case let error as IOError
      where [ECONNREFUSED, EHOSTUNREACH, ENETUNREACH].contains(error.errnoCode):
        .connectionFailed
      case is IOError, is ChannelError, is HTTPParserError: .connectionLost
      default: .other
      }
    let detail = (error as? NIOConnectionError)?.summary ?? Self.message(of: error)
    self.init(kind, detail: detail, partial: partial)
  }

  /// The system's message for an I/O error; NIO's always mentions a reset.
  fileprivate static func message(of error: any Error) -> String {
    guard let error = error as? IOError else { return "\(error)" }
    let code = Int(error.errnoCode)
    return NSError(domain: NSPOSIXErrorDomain, code: code).localizedFailureReason ?? "\(error)"
  }
}

extension NIOConnectionError {
  /// One sentence for any number of addresses; NIO's own description lists them all.
  fileprivate var summary: String {
    guard let first = connectionErrors.first else { return description }
    return "\(host):\(port), addresses tried: \(connectionErrors.count), first error: "
      + AppStoreTransportError.message(of: first.error)
  }
}

extension AppStoreTransportError.Kind {
  fileprivate init(_ error: HTTPClientError) {
    self =
      switch error {
      case .connectTimeout, .deadlineExceeded, .readTimeout, .writeTimeout,
        .getConnectionFromPoolTimeout:
        .timedOut
      case .tlsHandshakeTimeout: .tlsFailed
      case .remoteConnectionClosed, .uncleanShutdown: .connectionLost
      case .invalidURL, .emptyHost, .emptyScheme: .invalidURL
      default: .other
      }
  }
}

/// Adds a span to each request, without the path, which contains a customer's transaction ID, and
/// without sending the trace to Apple.
package struct TracedTransport: AppStoreTransport {
  private let transport: any AppStoreTransport

  package init(_ transport: any AppStoreTransport) { self.transport = transport }

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

/// The `Retry-After` header, in the three forms that Apple's servers send.
///
/// HTTP defines seconds and a date (RFC 9110, section 10.2.3); the App Store Server API sends
/// milliseconds since 1970
/// (https://developer.apple.com/documentation/appstoreserverapi/identifying-rate-limits).
enum RetryAfter {
  /// An upper limit, in case a server sends a nonsensical value.
  static let longestWait = Duration.days(1)
  /// Read as seconds, this would be three thousand years; as milliseconds since 1970, it is 1973.
  private static let smallestInstant: Int64 = 100_000_000_000

  /// The time before which no request should be sent; nil without a readable one in the future.
  static func moment(_ header: String?, now: Timestamp) -> Timestamp? {
    guard let header, let asked = read(header, now: now), asked > now else { return nil }
    return min(asked, now + longestWait)
  }

  private static func read(_ header: String, now: Timestamp) -> Timestamp? {
    let text = header.drop { $0 == " " }
    guard let number = Int64(text) else { return Timestamp(httpDate: text) }
    guard number >= 0 else { return nil }
    if number >= smallestInstant { return Timestamp(milliseconds: number) }
    return now + min(.seconds(number), longestWait)
  }
}

extension Timestamp {
  /// Parses HTTP's date format, such as `Sun, 06 Nov 1994 08:49:37 GMT`, not the obsolete two.
  package init?(httpDate text: some StringProtocol) {
    let fields = text.split(separator: " ")
    guard fields.count == 6, fields[5] == "GMT",
      let month = CalendarDate.monthNames.firstIndex(where: { $0 == fields[2] })
    else { return nil }
    let number = month < 9 ? "0\(month + 1)" : "\(month + 1)"
    self.init(rfc3339: "\(fields[3])-\(number)-\(fields[1])T\(fields[4])Z")
  }
}
