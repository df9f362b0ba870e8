import NIOCore
import NIOHTTP1
import NIOPosix

/// A bare NIO server that answers every request with the same head and body: the limit of HTTP.
struct BareServer {
  let url: String

  /// Runs a server while a body runs.
  static func run<Value>(
    answering answer: BenchAnswer, _ body: (BareServer) async throws -> Value
  ) async throws -> Value {
    let channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .serverChannelOption(.backlog, value: 256)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          let pipeline = channel.pipeline.syncOperations
          try pipeline.configureHTTPServerPipeline(
            withPipeliningAssistance: false, withErrorHandling: false)
          try pipeline.addHandler(Handler(answer))
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    do {
      let value = try await body(
        BareServer(url: "http://127.0.0.1:\(channel.localAddress?.port ?? 0)"))
      try await channel.close()
      return value
    } catch {
      try? await channel.close()
      throw error
    }
  }

  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let head: HTTPResponseHead
    private let body: ByteBuffer

    init(_ answer: BenchAnswer) {
      head = HTTPResponseHead(version: .http1_1, status: .ok, headers: answer.headers)
      body = ByteBuffer(string: answer.body)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      guard case .end = unwrapInboundIn(data) else { return }
      context.write(wrapOutboundOut(.head(head)), promise: nil)
      context.write(wrapOutboundOut(.body(.byteBuffer(body))), promise: nil)
      context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }
  }
}

/// A server's answer to one request.
struct BenchAnswer: Sendable {
  let status: UInt
  let headers: HTTPHeaders
  let body: String
}
