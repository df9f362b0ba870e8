import AsyncHTTPClient
import Foundation
package import Logging
import NIOCore
import NIOHTTP1
package import Secrets
import ServiceLifecycle

/// Sends spans to a collector by OTLP over HTTP, a few hundred at a time.
///
/// A collector that is away for a while gets what there is room for when it is back; whatever is
/// traced goes on without it.
package struct SpanExporter: Service {
  /// Who takes the spans.
  package struct Collector: Sendable {
    /// The whole address, as in `http://127.0.0.1:4318/v1/traces`.
    package var url: String
    /// Header fields of every request, to show who sends it.
    package var headers: [(name: String, value: Secret<String>)]

    package init(url: String, headers: [(name: String, value: Secret<String>)] = []) {
      self.url = url
      self.headers = headers
    }
  }

  /// The numbers of OpenTelemetry's own batch processor.
  private static let batch = 512
  private static let limit = 2048
  /// How often it is looked whether there is enough for a request.
  private static let turn: Duration = .milliseconds(200)
  private static let timeout: TimeAmount = .seconds(10)
  /// How much of an answer is read.
  private static let longestAnswer = 65_536

  let buffer = SpanBuffer(limit: Self.limit)
  private let collector: Collector
  private let resource: [(String, String)]
  private let interval: Duration
  private let logger: Logger

  /// - Parameters:
  ///   - collector: Who takes the spans.
  ///   - program: Which of the programs sends them: `serve` or `work`.
  ///   - interval: How often they are sent, unless there are more than fit into one request.
  ///   - logger: The program's.
  package init(
    to collector: Collector, from program: String, interval: Duration = .seconds(5), logger: Logger
  ) {
    self.collector = collector
    self.interval = interval
    resource = [
      ("service.name", "tenure"), ("service.instance.id", UUID().uuidString.lowercased()),
      ("tenure.program", program),
    ]
    self.logger = logger
  }

  /// Sends what there is every few seconds or when there is enough for a request, and the rest when
  /// the program ends.
  package func run() async throws {
    var configuration = HTTPClient.Configuration(redirectConfiguration: .disallow)
    // The requests that carry spans have none of their own.
    configuration.tracing.tracer = nil
    configuration.timeout = HTTPClient.Configuration.Timeout(
      connect: Self.timeout, read: Self.timeout)
    configuration.connectionPool.retryConnectionEstablishment = false
    let client = HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
    await cancelWhenGracefulShutdown {
      while !Task.isCancelled {
        await waitForSpans()
        // A request that is under way ends by itself: cancelled, it would be sent again.
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

  /// What became of a request.
  private enum Outcome {
    case taken
    /// The collector says, or seems to, that it will take them later.
    case later(String)
    case refused(String)
  }

  private func send(with client: HTTPClient) async {
    while true {
      let (spans, dropped) = buffer.take(atMost: Self.batch)
      if dropped > 0 {
        logger.warning(
          "Spans were dropped: more ended than the collector took",
          metadata: ["spans": "\(dropped)"])
      }
      guard !spans.isEmpty else { return }
      switch await post(spans, with: client) {
      case .taken: continue
      case .later(let fault):
        buffer.putBack(spans)
        logger.warning(
          "The collector does not take spans: they are sent later",
          metadata: ["collector": "\(collector.url)", "fault": "\(fault)"])
        return
      case .refused(let fault):
        logger.warning(
          "The collector refuses spans: they are dropped",
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
      let answer = try await client.execute(request, timeout: Self.timeout)
      let body = try? await answer.body.collect(upTo: Self.longestAnswer)
      switch answer.status.code {
      case 200..<300:
        // A part of them may have been refused, with the reason beside it.
        if let body, String(buffer: body).contains("rejectedSpans") {
          logger.warning(
            "The collector refuses some of the spans",
            metadata: [
              "collector": "\(collector.url)", "answer": "\(String(buffer: body).prefix(300))",
            ])
        }
        return .taken
      // What OTLP says may be tried again.
      case 429, 502, 503, 504: return .later("HTTP \(answer.status.code)")
      default: return .refused("HTTP \(answer.status.code)")
      }
    } catch {
      return .later("\(error)")
    }
  }
}
