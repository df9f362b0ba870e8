import Foundation
import Instrumentation
import Logging
import Testing
import Tracing

@testable import Observability

@Suite("Spans")
struct TracerTests {
  private struct Fields: Extractor, Injector {
    func extract(key: String, from fields: [String: String]) -> String? { fields[key] }
    func inject(_ value: String, forKey key: String, into fields: inout [String: String]) {
      fields[key] = value
    }
  }

  private struct Refused: Error, CustomStringConvertible {
    var description: String { "anna may not" }
  }

  private static func exporter() -> SpanExporter {
    SpanExporter(
      to: (url: "http://127.0.0.1:4318/v1/traces", headers: []), from: "serve",
      logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
  }

  private static func context(_ traceparent: String) -> InstrumentationContext {
    var context = InstrumentationContext.topLevel
    context.traceContext = TraceContext(traceparent: traceparent, state: "vendor=1")
    return context
  }

  private static let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

  @Test("what is done within a span is a part of it, and all of it of the caller's trace")
  func family() throws {
    let exporter = Self.exporter()
    let tracer = OpenTelemetryTracer(exporter: exporter, ratio: 0)
    var sent: [String: String] = [:]
    tracer.withSpan("outer", context: Self.context(Self.caller), ofKind: .server) { outer in
      #expect(outer.isRecording)
      outer.operationName = "GET /"
      outer.attributes["n"] = 1
      tracer.withSpan("inner", ofKind: .client) { _ in
        tracer.inject(.current ?? .topLevel, into: &sent, using: Fields())
      }
    }
    let (spans, dropped) = exporter.buffer.take(atMost: 10)
    #expect(dropped == 0)
    #expect(spans.map(\.name) == ["inner", "GET /"])
    #expect(
      spans.map { "\($0.context.trace)" }
        == Array(repeating: String(Self.caller.split(separator: "-")[1]), count: 2))
    #expect(spans[0].parent == spans[1].context.span)
    #expect(spans[1].parent?.hexadecimal == "b7ad6b7169203331")
    #expect(spans[0].start >= spans[1].start && spans[0].end <= spans[1].end)
    #expect(sent == ["traceparent": spans[0].context.traceparent, "tracestate": "vendor=1"])
  }

  @Test("a trace is recorded where it began, or else by its id")
  func sampling() {
    for (ratio, low, isRecorded) in [
      (0.0, UInt64.min, false), (0.5, .min, true), (0.5, 1 << 63 - 1, true), (0.5, 1 << 63, false),
      (0.5, .max, false), (1, .max, true), (-1, .min, false),
    ] {
      let tracer = OpenTelemetryTracer(exporter: Self.exporter(), ratio: ratio)
      #expect(
        tracer.records(TraceContext.TraceID(high: 1, low: low)) == isRecorded, "\(ratio), \(low)")
    }
    let unsampled = Self.context(String(Self.caller.dropLast()) + "0")
    for (context, ratio, count) in [
      (Self.context(Self.caller), 0.0, 1), (unsampled, 1, 0), (.topLevel, 1, 1), (.topLevel, 0, 0),
    ] {
      let exporter = Self.exporter()
      let tracer = OpenTelemetryTracer(exporter: exporter, ratio: ratio)
      var sent: [String: String] = [:]
      tracer.withSpan("a", context: context) { span in
        #expect(span.isRecording == (count == 1))
        span.attributes["n"] = 1
        tracer.inject(span.context, into: &sent, using: Fields())
      }
      #expect(exporter.buffer.take(atMost: 10).spans.count == count)
      // The next service in the chain gets it, too.
      #expect(sent["traceparent"]?.hasSuffix(count == 1 ? "-01" : "-00") == true)
    }
  }

  @Test("a caller's field is read, and what is none begins a trace")
  func extraction() {
    let tracer = OpenTelemetryTracer(exporter: Self.exporter(), ratio: 1)
    var context = InstrumentationContext.topLevel
    tracer.extract(["traceparent": Self.caller], into: &context, using: Fields())
    #expect(context.traceContext?.traceparent == Self.caller)
    var other = InstrumentationContext.topLevel
    tracer.extract(["traceparent": "rubbish", "tracestate": "a=1"], into: &other, using: Fields())
    #expect(other.traceContext == nil)
    tracer.extract([:], into: &other, using: Fields())
    #expect(other.traceContext == nil)
  }

  @Test("an error's type is recorded, and not what it says about a person")
  func errors() throws {
    let exporter = Self.exporter()
    let tracer = OpenTelemetryTracer(exporter: exporter, ratio: 1)
    #expect(throws: Refused.self) { try tracer.withSpan("a") { _ in throw Refused() } }
    let span = try #require(exporter.buffer.take(atMost: 1).spans.first)
    let body = String(decoding: FinishedSpan.body(of: [span], from: []), as: UTF8.self)
    #expect(span.status?.code == .error)
    #expect(body.contains("Refused") && !body.contains("anna"))
  }

  @Test("a span ends once, and nothing is added to it after that")
  func once() {
    let exporter = Self.exporter()
    let span = OpenTelemetryTracer(exporter: exporter, ratio: 1).startSpan("a")
    span.end()
    span.operationName = "b"
    span.attributes["n"] = 1
    span.end()
    #expect(!span.isRecording)
    let spans = exporter.buffer.take(atMost: 10).spans
    #expect(spans.map(\.name) == ["a"])
    #expect(spans.first?.attributes.isEmpty == true)
  }

  @Test("the body is OTLP's JSON")
  func body() throws {
    var span = FinishedSpan(
      context: TraceContext(
        trace: .init(high: 1, low: 2), span: 3, isSampled: true, state: "vendor=1"),
      parent: 4, name: "GET \"/\"", kind: .server, start: 1_700_000_000_000_000_001,
      end: 1_700_000_000_000_000_002,
      attributes: ["int": 7, "text": "a\nb", "flag": true, "half": 0.5],
      events: [SpanEvent(name: "exception", attributes: ["exception.type": "E"])],
      status: SpanStatus(code: .error, message: "no"))
    let other = span
    (span.parent, span.events, span.status, span.attributes) = (nil, [], nil, [:])
    span.kind = .producer
    let body = FinishedSpan.body(of: [other, span], from: [("service.name", "tenure")])
    let json = try JSONDecoder().decode(Request.self, from: Data(body))
    let resource = try #require(json.resourceSpans.first)
    #expect(
      resource.resource.attributes == [
        .init(key: "service.name", value: .init(stringValue: "tenure"))
      ])
    let spans = try #require(resource.scopeSpans.first).spans
    #expect(spans[0].traceId == "00000000000000010000000000000002")
    #expect(spans[0].spanId == "0000000000000003" && spans[0].parentSpanId == "0000000000000004")
    #expect(spans[0].traceState == "vendor=1" && spans[0].name == "GET \"/\"")
    #expect(spans.map(\.kind) == [2, 4])
    #expect(spans[0].startTimeUnixNano == "1700000000000000001")
    #expect(spans[0].endTimeUnixNano == "1700000000000000002")
    #expect(
      spans[0].attributes == [
        .init(key: "flag", value: .init(boolValue: true)),
        .init(key: "half", value: .init(doubleValue: 0.5)),
        .init(key: "int", value: .init(intValue: "7")),
        .init(key: "text", value: .init(stringValue: "a\nb")),
      ])
    #expect(spans[0].events?.first?.name == "exception")
    #expect(spans[0].status == .init(code: 2, message: "no"))
    #expect(spans[1].parentSpanId == nil && spans[1].status == nil && spans[1].attributes == nil)
  }

  private struct Request: Decodable {
    struct Value: Decodable, Equatable {
      var stringValue: String?
      var intValue: String?
      var boolValue: Bool?
      var doubleValue: Double?
    }
    struct Attribute: Decodable, Equatable {
      var key: String
      var value: Value
    }
    struct Resource: Decodable { var attributes: [Attribute] }
    struct Event: Decodable { var name: String }
    struct Status: Decodable, Equatable {
      var code: Int
      var message: String?
    }
    struct Span: Decodable {
      var traceId, spanId, name, startTimeUnixNano, endTimeUnixNano: String
      var parentSpanId, traceState: String?
      var kind: Int
      var attributes: [Attribute]?
      var events: [Event]?
      var status: Status?
    }
    struct Scope: Decodable { var spans: [Span] }
    struct ResourceSpans: Decodable {
      var resource: Resource
      var scopeSpans: [Scope]
    }

    var resourceSpans: [ResourceSpans]
  }

  @Test("more spans than there is room for are counted, and what is put back is the oldest")
  func buffer() {
    let buffer = SpanBuffer(limit: 3)
    func add(_ name: String) {
      buffer.append(
        FinishedSpan(
          context: TraceContext(trace: .init(high: 1, low: 1), span: 1, isSampled: true),
          parent: nil, name: name, kind: .internal, start: 0, end: 0, attributes: [:], events: [],
          status: nil))
    }
    for name in ["a", "b", "c", "d", "e"] { add(name) }
    let first = buffer.take(atMost: 2)
    #expect(first.spans.map(\.name) == ["a", "b"] && first.dropped == 2)
    add("f")
    buffer.putBack(first.spans)
    let second = buffer.take(atMost: 10)
    #expect(second.spans.map(\.name) == ["b", "c", "f"] && second.dropped == 1)
    #expect(buffer.take(atMost: 10).spans.isEmpty)
  }
}
