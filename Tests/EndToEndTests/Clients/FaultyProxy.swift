import AsyncHTTPClient
import NIOCore
import NIOHTTP1
import NIOPosix
import Synchronization

/// A proxy between an app server and Tenure that fails once on each of the given routes.
final class FaultyProxy: Sendable {
  enum Fault: Sendable {
    /// Responds with 503.
    case unavailable
    /// Forwards the request, then closes the connection without a response.
    case lostAnswer
    /// Keeps the connection open without a response.
    case silence
  }

  struct Request: Sendable {
    var head: HTTPRequestHead
    var body = ByteBuffer()
  }

  struct Answer: Sendable {
    var head: HTTPResponseHead
    var body: ByteBuffer
  }

  private let url: String
  private let state: Mutex<State>

  private struct State {
    var faults: [String: Fault]
    var requestIDs: [String] = []
  }

  /// The faults that have not occurred yet.
  var faults: [String: Fault] { state.withLock(\.faults) }
  /// The `X-Request-ID` of every request.
  var requestIDs: [String] { state.withLock(\.requestIDs) }

  /// Creates a proxy with a fault for the first request of each method and path.
  init(to url: String, faults: [String: Fault]) {
    self.url = url
    state = Mutex(State(faults: faults))
  }

  /// Runs the proxy for `body`, which gets its address.
  func run<Value: Sendable>(_ body: (_ url: String) async throws -> Value) async throws -> Value {
    let channel = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
      .childChannelInitializer { channel in
        channel.pipeline.configureHTTPServerPipeline().flatMapThrowing {
          try channel.pipeline.syncOperations.addHandler(Handler(proxy: self))
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    do {
      let value = try await body("http://127.0.0.1:\(channel.localAddress?.port ?? 0)")
      try await channel.close()
      return value
    } catch {
      try await channel.close()
      throw error
    }
  }

  /// Returns the response to a request, or nil to close the connection.
  fileprivate func answer(to request: Request) async -> Answer? {
    let path = request.head.uri.split(separator: "?").first ?? ""
    let fault = state.withLock { state in
      state.requestIDs += request.head.headers["X-Request-ID"]
      return state.faults.removeValue(forKey: "\(request.head.method) \(path)")
    }
    switch fault {
    case .unavailable:
      return Answer(
        head: .init(
          version: .http1_1, status: .serviceUnavailable, headers: ["Retry-After": "1"]),
        body: .init())
    case .silence:
      try? await Task.sleep(for: .seconds(30))
      return nil
    case .lostAnswer:
      _ = await forward(request)
      return nil
    case nil: return await forward(request)
    }
  }

  private func forward(_ request: Request) async -> Answer? {
    var copy = HTTPClientRequest(url: url + request.head.uri)
    copy.method = request.head.method
    copy.headers = request.head.headers
    copy.headers.remove(name: "Host")
    if request.body.readableBytes > 0 { copy.body = .bytes(request.body) }
    guard
      let answer = try? await HTTPClient.shared.execute(copy, timeout: .seconds(120)),
      let body = try? await answer.body.collect(upTo: 1 << 24)
    else { return nil }
    return Answer(
      head: .init(version: .http1_1, status: answer.status, headers: answer.headers), body: body)
  }

  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let proxy: FaultyProxy
    private var request: Request?

    init(proxy: FaultyProxy) { self.proxy = proxy }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      switch unwrapInboundIn(data) {
      case .head(let head): request = Request(head: head)
      case .body(var part): request?.body.writeBuffer(&part)
      case .end:
        guard let request else { return }
        let proxy = proxy
        context.eventLoop.makeFutureWithTask { await proxy.answer(to: request) }
          .assumeIsolated().whenSuccess { self.send($0, context) }
      }
    }

    private func send(_ answer: Answer?, _ context: ChannelHandlerContext) {
      guard var answer else {
        context.close(promise: nil)
        return
      }
      answer.head.headers.replaceOrAdd(
        name: "Content-Length", value: "\(answer.body.readableBytes)")
      context.write(wrapOutboundOut(.head(answer.head)), promise: nil)
      context.write(wrapOutboundOut(.body(.byteBuffer(answer.body))), promise: nil)
      context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }
  }
}
