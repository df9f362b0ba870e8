import NIOCore
import NIOHTTP1
import NIOPosix
import Synchronization

/// A receiver on the loopback address that records its requests; a test sets the responses.
final class StandInReceiver: Sendable {
  struct Request: Sendable {
    var head: HTTPRequestHead
    var body: String

    var signature: String? { head.headers.first(name: "Tenure-Signature") }
  }

  enum Answer: Sendable {
    case status(Int, headers: HTTPHeaders = [:], body: String = "")
    /// The connection stays open, and nothing comes.
    case silence
    /// The connection is closed.
    case hangUp
  }

  private struct State {
    var requests: [Request] = []
    var connections = 0
    var answer: @Sendable (Request) -> Answer
  }

  let port: Int
  private let channel: any Channel
  private let state: StateBox

  /// Shared with the handlers of its connections.
  private final class StateBox: Sendable {
    let mutex: Mutex<State>

    init(_ state: State) { mutex = Mutex(state) }
  }

  var requests: [Request] { state.mutex.withLock(\.requests) }
  var connections: Int { state.mutex.withLock(\.connections) }

  func answer(_ answer: @escaping @Sendable (Request) -> Answer) {
    state.mutex.withLock { $0.answer = answer }
  }

  private init(channel: any Channel, state: StateBox) {
    self.channel = channel
    self.state = state
    port = channel.localAddress?.port ?? 0
  }

  /// Runs a body with a receiver that accepts everything.
  static func run<Value: Sendable>(
    host: String = "127.0.0.1", _ body: (StandInReceiver) async throws -> Value
  ) async throws -> Value {
    let state = StateBox(State(answer: { _ in .status(204) }))
    let channel = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
      .childChannelInitializer { channel in
        state.mutex.withLock { $0.connections += 1 }
        return channel.pipeline.configureHTTPServerPipeline().flatMapThrowing {
          try channel.pipeline.syncOperations.addHandler(Handler(state: state))
        }
      }
      .bind(host: host, port: 0).get()
    let receiver = StandInReceiver(channel: channel, state: state)
    do {
      let value = try await body(receiver)
      try await channel.close()
      return value
    } catch {
      try await channel.close()
      throw error
    }
  }

  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let state: StateBox
    private var request: Request?

    init(state: StateBox) { self.state = state }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      switch unwrapInboundIn(data) {
      case .head(let head): request = Request(head: head, body: "")
      case .body(let part): request?.body += String(buffer: part)
      case .end:
        guard let request else { return }
        let answer = state.mutex.withLock { state in
          state.requests.append(request)
          return state.answer
        }
        send(answer(request), context)
      }
    }

    private func send(_ answer: Answer, _ context: ChannelHandlerContext) {
      switch answer {
      case .silence: break
      case .hangUp: context.close(promise: nil)
      case .status(let status, var headers, let body):
        headers.add(name: "Content-Length", value: "\(body.utf8.count)")
        context.write(
          wrapOutboundOut(
            .head(
              HTTPResponseHead(
                version: .http1_1, status: HTTPResponseStatus(statusCode: status),
                headers: headers))), promise: nil)
        context.write(
          wrapOutboundOut(.body(.byteBuffer(ByteBuffer(string: body)))), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
      }
    }
  }
}
