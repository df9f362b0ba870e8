import Hummingbird
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1

/// Hummingbird's HTTP/1.1 channel with an ``EntitlementHandler`` in front of everything that is
/// Hummingbird's.
struct EntitlementChannel: ServerChildChannel {
  private let http: HTTP1Channel
  private let keys: APIKeys
  /// Nil: the router answers everything.
  private let desks: EntitlementDesks?
  private let failures: FailedReads
  private let metrics: RequestMetrics
  private let limits: ConnectionLimits
  private let open: OpenConnections

  /// How much is read from a connection at once.
  ///
  /// What was read is decoded before it is taken: 64 KB of pipelined requests would be megabytes of
  /// heads.
  static let usualReads = FixedSizeRecvByteBufferAllocator(capacity: 4096)
  /// The largest head of a request: the request line and all header fields.
  static let longestHead = 16 * 1024
  static let mostHeaderFields = 100

  init(
    responder: @escaping HTTPChannelHandler.Responder, keys: APIKeys, desks: EntitlementDesks?,
    failures: FailedReads, metrics: RequestMetrics, limits: ConnectionLimits,
    open: OpenConnections
  ) {
    // Without an idle timeout, which is the handler's business: Hummingbird's knows nothing of what
    // passes it by.
    http = HTTP1Channel(
      responder: responder,
      configuration: HTTP1Channel.Configuration(
        httpDecoderConfiguration: .init(
          maxHeaderFieldSize: Self.longestHead, maxHeaderListSize: Self.longestHead,
          maxHeaderFieldCount: Self.mostHeaderFields)))
    self.keys = keys
    self.desks = desks
    self.failures = failures
    self.metrics = metrics
    self.limits = limits
    self.open = open
  }

  func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<HTTP1Channel.Value> {
    http.setup(channel: channel, logger: logger).flatMapThrowing { value in
      let pipeline = channel.pipeline.syncOperations
      let handler = EntitlementHandler(
        desk: desks?.desk(of: channel.eventLoop), keys: keys, failures: failures,
        metrics: metrics, limits: limits, open: open,
        connection: OpenConnection { channel.close(promise: nil) })
      let decoder = try pipeline.handler(type: ByteToMessageHandler<HTTPRequestDecoder>.self)
      try pipeline.addHandler(handler, position: .after(decoder))
      try channel.syncOptions?.setOption(.maxMessagesPerRead, value: 1)
      try channel.syncOptions?.setOption(.recvAllocator, value: Self.usualReads)
      return value
    }
  }

  func handle(value: HTTP1Channel.Value, logger: Logger) async {
    await http.handle(value: value, logger: logger)
  }
}

/// Reads of large bodies.
///
/// Without a hint about the next size NIO pools no buffers, so that none of this size stays with
/// the connection.
struct LargeReads: RecvByteBufferAllocator {
  static let bytes = 64 * 1024

  func buffer(allocator: ByteBufferAllocator) -> ByteBuffer {
    allocator.buffer(capacity: Self.bytes)
  }

  /// True, or the last buffer would be used again instead of a large one.
  mutating func record(actualReadBytes: Int) -> Bool { true }
}
