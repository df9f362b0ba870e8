import AsyncHTTPClient
import Foundation
package import Logging
import NIOCore
import NIOHTTP1
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
    package var headers: [(name: String, value: String)]

    package init(url: String, headers: [(name: String, value: String)] = []) {
      self.url = url
      self.headers = headers
    }
  }

  /// The numbers of OpenTelemetry's own batch processor.
  private static let batch = 512
  private static let limit = 2048
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

  /// Sends what there is every few seconds, and the rest when the program ends.
  package func run() async throws {
    var configuration = HTTPClient.Configuration()
    // The requests that carry spans have none of their own.
    configuration.tracing.tracer = nil
    let client = HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
    await cancelWhenGracefulShutdown {
      while !Task.isCancelled {
        try? await Task.sleep(for: interval)
        await send(with: client)
      }
    }
    // A task of its own, for this one may be cancelled.
    await Task { await send(with: client) }.value
    try await client.shutdown()
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
        // The program ends: what is left is sent once more.
        if Task.isCancelled { return }
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
    for (name, value) in collector.headers { request.headers.add(name: name, value: value) }
    request.body = .bytes(FinishedSpan.body(of: spans, from: resource))
    do {
      let answer = try await client.execute(request, timeout: Self.timeout)
      _ = try? await answer.body.collect(upTo: Self.longestAnswer)
      switch answer.status.code {
      case 200..<300: return .taken
      // What OTLP says may be tried again.
      case 429, 502, 503, 504: return .later("HTTP \(answer.status.code)")
      default: return .refused("HTTP \(answer.status.code)")
      }
    } catch {
      return .later("\(error)")
    }
  }
}
