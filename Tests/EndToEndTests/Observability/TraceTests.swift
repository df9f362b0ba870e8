import AppStoreSimulator
import AsyncHTTPClient
import Foundation
import Logging
import NIOCore
import NIOHTTP1
import Observability
import Postgres
import ScratchDatabases
import Secrets
import ServiceLifecycle
import Subscriptions
import Synchronization
import Testing
import Tracing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("Exported traces")
struct TraceTests {
  /// A span, as it was sent.
  private struct Span: Decodable {
    var traceId, spanId, name: String
    var parentSpanId: String?
    var kind: Int
  }

  /// The spans of requests to a collector.
  private static func spans(_ requests: [StandInReceiver.Request]) throws -> [Span] {
    struct Body: Decodable {
      struct Resource: Decodable { var scopeSpans: [Scope] }
      struct Scope: Decodable { var spans: [Span] }
      var resourceSpans: [Resource]
    }
    return try requests.flatMap { request in
      try JSONDecoder().decode(Body.self, from: Data(request.body.utf8))
        .resourceSpans.flatMap(\.scopeSpans).flatMap(\.spans)
    }
  }

  @Test("a request, with all that was asked on its behalf, is a part of the caller's trace")
  func request() async throws {
    let trace = "0af7651916cd43dd8448eb211c80319c"
    try await StandInReceiver.run { collector in
      try await withScratchDatabase { database in
        try await SimulatedApple.serving(from: .now) { apple in
          try await withTemporaryDirectory { directory in
            try apple.simulation.addAppleID("customer")
            try apple.simulation.addDevice("phone", appleID: "customer")
            try apple.simulation.buy("monthly", on: "phone")
            let receipt = try apple.simulation.receipt(on: "phone")
            let server = try await ServeProcess.start(
              try TenureProgram.executable, databaseURL: database.uri,
              environment: apple.settings.merging([
                "TENURE_OTLP_ENDPOINT": "http://127.0.0.1:\(collector.port)/",
                "TENURE_OTLP_HEADERS": "X-Scope=a%20b", "TENURE_TRACE_RATIO": "0",
              ]) { $1 }, in: directory)
            for flags in ["01", "00"] {
              var request = HTTPClientRequest(url: server.url + "/v1/receipts")
              request.method = .POST
              request.headers.add(name: "Authorization", value: "Bearer \(server.secret)")
              request.headers.add(name: "Content-Type", value: "application/json")
              request.headers.add(
                name: "traceparent", value: "00-\(trace)-b7ad6b7169203331-\(flags)")
              request.body = .bytes(
                Array(#"{"account_id":"customer","receipt_data":"\#(receipt)"}"#.utf8))
              let answer = try await HTTPClient.shared.execute(request, timeout: .seconds(120))
              #expect(answer.status == .ok)
            }
            await server.stop()
          }
        }
      }
      let requests = collector.requests
      #expect(!requests.isEmpty)
      for request in requests {
        #expect(request.head.uri == "/v1/traces")
        #expect(request.head.headers.first(name: "X-Scope") == "a b")
        // The account's ID is not exported.
        #expect(!request.body.contains("customer"))
      }
      let spans = try Self.spans(requests)
      // Requests that the caller does not trace are not traced either, by this setting.
      #expect(spans.allSatisfy { $0.traceId == trace })
      let server = try #require(spans.first { $0.name == "POST /v1/receipts" })
      #expect(server.kind == 2 && server.parentSpanId == "b7ad6b7169203331")
      #expect(spans.count { $0.name == server.name } == 1)
      let names = Set(spans.filter { $0.kind == 3 }.map(\.name))
      #expect(names == ["PostgreSQL", "Apple"])
      let ids = Set(spans.map(\.spanId))
      #expect(
        spans.allSatisfy { $0.spanId == server.spanId || ids.contains($0.parentSpanId ?? "") })
    }
  }

  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  /// Runs an exporter to a stand-in during `body`, and then shuts it down as a program does.
  private static func export(
    to collector: StandInReceiver, every interval: Duration,
    _ body: (OpenTelemetryTracer) async throws -> Void
  ) async throws {
    let exporter = SpanExporter(
      to: (url: "http://127.0.0.1:\(collector.port)/v1/traces", headers: []),
      from: "work", interval: interval, logger: quiet)
    let group = ServiceGroup(services: [exporter], logger: quiet)
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      tasks.addTask { try await group.run() }
      try await body(OpenTelemetryTracer(exporter: exporter, ratio: 1))
      await group.triggerGracefulShutdown()
      try await tasks.waitForAll()
    }
  }

  private static func wait(until isSo: () -> Bool) async throws {
    let end = ContinuousClock.now + .seconds(120)
    while !isSo(), ContinuousClock.now < end { try await Task.sleep(for: .milliseconds(5)) }
    #expect(isSo())
  }

  @Test("an unavailable collector gets traces later, and what it refuses is dropped")
  func trouble() async throws {
    try await StandInReceiver.run { collector in
      // It is unavailable, recovers, refuses a request, redirects one, and accepts the rest.
      let answers = Mutex([503, 200, 400, 302])
      collector.answer { _ in
        .status(
          answers.withLock { $0.isEmpty ? 200 : $0.removeFirst() },
          headers: ["Location": "http://127.0.0.1:1/"])
      }
      try await Self.export(to: collector, every: .milliseconds(10)) { tracer in
        for (name, requests) in [("away", 2), ("refused", 3), ("elsewhere", 4)] {
          tracer.withSpan(name) { _ in }
          try await Self.wait { collector.requests.count >= requests }
        }
        // Spans still buffered when the program ends are sent first.
        tracer.withSpan("last") { _ in }
      }
      let names = try collector.requests.map { try Self.spans([$0]).map(\.name) }
      #expect(names == [["away"], ["away"], ["refused"], ["elsewhere"], ["last"]])
    }
  }

  @Test("more spans than fit into a request don't wait")
  func many() async throws {
    try await StandInReceiver.run { collector in
      try await Self.export(to: collector, every: .seconds(3600)) { tracer in
        for _ in 0..<600 { tracer.withSpan("one of many") { _ in } }
        try await Self.wait { collector.requests.count >= 2 }
      }
      #expect(try Self.spans(collector.requests).count == 600)
    }
  }

  @Test("a program ends though its collector does not answer")
  func silence() async throws {
    try await StandInReceiver.run { collector in
      collector.answer { _ in .silence }
      let start = ContinuousClock.now
      try await Self.export(to: collector, every: .milliseconds(10)) { tracer in
        tracer.withSpan("a") { _ in }
        try await Self.wait { !collector.requests.isEmpty }
      }
      #expect(ContinuousClock.now - start < .seconds(100))
    }
  }

  @Test(
    "settings that can't be are refused, and a secret is not repeated",
    arguments: [
      ["TENURE_OTLP_ENDPOINT": "collector:4318"], ["TENURE_OTLP_ENDPOINT": "ftp://a"],
      ["TENURE_OTLP_ENDPOINT": "http://a?b=c"], ["TENURE_OTLP_ENDPOINT": "http://a#b"],
      ["TENURE_OTLP_ENDPOINT": "http://ops:geheim@a"], ["TENURE_OTLP_HEADERS": "a(b=geheim"],
      ["TENURE_TRACE_RATIO": "2"],
      ["TENURE_TRACE_RATIO": "half"], ["TENURE_OTLP_HEADERS": "geheim"],
      ["TENURE_OTLP_HEADERS": "a=%0Ageheim"], ["TENURE_OTLP_HEADERS": "=geheim"],
    ])
  func settings(_ wrong: [String: String]) async throws {
    func settings(_ more: [String: String]) async throws -> Settings {
      let right = ["TENURE_OTLP_ENDPOINT": "https://a.example/otlp/"]
      return try Settings(
        try await SettingSource(flags: right.merging(more) { $1 }, environment: [:]))
    }
    let error = await #expect(throws: SettingError.self) { try await settings(wrong) }
    #expect(error?.name == wrong.keys.first)
    #expect(error?.fault.contains("geheim") == false)
    let traces = try #require(
      try await settings(["TENURE_OTLP_HEADERS": "a=b%2C, c=d=e"]).traces)
    #expect(traces.ratio == 1)
    #expect(traces.collector.url == "https://a.example/otlp/v1/traces")
    #expect(
      traces.collector.headers.map { "\($0.name): \($0.value.revealed)" } == ["a: b,", "c: d=e"])
  }

  @Test("what is logged on behalf of a trace says so")
  func log() throws {
    let exporter = SpanExporter(
      to: (url: "http://127.0.0.1:1/v1/traces", headers: []), from: "serve",
      logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
    let metadata = OpenTelemetryTracer(exporter: exporter, ratio: 1).withSpan("a") { _ in
      OpenTelemetryTracer.metadataProvider.get()
    }
    #expect(metadata["trace_id"]?.description.count == 32)
    #expect(metadata["span_id"]?.description.count == 16)
    #expect(OpenTelemetryTracer.metadataProvider.get().isEmpty)
  }
}
