import CoreMetrics
import Hummingbird
import JSONText
import NIOCore
import NIOHTTP1

/// Answers `GET /v1/accounts/{account_id}/entitlements` before the request reaches Hummingbird.
///
/// This read comes with every launch of an app, and with the router half of its cost is the way
/// there and back: a task, the middlewares, two conversions of every header field. Here it is a
/// callback on the event loop. ``EntitlementRequest`` says what is answered here; all else goes on
/// to the router, untouched, and so does what could not be answered, so that there is one place
/// that words errors. What is answered is what the router would have answered, to the byte.
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

  private let desk: EntitlementDesk?
  private let keys: APIKeys
  private let metrics: RequestMetrics
  private let idleTimeout: TimeAmount

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

  private var lastActive = NIODeadline.now()
  private var idleCheck: Scheduled<Void>?

  /// - Parameters:
  ///   - desk: The event loop's; nil: the router answers everything.
  ///   - keys: Who may ask.
  ///   - metrics: Where it is counted what is answered here.
  ///   - idleTimeout: When to close a connection on which nothing happens.
  init(
    desk: EntitlementDesk?, keys: APIKeys, metrics: RequestMetrics, idleTimeout: TimeAmount
  ) {
    self.metrics = metrics
    self.desk = desk
    self.keys = keys
    self.idleTimeout = idleTimeout
  }

  func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    encoder = try? context.pipeline.syncOperations.context(handlerType: HTTPResponseEncoder.self)
    checkIdleness(in: idleTimeout)
  }

  /// The channel is closed: an answer that comes now finds nobody.
  func handlerRemoved(context: ChannelHandlerContext) {
    if case .asked = phase { metrics.inFlight.decrement() }
    idleCheck?.cancel()
    idleCheck = nil
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
        phase = .begun(request, head)
      } else {
        forward(part, context)
      }
    case (.open, .body), (.open, .end), (.asked, _):
      lastActive = .now()
      forward(part, context)
    }
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
      if !isRouterClosing { routerRequests += 1 }
      isRouterReading = true
      isRouterClosing = isRouterClosing || !head.isKeepAlive
    case .body: break
    case .end: isRouterReading = false
    }
    hasForwarded = true
    context.fireChannelRead(wrapInboundOut(part))
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

  /// Writes the answer; nil, and the router has to find one.
  func answer(_ answer: AccountEntitlements?) {
    guard case .asked(let request, let head) = phase, let context, let encoder else { return }
    phase = .open
    metrics.inFlight.decrement()
    if let answer {
      // Nothing else was read from the connection since the request came.
      let begin = lastActive
      lastActive = .now()
      metrics.entitlements.count(
        status: 200, nanoseconds: (lastActive - begin).nanoseconds)
      let bytes = encoded(answer, id: request.id ?? RequestID().description, context)
      encoder.writeAndFlush(NIOAny(IOData.byteBuffer(bytes)), promise: nil)
    } else {
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

  /// Counts the router's answers.
  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    if case .end = unwrapOutboundIn(data) {
      routerRequests -= 1
      lastActive = .now()
    }
    context.write(data, promise: promise)
  }

  // MARK: Idle connections

  private func checkIdleness(in delay: TimeAmount) {
    idleCheck = context?.eventLoop.assumeIsolated().scheduleTask(in: delay) { [self] in
      let idle = isAnswering ? .zero : NIODeadline.now() - lastActive
      if idle < idleTimeout {
        checkIdleness(in: idleTimeout - idle)
      } else {
        context?.close(promise: nil)
      }
    }
  }

  private var isAnswering: Bool {
    if case .asked = phase { true } else { routerRequests > 0 && !isRouterReading }
  }
}
