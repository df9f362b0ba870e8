package import Instrumentation
package import Logging
package import Tracing

/// A tracer for an OpenTelemetry collector that continues the caller's trace, recorded if the
/// caller says so; otherwise the new trace's ID determines it, so that all programs agree.
package struct OpenTelemetryTracer: Tracer {
  private let buffer: SpanBuffer
  /// Trace IDs below this are recorded.
  private let threshold: UInt64

  /// - Parameter ratio: The share of new traces that are recorded, from 0 to 1.
  package init(exporter: SpanExporter, ratio: Double) {
    buffer = exporter.buffer
    threshold = ratio >= 1 ? .max : UInt64(max(0, ratio) * 0x1p64)
  }

  package func startSpan<Instant: TracerInstant>(
    _ operationName: String, context: @autoclosure () -> InstrumentationContext,
    ofKind kind: SpanKind, at instant: @autoclosure () -> Instant, function: String,
    file fileID: String, line: UInt
  ) -> RecordedSpan {
    var context = context()
    let parent = context.traceContext
    var place =
      parent
      ?? {
        let trace = TraceContext.TraceID(
          high: .random(in: 1 ... .max), low: .random(in: 0 ... .max))
        return TraceContext(trace: trace, span: 0, isSampled: records(trace))
      }()
    place.span = .random(in: 1 ... .max)
    context.traceContext = place
    let start = instant().nanosecondsSinceEpoch
    let span = FinishedSpan(
      context: place, parent: parent?.span, name: operationName, kind: kind, start: start,
      end: start)
    return RecordedSpan(span, context: context, buffer: buffer)
  }

  func records(_ trace: TraceContext.TraceID) -> Bool { threshold == .max || trace.low < threshold }

  /// Does nothing; the exporter sends spans on its own schedule.
  package func forceFlush() {}

  // MARK: W3C Trace Context

  private static let parentField = "traceparent"
  private static let stateField = "tracestate"

  package func extract<Carrier, Extract: Extractor>(
    _ carrier: Carrier, into context: inout InstrumentationContext, using extractor: Extract
  ) where Extract.Carrier == Carrier {
    guard let parent = extractor.extract(key: Self.parentField, from: carrier) else { return }
    context.traceContext = TraceContext(
      traceparent: parent, state: extractor.extract(key: Self.stateField, from: carrier))
  }

  package func inject<Carrier, Inject: Injector>(
    _ context: InstrumentationContext, into carrier: inout Carrier, using injector: Inject
  ) where Inject.Carrier == Carrier {
    guard let place = context.traceContext else { return }
    injector.inject(place.traceparent, forKey: Self.parentField, into: &carrier)
    if let state = place.state { injector.inject(state, forKey: Self.stateField, into: &carrier) }
  }

  package static let metadataProvider = Logger.MetadataProvider {
    guard let place = InstrumentationContext.current?.traceContext else { return [:] }
    return ["trace_id": "\(place.trace)", "span_id": "\(place.span.hexadecimal)"]
  }
}

/// The position in a trace, as sent in W3C Trace Context headers.
package struct TraceContext: Hashable, Sendable {
  /// The 128 bits shared by all spans of a trace.
  package struct TraceID: Hashable, Sendable, CustomStringConvertible {
    var high: UInt64
    var low: UInt64

    package var description: String { high.hexadecimal + low.hexadecimal }
  }

  var trace: TraceID
  /// The current span; in a received context, the caller's.
  var span: UInt64
  var isSampled: Bool
  /// The `tracestate` of other tracers, passed on unchanged.
  var state: String?
}

extension TraceContext {
  /// Longer states are not passed on (section 3.3.1.5).
  private static let longestState = 512

  /// Parses `traceparent` (https://www.w3.org/TR/trace-context/, section 3.2.2).
  package init?(traceparent text: String, state: String? = nil) {
    let text = Array(text.utf8)
    let dash = UInt8(ascii: "-")
    guard text.count >= 55, text[2] == dash, text[35] == dash, text[52] == dash,
      let version = Self.number(text[0..<2]), version != 0xFF,
      // Later versions may append fields after another dash.
      version == 0 ? text.count == 55 : text.count == 55 || text[55] == dash,
      let high = Self.number(text[3..<19]), let low = Self.number(text[19..<35]),
      high != 0 || low != 0, let span = Self.number(text[36..<52]), span != 0,
      let flags = Self.number(text[53..<55])
    else { return nil }
    self.init(
      trace: TraceID(high: high, low: low), span: span, isSampled: flags & 1 == 1,
      state: state.flatMap { $0.utf8.count <= Self.longestState && !$0.isEmpty ? $0 : nil })
  }

  package var traceparent: String { "00-\(trace)-\(span.hexadecimal)-0\(isSampled ? 1 : 0)" }

  private static func number(_ digits: ArraySlice<UInt8>) -> UInt64? {
    // Upper case is not valid here.
    guard digits.allSatisfy("0123456789abcdef".utf8.contains) else { return nil }
    return UInt64(String(decoding: digits, as: UTF8.self), radix: 16)
  }
}

extension UInt64 {
  var hexadecimal: String {
    let digits = String(self, radix: 16)
    return String(repeating: "0", count: 16 - digits.count) + digits
  }
}

private enum TraceContextKey: InstrumentationContextKey {
  typealias Value = TraceContext
}

extension InstrumentationContext {
  package var traceContext: TraceContext? {
    get { self[TraceContextKey.self] }
    set { self[TraceContextKey.self] = newValue }
  }
}
