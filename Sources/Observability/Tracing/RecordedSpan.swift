package import Instrumentation
import Synchronization
package import Tracing

/// A span of a trace, which may or may not be recorded.
package final class RecordedSpan: Span {
  private struct State: Sendable {
    var name: String
    var attributes: SpanAttributes = [:]
    var events: [SpanEvent] = []
    var links: [SpanLink] = []
    var status: SpanStatus?
    var isOver = false
  }

  package let context: InstrumentationContext
  private let place: TraceContext
  private let parent: UInt64?
  private let kind: SpanKind
  private let start: UInt64
  private let buffer: SpanBuffer
  private let state: Mutex<State>

  init(
    _ name: String, place: TraceContext, parent: UInt64?, context: InstrumentationContext,
    kind: SpanKind, start: UInt64, buffer: SpanBuffer
  ) {
    self.place = place
    self.parent = parent
    self.context = context
    self.kind = kind
    self.start = start
    self.buffer = buffer
    state = Mutex(State(name: name))
  }

  package var isRecording: Bool { place.isSampled && !state.withLock(\.isOver) }

  package var operationName: String {
    get { state.withLock(\.name) }
    set { change { $0.name = newValue } }
  }

  package var attributes: SpanAttributes {
    get { state.withLock(\.attributes) }
    set { change { $0.attributes = newValue } }
  }

  package func setStatus(_ status: SpanStatus) { change { $0.status = status } }

  package func addEvent(_ event: SpanEvent) { change { $0.events.append(event) } }

  package func addLink(_ link: SpanLink) { change { $0.links.append(link) } }

  /// Records the error's type only.
  ///
  /// Its message may contain personal data, and spans leave the system. The log has the message,
  /// under the same trace ID.
  package func recordError<Instant: TracerInstant>(
    _ error: any Error, attributes: SpanAttributes, at instant: @autoclosure () -> Instant
  ) {
    guard place.isSampled else { return }
    var attributes = attributes
    attributes["exception.type"] = String(reflecting: type(of: error))
    let event = SpanEvent(name: "exception", at: instant(), attributes: attributes)
    change { state in
      state.events.append(event)
      state.status = state.status ?? SpanStatus(code: .error)
    }
  }

  /// Ends the span and queues it for sending; later calls have no effect.
  package func end<Instant: TracerInstant>(at instant: @autoclosure () -> Instant) {
    guard place.isSampled else { return }
    let end = instant().nanosecondsSinceEpoch
    let ended = state.withLock { state -> State? in
      guard !state.isOver else { return nil }
      state.isOver = true
      return state
    }
    guard let ended else { return }
    buffer.append(
      FinishedSpan(
        context: place, parent: parent, name: ended.name, kind: kind, start: start, end: end,
        attributes: ended.attributes, events: ended.events, links: ended.links,
        status: ended.status))
  }

  private func change(_ change: (inout State) -> Void) {
    guard place.isSampled else { return }
    state.withLock { state in
      if !state.isOver { change(&state) }
    }
  }
}
