import CoreMetrics
import Hummingbird
import HummingbirdCore
import JSONText
import Logging
import NIOCore
import NIOHTTP1

/// Answers `GET /v1/accounts/{account_id}/entitlements` before the request reaches Hummingbird.
///
/// This read comes with every launch of an app, and with the router half of its cost is the way
/// there and back: a task, the middlewares, two conversions of every header field. Here it is a
/// callback on the event loop. ``EntitlementRequest`` says what is answered here; all else goes on
/// to the router, untouched. What is answered is what the router would have answered, to the byte.
/// A read that failed goes to the router with its failure, so that one place words errors and
/// nobody waits for the database a second time.
///
/// Answers keep the order of the requests: while one is being read here, what the connection sends
/// after it is held back, and while the router has a request, it gets the following ones too.
final class EntitlementHandler: ChannelDuplexHandler, RemovableChannelHandler {
  typealias InboundIn = HTTPServerRequestPart
  typealias InboundOut = HTTPServerRequestPart
  typealias OutboundIn = HTTPServerResponsePart
  typealias OutboundOut = HTTPServerResponsePart

  private enum Phase {
    /// What comes goes to the router, unless it is a request of ours.
    case open
    /// A request of ours has begun.
    case begun(EntitlementRequest, HTTPRequestHead)
    /// It is complete, and being read from the database.
    case asked(EntitlementRequest, HTTPRequestHead)
    /// The last request is answered, and the rest of its body dropped until the deadline.
    case draining(until: NIODeadline)
  }

  /// What came while a request was being read.
  private enum Held {
    case part(HTTPServerRequestPart)
    /// Such as the end of the input, or that the server shuts down.
    case event(Any)
    case error(any Error)
  }

  /// So many parts may be held back before reading stops.
  private static let heldLimit = 32
  /// How much of an answer counts as taken: less is not worth a connection.
  private static let leastTaken = 64 * 1024

  private let desk: EntitlementBatcher?
  private let keys: APIKeys
  private let failures: FailedReads
  private let metrics: RequestMetrics
  private let limits: ConnectionLimits
  private let open: OpenConnections
  private let connection: OpenConnection

  private var context: ChannelHandlerContext?
  /// Where answers are written: in front of the encoder, for they are bytes already.
  private var encoder: ChannelHandlerContext?
  private var phase = Phase.open
  private var held = CircularBuffer<Held>()
  private var isReleasing = false
  private var isReadHeld = false
  /// Whether the router was given something since it was last told that this was all for now.
  private var hasForwarded = false

  /// The router's requests that are not answered to their end.
  private var routerRequests = 0
  /// Whether the last of them has not come to its end.
  private var isRouterReading = false
  /// Whether one of them was the connection's last.
  private var isRouterClosing = false

  private var isOneTooMany = false
  /// Whether the connection is closed after the answer that is being written, because its request
  /// has not been read to its end.
  private var closesAfterAnswer = false
  /// Whether the connection has sent a valid key.
  private var isAuthenticated = false
  /// How much of the router's current request is still to come, of one with a length.
  private var bodyLeft = 0
  private var hasLargeReads = false
  private var lastActive = NIODeadline.now()
  /// When the router's current request began.
  private var requestBegan = NIODeadline.now()
  /// Since when an answer has not been taken, and how much of it was left then.
  private var stall: (since: NIODeadline, bytes: Int)?
  private var nextCheck: Scheduled<Void>?

  /// - Parameters:
  ///   - desk: The event loop's; nil: the router answers everything.
  ///   - keys: Who may ask.
  ///   - failures: Where the router finds why a read has failed.
  ///   - metrics: Where it is counted what is answered here.
  ///   - limits: When to close the connection.
  ///   - open: The server's connections.
  ///   - connection: This one.
  init(
    desk: EntitlementBatcher?, keys: APIKeys, failures: FailedReads, metrics: RequestMetrics,
    limits: ConnectionLimits, open: OpenConnections, connection: OpenConnection
  ) {
    self.failures = failures
    self.metrics = metrics
    self.desk = desk
    self.keys = keys
    self.limits = limits
    self.open = open
    self.connection = connection
  }

  func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    encoder = try? context.pipeline.syncOperations.context(handlerType: HTTPResponseEncoder.self)
    isOneTooMany = !open.add(connection)
    scheduleCheck(in: min(limits.idle, limits.interval))
  }

  /// Says that there are too many connections, in front of the router.
  func channelActive(context: ChannelHandlerContext) {
    context.fireChannelActive()
    guard isOneTooMany else { return }
    let answer = ByteBuffer(
      string: "HTTP/1.1 503 Service Unavailable\r\nRetry-After: \(Problem.retryAfterSeconds)\r\n"
        + "Content-Length: 0\r\nConnection: close\r\n\r\n")
    encoder?.writeAndFlush(NIOAny(IOData.byteBuffer(answer)), promise: nil)
    context.close(promise: nil)
  }

  /// The channel is closed: an answer that comes now finds nobody.
  func handlerRemoved(context: ChannelHandlerContext) {
    if case .asked = phase { metrics.inFlight.decrement() }
    _ = failures.take(from: context.channel)
    open.remove(connection)
    nextCheck?.cancel()
    nextCheck = nil
    self.context = nil
    encoder = nil
    held.removeAll()
  }

  // MARK: What comes in

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    let part = unwrapInboundIn(data)
    if isHolding {
      held.append(.part(part))
    } else {
      take(part, context)
    }
  }

  func channelReadComplete(context: ChannelHandlerContext) {
    if case .draining = phase { scheduleDrain(context) }
    guard hasForwarded else { return }
    hasForwarded = false
    context.fireChannelReadComplete()
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if isHolding {
      held.append(.event(event))
    } else {
      context.fireUserInboundEventTriggered(event)
    }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    if isHolding {
      held.append(.error(error))
    } else {
      context.fireErrorCaught(error)
    }
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
      metrics.inFlight.increment()
      desk?.ask(request.accountID, mayLag: request.mayLag, for: self)
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
          keys.caller(authorization: authorization) != nil
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

  /// The request if it can be answered here and now.
  private func request(_ head: HTTPRequestHead, _ context: ChannelHandlerContext)
    -> EntitlementRequest?
  {
    // To whom doesn't take his answers the router gives no more, for its writer waits.
    guard desk != nil, routerRequests <= 0, !isRouterClosing, context.channel.isWritable else {
      return nil
    }
    return EntitlementRequest(head, keys: keys)
  }

  private func forward(_ part: HTTPServerRequestPart, _ context: ChannelHandlerContext) {
    switch part {
    case .head(let head):
      // What follows the connection's last request is not answered.
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

  /// Reads more at once where only the body of an authenticated caller can come.
  ///
  /// What follows it is read as before: 64 KB of pipelined requests would be megabytes of heads.
  private func chooseReads(_ context: ChannelHandlerContext) {
    let areLarge = isAuthenticated && bodyLeft >= LargeReads.bytes
    guard areLarge != hasLargeReads else { return }
    hasLargeReads = areLarge
    try? context.channel.syncOptions?.setOption(
      .recvAllocator, value: areLarge ? LargeReads() : EntitlementChannel.usualReads)
  }

  /// Lets go of what was held back, until it is a request's turn that is answered here.
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

  // MARK: What goes out

  /// Writes the answer, or has the router answer with the failure.
  func answer(_ outcome: Result<AccountEntitlements, any Error>) {
    guard case .asked(let request, let head) = phase, let context, let encoder else { return }
    phase = .open
    metrics.inFlight.decrement()
    switch outcome {
    case .success(let answer):
      // Nothing else was read from the connection since the request came.
      let begin = lastActive
      lastActive = .now()
      metrics.entitlements.count(
        status: 200, nanoseconds: (lastActive - begin).nanoseconds)
      let bytes = encoded(answer, id: request.id ?? RequestID().description, context)
      encoder.writeAndFlush(NIOAny(IOData.byteBuffer(bytes)), promise: nil)
    case .failure(let error):
      failures.put(error, on: context.channel)
      forward(.head(head), context)
      forward(.end(nil), context)
    }
    release(context)
  }

  /// The answer as Hummingbird and NIO's encoder put it on the wire.
  private func encoded(
    _ answer: AccountEntitlements, id: String, _ context: ChannelHandlerContext
  ) -> ByteBuffer {
    var json = JSONWriter(capacity: 512)
    answer.write(to: &json)
    var buffer = context.channel.allocator.buffer(capacity: json.bytes.count + 256)
    buffer.writeStaticString(
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ")
    buffer.writeString(String(json.bytes.count))
    buffer.writeStaticString("\r\nX-Request-ID: ")
    buffer.writeString(id)
    buffer.writeStaticString("\r\nDate: ")
    buffer.writeString(desk?.dateText ?? "")
    buffer.writeStaticString("\r\n\r\n")
    buffer.writeBytes(json.bytes)
    return buffer
  }

  /// Counts the router's answers, and ends the connection with one whose request is not read.
  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    switch unwrapOutboundIn(data) {
    case .head(var head) where isRouterReading && routerRequests == 1:
      closesAfterAnswer = true
      head.headers.replaceOrAdd(name: "Connection", value: "close")
      context.write(wrapOutboundOut(.head(head)), promise: promise)
    case .end:
      if routerRequests == 1 { _ = failures.take(from: context.channel) }
      routerRequests -= 1
      (lastActive, requestBegan) = (.now(), .now())
      if routerRequests <= 0 { note(.idle) }
      context.write(data, promise: promise)
      if closesAfterAnswer { drain(context) }
    default:
      context.write(data, promise: promise)
    }
  }

  /// Drops the rest of the request.
  ///
  /// Closed at once, the connection would be reset while bytes arrive, and the answer lost.
  private func drain(_ context: ChannelHandlerContext) {
    context.flush()
    guard isRouterReading else {
      context.close(promise: nil)
      return
    }
    phase = .draining(until: .now() + limits.drain)
    try? context.channel.syncOptions?.setOption(.recvAllocator, value: LargeReads())
    scheduleDrain(context)
  }

  /// Reads on in a moment: as fast as it comes, it would keep the event loop from others.
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
        let idleLeft = isAnswering ? limits.idle : limits.idle - (now - lastActive)
        scheduleCheck(in: min(idleLeft, limits.interval))
      }
    }
  }

  /// Whether the client has not got on with its request, its answer or its next request.
  private func isOverdue(_ context: ChannelHandlerContext, at now: NIODeadline) -> Bool {
    if case .draining(let deadline) = phase { return now >= deadline }
    if isStalled(context, at: now) { return true }
    let request = isAuthenticated ? limits.request : limits.requestWithoutKey
    if isRouterReading, routerRequests == 1, now - requestBegan >= request { return true }
    return !isAnswering && now - lastActive >= limits.idle
  }

  /// Whether the client takes nothing of its answers, of which more are written only once it does.
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
    return now - stall.since >= limits.answer
  }

  private var isAnswering: Bool {
    if case .asked = phase { true } else { routerRequests > 0 && !isRouterReading }
  }
}

/// Hummingbird's HTTP/1.1 channel with an ``EntitlementHandler`` in front of everything that is
/// Hummingbird's.
struct EntitlementChannel: ServerChildChannel {
  private let http: HTTP1Channel
  private let keys: APIKeys
  /// Nil: the router answers everything.
  private let desks: EntitlementBatchers?
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
    responder: @escaping HTTPChannelHandler.Responder, keys: APIKeys, desks: EntitlementBatchers?,
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
