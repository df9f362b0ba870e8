package import Instrumentation
import JSONText
import Synchronization
package import Tracing

/// A span of a trace, which may or may not be recorded.
package final class RecordedSpan: Span {
  private struct State: Sendable {
    var span: FinishedSpan
    var isOver = false
  }

  package let context: InstrumentationContext
  private let isSampled: Bool
  private let buffer: SpanBuffer
  private let state: Mutex<State>

  init(_ span: FinishedSpan, context: InstrumentationContext, buffer: SpanBuffer) {
    (self.context, self.buffer) = (context, buffer)
    isSampled = span.context.isSampled
    state = Mutex(State(span: span))
  }

  package var isRecording: Bool { isSampled && !state.withLock(\.isOver) }

  package var operationName: String {
    get { state.withLock(\.span.name) }
    set { change { $0.name = newValue } }
  }

  package var attributes: SpanAttributes {
    get { state.withLock(\.span.attributes) }
    set { change { $0.attributes = newValue } }
  }

  package func setStatus(_ status: SpanStatus) { change { $0.status = status } }
  package func addEvent(_ event: SpanEvent) { change { $0.events.append(event) } }
  /// Does nothing: Tenure links no spans.
  package func addLink(_ link: SpanLink) {}

  /// Records the error's type only: its message may be personal data, and spans leave the system;
  /// the log has it, by trace ID.
  package func recordError<Instant: TracerInstant>(
    _ error: any Error, attributes: SpanAttributes, at instant: @autoclosure () -> Instant
  ) {
    guard isSampled else { return }
    var attributes = attributes
    attributes["exception.type"] = String(reflecting: type(of: error))
    let event = SpanEvent(name: "exception", at: instant(), attributes: attributes)
    change { span in
      span.events.append(event)
      span.status = span.status ?? SpanStatus(code: .error)
    }
  }

  /// Ends the span and queues it for sending; later calls have no effect.
  package func end<Instant: TracerInstant>(at instant: @autoclosure () -> Instant) {
    guard isSampled else { return }
    let end = instant().nanosecondsSinceEpoch
    let ended = state.withLock { state -> FinishedSpan? in
      guard !state.isOver else { return nil }
      state.isOver = true
      state.span.end = end
      return state.span
    }
    if let ended { buffer.append(ended) }
  }

  private func change(_ change: (inout FinishedSpan) -> Void) {
    guard isSampled else { return }
    state.withLock { state in
      if !state.isOver { change(&state.span) }
    }
  }
}

struct FinishedSpan: Sendable {
  var context: TraceContext
  /// The parent span; nil for the root of a trace.
  var parent: UInt64?
  var name: String
  var kind: SpanKind
  var start: UInt64  // Nanoseconds since 1970
  var end: UInt64
  var attributes: SpanAttributes = [:]
  var events: [SpanEvent] = []
  var status: SpanStatus?

  /// The body of a request to `/v1/traces`, in the JSON encoding of OTLP 1: IDs are hexadecimal,
  /// and 64-bit numbers strings (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding).
  static func body(of spans: [FinishedSpan], from resource: [(String, String)]) -> [UInt8] {
    var json = JSONWriter(capacity: 1024 * (spans.count + 1))
    json.object { json in
      json.objects("resourceSpans", CollectionOfOne(resource)) { json, resource in
        json.object("resource") { json in
          json.objects("attributes", resource) { json, attribute in
            json.member("key", attribute.0)
            json.object("value") { $0.member("stringValue", attribute.1) }
          }
        }
        json.objects("scopeSpans", CollectionOfOne(spans)) { json, spans in
          json.object("scope") { $0.member("name", "tenure") }
          json.objects("spans", spans) { json, span in span.writeMembers(to: &json) }
        }
      }
    }
    return json.bytes
  }

  private func writeMembers(to json: inout JSONWriter) {
    json.member("traceId", "\(context.trace)")
    json.member("spanId", context.span.hexadecimal)
    json.memberIfPresent("parentSpanId", parent?.hexadecimal)
    json.memberIfPresent("traceState", context.state)
    json.member("name", name)
    json.member("kind", kind.number)
    json.member("startTimeUnixNano", "\(start)")
    json.member("endTimeUnixNano", "\(end)")
    json.attributes(attributes)
    if !events.isEmpty {
      json.objects("events", events) { json, event in
        json.member("timeUnixNano", "\(event.nanosecondsSinceEpoch)")
        json.member("name", event.name)
        json.attributes(event.attributes)
      }
    }
    if let status {
      json.object("status") { json in
        json.member("code", status.code == .error ? 2 : 1)
        json.memberIfPresent("message", status.message)
      }
    }
  }
}

extension SpanKind {
  fileprivate var number: Int {
    switch self {
    case .server: 2
    case .client: 3
    case .producer: 4
    case .consumer: 5
    case .internal: 1
    }
  }
}

extension JSONWriter {
  fileprivate mutating func attributes(_ attributes: SpanAttributes) {
    guard !attributes.isEmpty else { return }
    var all: [(name: String, value: SpanAttribute)] = []
    attributes.forEach { all.append(($0, $1)) }
    objects("attributes", all.sorted { $0.name < $1.name }) { json, attribute in
      json.member("key", attribute.name)
      json.object("value") { $0.value(attribute.value) }
    }
  }

  private mutating func value(_ value: SpanAttribute) {
    switch value {
    case .int32(let number): member("intValue", "\(number)")
    case .int64(let number): member("intValue", "\(number)")
    case .bool(let flag): member("boolValue", flag)
    case .double(let number) where number.isFinite:
      key("doubleValue")
      write(json: "\(number)")
    case .string(let text): member("stringValue", text)
    case .stringConvertible(let value): member("stringValue", "\(value)")
    // Tenure sets no arrays.
    default: member("stringValue", "\(value)")
    }
  }
}
