import Synchronization

final class SpanBuffer: Sendable {
  private struct State: Sendable {
    var spans: [FinishedSpan] = []
    var dropped = 0
  }

  /// Bounds memory while the collector is unavailable; further spans are dropped.
  private let limit: Int
  private let state = Mutex(State())

  init(limit: Int) { self.limit = limit }

  var count: Int { state.withLock(\.spans.count) }

  func append(_ span: FinishedSpan) {
    state.withLock { state in
      if state.spans.count < limit { state.spans.append(span) } else { state.dropped += 1 }
    }
  }

  /// Takes the oldest spans, and the number dropped since the last call.
  func take(atMost count: Int) -> (spans: [FinishedSpan], dropped: Int) {
    state.withLock { state in
      let taken = Array(state.spans.prefix(count))
      state.spans.removeFirst(taken.count)
      defer { state.dropped = 0 }
      return (taken, state.dropped)
    }
  }

  /// Puts back spans that could not be sent, as far as there is room.
  func putBack(_ spans: [FinishedSpan]) {
    state.withLock { state in
      let room = max(0, limit - state.spans.count)
      state.dropped += max(0, spans.count - room)
      state.spans.insert(contentsOf: spans.suffix(room), at: 0)
    }
  }
}
