import CoreMetrics
import Hummingbird
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1

/// Answers `GET /v1/accounts/{account_id}/entitlements` before the request reaches Hummingbird.
///
/// Half of this frequent request's cost in the router is overhead: a task, the middleware, two
/// conversions of every header field. ``EntitlementRequest`` selects what is answered here, with
/// the router's bytes; all else, and failed reads with their errors, go to the router.
///
/// Answers keep the order of the requests: parts that arrive during a read are held back, and while
/// the router has a request, it gets the following ones too.
final class EntitlementHandler: ChannelDuplexHandler, RemovableChannelHandler {
  typealias InboundIn = HTTPServerRequestPart
  typealias InboundOut = HTTPServerRequestPart
  typealias OutboundIn = HTTPServerResponsePart
  typealias OutboundOut = HTTPServerResponsePart

  private enum Phase {
    /// Parts go to the router, unless one begins a request that is answered here.
    case open
    /// A request that is answered here has begun.
    case begun(EntitlementRequest, HTTPRequestHead)
    /// It is complete, and being read from the database.
    case asked(EntitlementRequest, HTTPRequestHead)
    /// The last request is answered, and the rest of its body dropped until the deadline.
    case draining(until: NIODeadline)
  }

  /// Something that arrived while a request was being read.
  private enum Held {
    case part(HTTPServerRequestPart)
    /// For example the end of the input, or the server's shutdown.
    case event(Any)
    case error(any Error)
  }

  /// The number of held-back parts at which reading stops (back-pressure).
  private static let heldLimit = 32
  /// The bytes of an answer that a client must take in time to keep its connection.
  private static let leastTaken = 64 * 1024

  struct Server: Sendable {
    let keys: APIKeys
    /// Nil: the router answers everything.
    let batchers: EntitlementBatchers?
    /// The errors of failed reads, for the router.
    let failures: FailedReads
    let metrics: RequestMetrics
    let limits: ConnectionLimits
    let open: OpenConnections
  }

  private let server: Server
  /// The event loop's batcher; nil: the router answers everything.
  private let batcher: EntitlementBatcher?
  private let connection: OpenConnection

  private var context: ChannelHandlerContext?
  /// The encoder's context: writing from it bypasses the encoder, as answers are encoded already.
  private var encoder: ChannelHandlerContext?
  private var phase = Phase.open
  private var held = CircularBuffer<Held>()
  private var isReleasing = false
  private var isReadHeld = false
  /// Whether the router got parts since the last `channelReadComplete`.
  private var hasForwarded = false

  /// The number of the router's requests that are not completely answered.
  private var routerRequests = 0
  /// Whether the last of them has not arrived completely.
  private var isRouterReading = false
  /// Whether one of them was the connection's last.
  private var isRouterClosing = false

  private var isOneTooMany = false
  /// Whether to close the connection after the current answer: its request has not been read.
  private var closesAfterAnswer = false
  /// Whether the connection has sent a valid key.
  private var isAuthenticated = false
  /// The bytes still to come of the body of the router's current request, if it has a length.
  private var bodyLeft = 0
  private var hasLargeReads = false
  private var lastActive = NIODeadline.now()
  private var requestBegan = NIODeadline.now()
  /// The beginning of a stall of the client, and the bytes that were unsent then.
  private var stall: (since: NIODeadline, bytes: Int)?
  private var nextCheck: Scheduled<Void>?

  /// Must be called on the channel's event loop.
  init(of channel: any Channel, _ server: Server) {
    self.server = server
    batcher = server.batchers?.batcher(of: channel.eventLoop)
    connection = OpenConnection { channel.close(promise: nil) }
  }

  func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    encoder = try? context.pipeline.syncOperations.context(handlerType: HTTPResponseEncoder.self)
    isOneTooMany = !server.open.add(connection)
    scheduleCheck(in: min(server.limits.idle, server.limits.interval))
  }

  func channelActive(context: ChannelHandlerContext) {
    context.fireChannelActive()
    guard isOneTooMany else { return }
    let answer = ByteBuffer(
      string: "HTTP/1.1 503 Service Unavailable\r\nRetry-After: \(Problem.retryAfterSeconds)\r\n"
        + "Content-Length: 0\r\nConnection: close\r\n\r\n")
    encoder?.writeAndFlush(NIOAny(IOData.byteBuffer(answer)), promise: nil)
    context.close(promise: nil)
  }

  /// The channel is closed: an answer that arrives now is dropped.
  func handlerRemoved(context: ChannelHandlerContext) {
    if case .asked = phase { server.metrics.inFlight.decrement() }
    _ = server.failures.take(from: context.channel)
    server.open.remove(connection)
    nextCheck?.cancel()
    nextCheck = nil
    self.context = nil
    encoder = nil
    held.removeAll()
  }

  // MARK: Inbound

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    let part = unwrapInboundIn(data)
    guard !isHolding else { return held.append(.part(part)) }
    take(part, context)
  }

  func channelReadComplete(context: ChannelHandlerContext) {
    if case .draining = phase { scheduleDrain(context) }
    guard hasForwarded else { return }
    hasForwarded = false
    context.fireChannelReadComplete()
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    guard !isHolding else { return held.append(.event(event)) }
    context.fireUserInboundEventTriggered(event)
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    guard !isHolding else { return held.append(.error(error)) }
    context.fireErrorCaught(error)
  }

  func read(context: ChannelHandlerContext) {
    if case .draining = phase { return }
    if held.count < Self.heldLimit {
      context.read()
    } else {
      isReadHeld = true
    }
  }

  private var isHolding: Bool {
    if case .asked = phase { true } else { isReleasing }
  }

  private func take(_ part: HTTPServerRequestPart, _ context: ChannelHandlerContext) {
    switch (phase, part) {
    case (.begun(let request, let head), .end(nil)):
      phase = .asked(request, head)
      server.metrics.inFlight.increment()
      batcher?.ask(request.accountID, mayLag: request.mayLag, for: self)
    case (.begun(_, let head), _):
      phase = .open
      forward(.head(head), context)
      forward(part, context)
    case (.open, .head(let head)):
      lastActive = .now()
      if let request = request(head, context) {
        authenticate()
        phase = .begun(request, head)
      } else {
        if !isAuthenticated, let authorization = head.headers.first(name: "authorization"),
          server.keys.caller(authorization: authorization) != nil
        {
          authenticate()
        }
        forward(part, context)
      }
    case (.draining, .body): break
    case (.draining, _): context.close(promise: nil)
    case (.open, .body), (.open, .end), (.asked, _):
      lastActive = .now()
      forward(part, context)
    }
    note(.busy)
  }

  private func authenticate() {
    guard !isAuthenticated else { return }
    note(.authenticated)
    isAuthenticated = true
  }

  private func note(_ use: OpenConnection.Use) {
    if !isAuthenticated { connection.note(use, since: lastActive) }
  }

  /// The request if it can be answered here, now.
  private func request(_ head: HTTPRequestHead, _ context: ChannelHandlerContext)
    -> EntitlementRequest?
  {
    // The router's writer waits for a client that does not take its answers; this must, too.
    guard batcher != nil, routerRequests <= 0, !isRouterClosing, context.channel.isWritable else {
      return nil
    }
    return EntitlementRequest(head, keys: server.keys)
  }

  private func forward(_ part: HTTPServerRequestPart, _ context: ChannelHandlerContext) {
    switch part {
    case .head(let head):
      // Requests after the connection's last one are not answered.
      if routerRequests <= 0 { requestBegan = .now() }
      if !isRouterClosing { routerRequests += 1 }
      isRouterReading = true
      isRouterClosing = isRouterClosing || !head.isKeepAlive
      bodyLeft = head.headers.first(name: "content-length").flatMap { Int($0) } ?? 0
      chooseReads(context)
    case .body(let body):
      bodyLeft -= body.readableBytes
      chooseReads(context)
    case .end: isRouterReading = false
    }
    hasForwarded = true
    context.fireChannelRead(wrapInboundOut(part))
  }

  /// Uses large reads only for bodies of authenticated callers; see ``EntitlementChannel``.
  private func chooseReads(_ context: ChannelHandlerContext) {
    let areLarge = isAuthenticated && bodyLeft >= LargeReads.bytes
    guard areLarge != hasLargeReads else { return }
    hasLargeReads = areLarge
    try? context.channel.syncOptions?.setOption(
      .recvAllocator, value: areLarge ? LargeReads() : EntitlementChannel.usualReads)
  }

  /// Passes held-back parts on, up to the next request that is answered here.
  private func release(_ context: ChannelHandlerContext) {
    guard !isReleasing else { return }
    isReleasing = true
    while let next = held.first {
      if case .asked = phase { break }
      held.removeFirst()
      switch next {
      case .part(let part): take(part, context)
      case .event(let event):
        channelReadComplete(context: context)
        context.fireUserInboundEventTriggered(event)
      case .error(let error):
        channelReadComplete(context: context)
        context.fireErrorCaught(error)
      }
    }
    isReleasing = false
    channelReadComplete(context: context)
    if isReadHeld, held.count < Self.heldLimit {
      isReadHeld = false
      context.read()
    }
  }

  // MARK: Outbound

  /// Writes the answer with a body, or has the router answer with the failure.
  func answer(_ outcome: Result<[UInt8], any Error>) {
    guard case .asked(let request, let head) = phase, let context, let encoder else { return }
    phase = .open
    server.metrics.inFlight.decrement()
    switch outcome {
    case .success(let body):
      // Nothing else was read from the connection since the request arrived.
      let begin = lastActive
      lastActive = .now()
      server.metrics.entitlements.count(status: 200, nanoseconds: (lastActive - begin).nanoseconds)
      let bytes = encoded(body, id: request.id ?? RequestID().description, context)
      encoder.writeAndFlush(NIOAny(IOData.byteBuffer(bytes)), promise: nil)
    case .failure(let error):
      server.failures.put(error, on: context.channel)
      forward(.head(head), context)
      forward(.end(nil), context)
    }
    release(context)
  }

  /// The answer with the bytes that Hummingbird and NIO's encoder would write.
  private func encoded(_ body: [UInt8], id: String, _ context: ChannelHandlerContext) -> ByteBuffer
  {
    var buffer = context.channel.allocator.buffer(capacity: body.count + 256)
    buffer.writeStaticString(
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ")
    buffer.writeString(String(body.count))
    buffer.writeStaticString("\r\nX-Request-ID: ")
    buffer.writeString(id)
    buffer.writeStaticString("\r\nDate: ")
    buffer.writeString(batcher?.dateText ?? "")
    buffer.writeStaticString("\r\n\r\n")
    buffer.writeBytes(body)
    return buffer
  }

  /// Counts the router's answers, and closes the connection after one whose request is not read.
  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    switch unwrapOutboundIn(data) {
    case .head(var head) where isRouterReading && routerRequests == 1:
      closesAfterAnswer = true
      head.headers.replaceOrAdd(name: "Connection", value: "close")
      context.write(wrapOutboundOut(.head(head)), promise: promise)
    case .end:
      if routerRequests == 1 { _ = server.failures.take(from: context.channel) }
      routerRequests -= 1
      (lastActive, requestBegan) = (.now(), .now())
      if routerRequests <= 0 { note(.idle) }
      context.write(data, promise: promise)
      if closesAfterAnswer { drain(context) }
    default: context.write(data, promise: promise)
    }
  }

  /// Drops the rest of the request: closing while bytes arrive would lose the answer to a reset.
  private func drain(_ context: ChannelHandlerContext) {
    context.flush()
    guard isRouterReading else { return context.close(promise: nil) }
    phase = .draining(until: .now() + server.limits.drain)
    try? context.channel.syncOptions?.setOption(.recvAllocator, value: LargeReads())
    scheduleDrain(context)
  }

  /// Reads on after a pause, so that one client can't occupy the event loop.
  private func scheduleDrain(_ context: ChannelHandlerContext) {
    context.eventLoop.assumeIsolated().scheduleTask(in: ConnectionLimits.drainInterval) {
      self.context?.read()
    }
  }

  // MARK: Time limits

  private func scheduleCheck(in delay: TimeAmount) {
    nextCheck = context?.eventLoop.assumeIsolated().scheduleTask(in: delay) { [self] in
      guard let context else { return }
      let now = NIODeadline.now()
      if isOverdue(context, at: now) {
        context.close(promise: nil)
      } else {
        let idleLeft = isAnswering ? server.limits.idle : server.limits.idle - (now - lastActive)
        scheduleCheck(in: min(idleLeft, server.limits.interval))
      }
    }
  }

  /// Whether the client has made no progress with its request, its answer or its next request.
  private func isOverdue(_ context: ChannelHandlerContext, at now: NIODeadline) -> Bool {
    if case .draining(let deadline) = phase { return now >= deadline }
    if isStalled(context, at: now) { return true }
    let request = isAuthenticated ? server.limits.request : server.limits.requestWithoutKey
    if isRouterReading, routerRequests == 1, now - requestBegan >= request { return true }
    return !isAnswering && now - lastActive >= server.limits.idle
  }

  /// Whether the client takes none of its answers; no more are written until it does.
  private func isStalled(_ context: ChannelHandlerContext, at now: NIODeadline) -> Bool {
    guard !context.channel.isWritable,
      let left = try? context.channel.syncOptions?.getOption(.bufferedWritableBytes)
    else {
      stall = nil
      return false
    }
    guard let stall, left > stall.bytes - Self.leastTaken else {
      stall = (now, left)
      return false
    }
    return now - stall.since >= server.limits.answer
  }

  private var isAnswering: Bool {
    if case .asked = phase { true } else { routerRequests > 0 && !isRouterReading }
  }
}

/// Hummingbird's HTTP/1.1 channel with an ``EntitlementHandler`` before its own handlers.
struct EntitlementChannel: ServerChildChannel {
  private let http: HTTP1Channel
  private let server: EntitlementHandler.Server

  /// The size of one read: all of it is decoded, and 64 KB of pipelined heads would be megabytes.
  static let usualReads = FixedSizeRecvByteBufferAllocator(capacity: 4096)
  /// The largest head of a request: the request line and all header fields.
  static let longestHead = 16 * 1024
  static let mostHeaderFields = 100

  init(responder: @escaping HTTPChannelHandler.Responder, server: EntitlementHandler.Server) {
    // Not Hummingbird's idle timeout, which misses requests answered here; the handler has its own.
    http = HTTP1Channel(
      responder: responder,
      configuration: HTTP1Channel.Configuration(
        httpDecoderConfiguration: .init(
          maxHeaderFieldSize: Self.longestHead, maxHeaderListSize: Self.longestHead,
          maxHeaderFieldCount: Self.mostHeaderFields)))
    self.server = server
  }

  func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<HTTP1Channel.Value> {
    http.setup(channel: channel, logger: logger).flatMapThrowing { value in
      let pipeline = channel.pipeline.syncOperations
      let handler = EntitlementHandler(of: channel, server)
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

/// Reads of large bodies, without a size hint, so that NIO pools no buffer with the connection.
struct LargeReads: RecvByteBufferAllocator {
  static let bytes = 64 * 1024

  func buffer(allocator: ByteBufferAllocator) -> ByteBuffer {
    allocator.buffer(capacity: Self.bytes)
  }

  /// True; otherwise the last buffer would be reused instead of a large one.
  mutating func record(actualReadBytes: Int) -> Bool { true }
}
