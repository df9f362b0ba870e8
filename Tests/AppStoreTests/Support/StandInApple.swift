import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix

/// A stand-in for Apple on a loopback port, whose responses a test sets byte by byte.
struct StandInApple: Sendable {
  /// The reaction on a connection once a request has arrived whole.
  enum Action: Sendable {
    case send([UInt8])
    case pause(Duration)
    /// Closes with a TCP reset instead of a proper end.
    case reset
  }

  struct Request: Sendable {
    var path: String
    var body: [UInt8]
  }

  let port: Int
  var productionURL: String { "http://127.0.0.1:\(port)/verifyReceipt" }
  var sandboxURL: String { "http://127.0.0.1:\(port)/sandbox/verifyReceipt" }

  /// Serves as long as `body` runs; each connection ends after one answer.
  static func serving<Value: Sendable>(
    _ answer: @escaping @Sendable (Request) -> [Action],
    _ body: @Sendable (StandInApple) async throws -> Value
  ) async throws -> Value {
    typealias Connection = NIOAsyncChannel<HTTPServerRequestPart, ByteBuffer>
    let server = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .bind(host: "127.0.0.1", port: 0) { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(
            ByteToMessageHandler(HTTPRequestDecoder()))
          return try Connection(wrappingChannelSynchronously: channel)
        }
      }
    return try await withThrowingTaskGroup(of: Void.self) { group in
      let port = server.channel.localAddress?.port ?? 0
      group.addTask {
        try await withThrowingDiscardingTaskGroup { connections in
          try await server.executeThenClose { incoming in
            for try await connection in incoming {
              connections.addTask { try? await serve(connection, answer) }
            }
          }
        }
      }
      defer { group.cancelAll() }
      return try await body(StandInApple(port: port))
    }
  }

  private static func serve(
    _ connection: NIOAsyncChannel<HTTPServerRequestPart, ByteBuffer>,
    _ answer: @Sendable (Request) -> [Action]
  ) async throws {
    try await connection.executeThenClose { incoming, _ in
      var request = Request(path: "", body: [])
      parts: for try await part in incoming {
        switch part {
        case .head(let head): request.path = head.uri
        case .body(let bytes): request.body.append(contentsOf: bytes.readableBytesView)
        case .end: break parts
        }
      }
      for action in answer(request) {
        switch action {
        case .send(let bytes):
          // Not by the asynchronous writer, which would let the end overtake a long answer.
          try await connection.channel.writeAndFlush(ByteBuffer(bytes: bytes)).get()
        case .pause(let duration): try await Task.sleep(for: duration)
        case .reset:
          let socket = connection.channel as? any SocketOptionProvider
          try await socket?.setSoLinger(linger(l_onoff: 1, l_linger: 0)).get()
        }
      }
    }
  }
}

extension StandInApple.Action {
  /// A whole HTTP answer.
  static func answer(
    _ body: [UInt8], status: Int = 200, type: String? = "application/json",
    headers: [String] = []
  ) -> StandInApple.Action {
    let head = ["HTTP/1.1 \(status) Some", "Content-Length: \(body.count)", "Connection: close"]
    let lines = head + (type.map { ["Content-Type: \($0)"] } ?? []) + headers
    return .send(Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8) + body)
  }

  static func answer(
    _ body: String, status: Int = 200, type: String? = "application/json",
    headers: [String] = []
  ) -> StandInApple.Action {
    .answer(Array(body.utf8), status: status, type: type, headers: headers)
  }

  /// Bytes on the wire as they stand.
  static func send(_ text: String) -> StandInApple.Action { .send(Array(text.utf8)) }
}
