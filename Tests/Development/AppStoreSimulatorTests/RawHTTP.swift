import Foundation
import NIOCore
import NIOPosix

/// One HTTP request over its own connection, sent byte by byte.
///
/// Faults below HTTP are the point here, so no client library stands between.
enum RawHTTP {
  enum Outcome: Equatable, Sendable {
    case response(status: Int, headers: [String: String], body: String)
    /// The head announced more than came.
    case cutOff(received: Int, announced: Int)
    case reset
    case silence
  }

  /// How long an answer is waited for: longer than any busy machine takes, and less than the 300
  /// seconds of a silent server.
  static let patience: Duration = .seconds(240)

  static func send(
    _ method: String = "POST", _ path: String, _ body: some Collection<UInt8> = [],
    authorization: String? = nil, port: Int,
    patience: Duration = patience
  ) async throws -> Outcome {
    let bytes = ByteBuffer(
      bytes: Array(
        "\(method) \(path) HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n".utf8)
        + Array((authorization.map { "Authorization: \($0)\r\n" } ?? "").utf8)
        + Array("Content-Length: \(body.count)\r\n\r\n".utf8) + body)
    let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .connect(host: "127.0.0.1", port: port) { channel in
        channel.eventLoop.makeCompletedFuture {
          try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
        }
      }
    return try await withThrowingTaskGroup(of: Outcome.self) { group in
      group.addTask {
        do {
          return try await channel.executeThenClose { inbound, outbound in
            try await outbound.write(bytes)
            var received = ByteBuffer()
            for try await part in inbound { received.writeImmutableBuffer(part) }
            return outcome(String(buffer: received))
          }
        } catch let error as IOError where error.errnoCode == ECONNRESET {
          return .reset
        }
      }
      group.addTask {
        try await Task.sleep(for: patience)
        return .silence
      }
      defer { group.cancelAll() }
      return try await group.next() ?? .silence
    }
  }

  private static func outcome(_ text: String) -> Outcome {
    guard let end = text.range(of: "\r\n\r\n") else {
      return .cutOff(received: 0, announced: 0)
    }
    let head = text[..<end.lowerBound].components(separatedBy: "\r\n")
    let body = String(text[end.upperBound...])
    var headers: [String: String] = [:]
    for line in head.dropFirst() {
      let parts = line.split(separator: ":", maxSplits: 1)
      guard parts.count == 2 else { continue }
      headers[parts[0].lowercased()] = parts[1].trimmingCharacters(in: .whitespaces)
    }
    let announced = headers["content-length"].flatMap { Int($0) } ?? body.utf8.count
    guard announced == body.utf8.count else {
      return .cutOff(received: body.utf8.count, announced: announced)
    }
    let status = head[0].split(separator: " ").dropFirst().first.flatMap { Int($0) }
    return .response(status: status ?? 0, headers: headers, body: body)
  }
}
