import JSONText
import Tracing

struct FinishedSpan: Sendable {
  var context: TraceContext
  /// The parent span; nil for the root of a trace.
  var parent: UInt64?
  var name: String
  var kind: SpanKind
  var start: UInt64  // Nanoseconds since 1970
  var end: UInt64
  var attributes: SpanAttributes
  var events: [SpanEvent]
  var links: [SpanLink]
  var status: SpanStatus?
}

extension FinishedSpan {
  /// The body of a request to `/v1/traces`, in the JSON encoding of OTLP 1.
  ///
  /// IDs are hexadecimal and 64-bit numbers are strings:
  /// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
  static func body(of spans: [FinishedSpan], from resource: [(String, String)]) -> [UInt8] {
    var json = JSONWriter(capacity: 1024 * (spans.count + 1))
    json.object { json in
      json.key("resourceSpans")
      json.array(CollectionOfOne(resource)) { json, resource in
        json.object { json in
          json.key("resource")
          json.object { json in
            json.key("attributes")
            json.array(resource) { json, attribute in
              json.attribute(attribute.0) { $0.member("stringValue", attribute.1) }
            }
          }
          json.key("scopeSpans")
          json.array(CollectionOfOne(spans)) { json, spans in
            json.object { json in
              json.key("scope")
              json.object { $0.member("name", "tenure") }
              json.key("spans")
              json.array(spans) { json, span in span.write(to: &json) }
            }
          }
        }
      }
    }
    return json.bytes
  }

  private func write(to json: inout JSONWriter) {
    json.object { json in
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
        json.key("events")
        json.array(events) { json, event in
          json.object { json in
            json.member("timeUnixNano", "\(event.nanosecondsSinceEpoch)")
            json.member("name", event.name)
            json.attributes(event.attributes)
          }
        }
      }
      if !links.isEmpty {
        json.key("links")
        json.array(links) { json, link in
          json.object { json in
            json.memberIfPresent("traceId", (link.context.traceContext?.trace).map { "\($0)" })
            json.memberIfPresent("spanId", link.context.traceContext?.span.hexadecimal)
            json.attributes(link.attributes)
          }
        }
      }
      if let status {
        json.key("status")
        json.object { json in
          json.member("code", status.code == .error ? 2 : 1)
          json.memberIfPresent("message", status.message)
        }
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
    var all: [(String, SpanAttribute)] = []
    attributes.forEach { all.append(($0, $1)) }
    key("attributes")
    array(all.sorted { $0.0 < $1.0 }) { json, attribute in
      json.attribute(attribute.0) { json in json.value(attribute.1) }
    }
  }

  fileprivate mutating func attribute(_ name: String, _ value: (inout JSONWriter) -> Void) {
    object { json in
      json.member("key", name)
      json.key("value")
      json.object(value)
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
