import Logging
import OpenTelemetryTraces
import ServiceLifecycle
import Tracing

extension SpanExporter {
  /// Makes spans of whatever this process does from now on, where somebody wants them; once, before
  /// anything is made that looks for a tracer.
  ///
  /// - Parameters:
  ///   - settings: Where they go; nil: there are none.
  ///   - program: Which of the programs this is.
  ///   - logger: The program's.
  /// - Returns: What sends them. It begins first, and so ends last.
  static func bootstrapTenure(_ settings: TraceSettings?, from program: String, logger: Logger)
    -> [any Service]
  {
    guard let settings else { return [] }
    let exporter = SpanExporter(to: settings.collector, from: program, logger: logger)
    InstrumentationSystem.bootstrap(OpenTelemetryTracer(exporter: exporter, ratio: settings.ratio))
    return [exporter]
  }
}
