import AsyncHTTPClient
import Foundation
import JSONText
package import Logging
import NIOCore
import NIOHTTP1
package import Secrets
import ServiceLifecycle
import Synchronization

/// Sends spans to a collector in batches, as OTLP over HTTP; keeps a bounded number while it is
/// unavailable.
package struct SpanExporter: Service {
  /// The full URL, such as `http://127.0.0.1:4318/v1/traces`, and fields sent with every request.
  package typealias Collector = (url: String, headers: [(name: String, value: Secret<String>)])

  /// The defaults of OpenTelemetry's batch processor.
  private static let batch = 512
  private static let limit = 2048
  private static let turn: Duration = .milliseconds(200)
  private static let timeout: TimeAmount = .seconds(10)
  private static let responseLimit = 65_536

  let buffer = SpanBuffer(limit: Self.limit)
  private let collector: Collector
  private let resource: [(String, String)]
  private let interval: Duration
  private let logger: Logger

  package init(
    to collector: Collector, from program: String, interval: Duration = .seconds(5), logger: Logger
  ) {
    (self.collector, self.interval) = (collector, interval)
    resource = [
      ("service.name", "tenure"), ("service.instance.id", UUID().text),
      ("tenure.program", program),
    ]
    self.logger = logger
  }

  /// Sends a batch when it is full or the interval has passed, and the rest on shutdown.
  package func run() async throws {
    var configuration = HTTPClient.Configuration(redirectConfiguration: .disallow)
    // Requests that carry spans are not traced.
    configuration.tracing.tracer = nil
    configuration.timeout = HTTPClient.Configuration.Timeout(
      connect: Self.timeout, read: Self.timeout)
    configuration.connectionPool.retryConnectionEstablishment = false
    let client = HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
    await cancelWhenGracefulShutdown {
      while !Task.isCancelled {
        await waitForSpans()
        // A request in flight runs to its end; if cancelled, its spans would be sent again.
        await Task { await send(with: client) }.value
      }
    }
    await Task { await send(with: client) }.value
    try await client.shutdown()
  }

  private func waitForSpans() async {
    var waited: Duration = .zero
    while waited < interval, buffer.count < Self.batch, !Task.isCancelled {
      let turn = min(Self.turn, interval - waited)
      try? await Task.sleep(for: turn)
      waited += turn
    }
  }

  private enum Outcome {
    case taken
    /// The collector is unavailable, and the request can be repeated.
    case later(String)
    case refused(String)
  }

  private func send(with client: HTTPClient) async {
    while true {
      let (spans, dropped) = buffer.take(atMost: Self.batch)
      if dropped > 0 {
        logger.warning(
          "Spans were dropped because the buffer was full", metadata: ["spans": "\(dropped)"])
      }
      guard !spans.isEmpty else { return }
      switch await post(spans, with: client) {
      case .taken: continue
      case .later(let fault):
        buffer.putBack(spans)
        logger.warning(
          "The collector is unavailable; spans will be sent later",
          metadata: ["collector": "\(collector.url)", "fault": "\(fault)"])
        return
      case .refused(let fault):
        logger.warning(
          "The collector rejected spans; they are dropped",
          metadata: [
            "collector": "\(collector.url)", "fault": "\(fault)", "spans": "\(spans.count)",
          ])
      }
    }
  }

  private func post(_ spans: [FinishedSpan], with client: HTTPClient) async -> Outcome {
    var request = HTTPClientRequest(url: collector.url)
    request.method = .POST
    request.headers.add(name: "Content-Type", value: "application/json")
    for (name, value) in collector.headers {
      request.headers.add(name: name, value: value.revealed)
    }
    request.body = .bytes(FinishedSpan.body(of: spans, from: resource))
    do {
      let response = try await client.execute(request, timeout: Self.timeout)
      let body = try? await response.body.collect(upTo: Self.responseLimit)
      switch response.status.code {
      case 200..<300:
        // Part of the batch may be rejected, with a reason.
        if let body, String(buffer: body).contains("rejectedSpans") {
          logger.warning(
            "The collector rejected some spans",
            metadata: [
              "collector": "\(collector.url)", "response": "\(String(buffer: body).prefix(300))",
            ])
        }
        return .taken
      // The statuses that OTLP allows to be retried.
      case 429, 502, 503, 504: return .later("HTTP \(response.status.code)")
      default: return .refused("HTTP \(response.status.code)")
      }
    } catch {
      return .later("\(error)")
    }
  }
}

final class SpanBuffer: Sendable {
  private struct State: Sendable {
    var spans: [FinishedSpan] = []
    var dropped = 0
  }

  /// Bounds memory while the collector is unavailable; further spans are dropped.
  private let limit: Int
  private let state = Mutex(State())

  init(limit: Int) { self.limit = limit }

  var count: Int { state.withLock(\.spans.count) }

  func append(_ span: FinishedSpan) {
    state.withLock { state in
      if state.spans.count < limit { state.spans.append(span) } else { state.dropped += 1 }
    }
  }

  /// Takes the oldest spans, and the number dropped since the last call.
  func take(atMost count: Int) -> (spans: [FinishedSpan], dropped: Int) {
    state.withLock { state in
      let taken = Array(state.spans.prefix(count))
      state.spans.removeFirst(taken.count)
      defer { state.dropped = 0 }
      return (taken, state.dropped)
    }
  }

  /// Puts back spans that could not be sent, as far as there is room.
  func putBack(_ spans: [FinishedSpan]) {
    state.withLock { state in
      let room = max(0, limit - state.spans.count)
      state.dropped += max(0, spans.count - room)
      state.spans.insert(contentsOf: spans.suffix(room), at: 0)
    }
  }
}
