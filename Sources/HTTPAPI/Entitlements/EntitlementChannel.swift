import Hummingbird
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1

/// Hummingbird's HTTP/1.1 channel with an ``EntitlementHandler`` in front of everything that is
/// Hummingbird's.
struct EntitlementChannel: ServerChildChannel {
  /// Without an idle timeout, which is the handler's business: Hummingbird's knows nothing of what
  /// passes it by.
  let http: HTTP1Channel
  let keys: APIKeys
  /// Nil: the router answers everything.
  let desks: EntitlementDesks?
  let failures: FailedReads
  let metrics: RequestMetrics
  let limits: ConnectionLimits
  let count: ConnectionCount

  /// How much is read from a connection at once.
  ///
  /// What was read is decoded before it is taken: 64 KB of pipelined requests would be megabytes of
  /// heads.
  private static let readBytes = 4096

  func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<HTTP1Channel.Value> {
    http.setup(channel: channel, logger: logger).flatMapThrowing { value in
      let pipeline = channel.pipeline.syncOperations
      let handler = EntitlementHandler(
        desk: desks?.desk(of: channel.eventLoop), keys: keys, failures: failures,
        metrics: metrics, limits: limits, count: count)
      let decoder = try pipeline.handler(type: ByteToMessageHandler<HTTPRequestDecoder>.self)
      try pipeline.addHandler(handler, position: .after(decoder))
      try channel.syncOptions?.setOption(.maxMessagesPerRead, value: 1)
      try channel.syncOptions?.setOption(
        .recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: Self.readBytes))
      return value
    }
  }

  func handle(value: HTTP1Channel.Value, logger: Logger) async {
    await http.handle(value: value, logger: logger)
  }
}
