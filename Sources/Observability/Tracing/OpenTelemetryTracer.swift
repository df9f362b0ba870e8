package import Instrumentation
package import Logging
package import Tracing

/// A tracer for an OpenTelemetry collector that continues the caller's trace if there is one.
///
/// The ID of a trace that begins here determines whether it is recorded, so that all programs
/// agree. For other traces, the caller decides.
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

  func records(_ trace: TraceContext.TraceID) -> Bool {
    threshold == .max || trace.low < threshold
  }

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
}

extension OpenTelemetryTracer {
  /// Adds the trace and span IDs to log lines.
  package static let metadataProvider = Logger.MetadataProvider {
    guard let place = InstrumentationContext.current?.traceContext else { return [:] }
    return ["trace_id": "\(place.trace)", "span_id": "\(place.span.hexadecimal)"]
  }
}
