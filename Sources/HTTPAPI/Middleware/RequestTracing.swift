import HTTPTypes
import Hummingbird
import Instrumentation
import Tracing

/// Makes a span of every request, as part of the caller's trace where it names one (`traceparent`
/// and what else the tracer at hand reads).
///
/// It is named after the route and never the path, which can hold a person's account id. Without a
/// tracer nothing is made of it.
struct RequestTracing: RouterMiddleware {
  /// Spans that nobody sees are not made.
  static var isOn: Bool { !(InstrumentationSystem.tracer is NoOpTracer) }

  private let isOn = Self.isOn

  func handle(
    _ request: Request, context: APIContext,
    next: @concurrent (Request, APIContext) async throws -> Response
  ) async throws -> Response {
    guard isOn else { return try await next(request, context) }
    var trace = InstrumentationContext.topLevel
    InstrumentationSystem.instrument.extract(
      request.headers, into: &trace, using: HeaderExtractor())
    return try await withSpan(request.method.rawValue, context: trace, ofKind: .server) { span in
      let response = try await next(request, context)
      if span.isRecording {
        // It is known only now.
        let route = context.route
        span.operationName = "\(request.method.rawValue) \(route)"
        span.attributes["http.request.method"] = request.method.rawValue
        span.attributes["http.route"] = route
        span.attributes["http.response.status_code"] = response.status.code
        if response.status.kind == .serverError { span.setStatus(SpanStatus(code: .error)) }
      }
      return response
    }
  }

  /// Reads header fields for the tracer.
  private struct HeaderExtractor: Extractor {
    func extract(key: String, from fields: HTTPFields) -> String? {
      HTTPField.Name(key).flatMap { fields[$0] }
    }
  }
}
