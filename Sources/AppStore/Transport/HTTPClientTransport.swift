package import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import Subscriptions
import Tracing

/// Asks Apple over HTTP.
package struct HTTPClientTransport: AppStoreTransport {
  /// Above the largest answers, which are several megabytes of history.
  ///
  /// What is larger is a fault, or somebody else's server.
  package static let answerLimitBytes = 20 * 1024 * 1024

  /// How many connections to one host there can be at a time.
  ///
  /// Apple's sandbox takes minutes at times: a few slow answers must not make the next requests
  /// wait in line until their own time is up.
  private static let connectionLimit = 64

  private let client: HTTPClient
  private let answerLimitBytes: Int

  /// Asks with `client`, which its maker shuts down.
  package init(client: HTTPClient, answerLimitBytes: Int = Self.answerLimitBytes) {
    self.client = client
    self.answerLimitBytes = answerLimitBytes
  }

  /// How a client for Apple is set up.
  ///
  /// Redirects are not followed, for a receipt and a shared secret go to the configured host only.
  /// A refused connection fails at once: retrying is the worker's task, which says so to callers.
  package static var clientConfiguration: HTTPClient.Configuration {
    var configuration = HTTPClient.Configuration(redirectConfiguration: .disallow)
    configuration.connectionPool.retryConnectionEstablishment = false
    // The span is ``TracedTransport``'s, which Apple is not told of and which has no ids in it.
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
  /// Sorts what the HTTP library and those below it throw.
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
    let detail = (error as? NIOConnectionError)?.summary ?? Self.words(of: error)
    self.init(kind, detail: detail, partial: partial)
  }
}

extension AppStoreTransportError {
  /// What an error of the system's says; NIO's words speak of a reset, whatever happened.
  fileprivate static func words(of error: any Error) -> String {
    guard let error = error as? IOError else { return "\(error)" }
    let code = Int(error.errnoCode)
    return NSError(domain: NSPOSIXErrorDomain, code: code).localizedFailureReason ?? "\(error)"
  }
}

extension NIOConnectionError {
  /// One sentence, however many addresses the host has; its own description lists them all.
  fileprivate var summary: String {
    guard let first = connectionErrors.first else { return description }
    return "\(host):\(port), addresses tried: \(connectionErrors.count), of which the first says "
      + AppStoreTransportError.words(of: first.error)
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

/// The header `Retry-After`, in each of the three forms in which Apple's servers send it.
///
/// HTTP knows seconds and a date (RFC 9110, section 10.2.3); the App Store Server API sends an
/// instant in milliseconds since 1970
/// (https://developer.apple.com/documentation/appstoreserverapi/identifying-rate-limits).
enum RetryAfter {
  /// A server that says "in ten years" is wrong: nothing waits longer than a day for it.
  static let longestWait = Duration.days(1)
  /// Read as seconds, this would be three thousand years; as an instant, it is 1973.
  private static let smallestInstant: Int64 = 100_000_000_000

  /// The moment before which nothing should be asked.
  ///
  /// Nil where the header is missing, cannot be read, or names a moment that has passed: then the
  /// caller's own delays hold.
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
  /// Reads HTTP's preferred form of a date, as in `Sun, 06 Nov 1994 08:49:37 GMT`.
  ///
  /// The two obsolete forms are nil: nobody has sent them for decades.
  init?(httpDate text: some StringProtocol) {
    let fields = text.split(separator: " ")
    guard fields.count == 6, fields[5] == "GMT",
      let month = CalendarDate.monthNames.firstIndex(where: { $0 == fields[2] })
    else { return nil }
    let number = month < 9 ? "0\(month + 1)" : "\(month + 1)"
    self.init(rfc3339: "\(fields[3])-\(number)-\(fields[1])T\(fields[4])Z")
  }
}
