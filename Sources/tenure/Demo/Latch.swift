/// Something to wait for that happens once.
struct Latch: Sendable {
  private let stream: AsyncStream<Never>
  private let continuation: AsyncStream<Never>.Continuation

  init() {
    (stream, continuation) = AsyncStream.makeStream()
  }

  /// Lets everybody pass from now on.
  func open() {
    continuation.finish()
  }

  /// Waits until it is open, or the task is cancelled.
  func wait() async {
    for await _ in stream {}
  }
}
