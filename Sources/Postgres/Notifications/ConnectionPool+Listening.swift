extension ConnectionPool {
  /// Listens to channels on a connection of its own, until the sequence is dropped or the pool
  /// closed.
  ///
  /// The connection is made again when it is lost. Look for what was missed at each event that is
  /// not a notification.
  package func listen(to channels: [String]) -> AsyncStream<ListenEvent> {
    // So many notifications that nobody has read yet mean a reader that had better look at the
    // tables.
    let (stream, continuation) = AsyncStream.makeStream(
      of: ListenEvent.self, bufferingPolicy: .bufferingNewest(4096))
    let listener = Listener(
      channels: channels, configuration: configuration, logger: driver.logger, continuation)
    continuation.onTermination = { _ in PostgresLoop.submit { listener.stop() } }
    PostgresLoop.submit { [driver] in driver.add(listener) }
    return stream
  }
}
