import NIOCore
import NIOPosix

/// A TCP connection for HTTP byte by byte, for tests of the bytes on the wire.
final class RawConnection {
  struct Answer: Equatable, CustomStringConvertible {
    /// The status line and the header fields, as they came.
    var head: [String]
    var body: String

    var status: Int { head[0].split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0 }
    var description: String { (head + ["", body]).joined(separator: "\n") }

    /// The value of a header field.
    subscript(name: String) -> String? {
      head.first { $0.lowercased().hasPrefix(name.lowercased() + ": ") }
        .map { String($0.dropFirst(name.count + 2)) }
    }

    /// The answer with placeholders for the parts that differ from request to request.
    var comparable: Answer {
      var answer = self
      answer.body.replace(/,\x22request_id\x22:\x22[^\x22]*\x22/, with: "")
      let namesRequest = answer.body != body
      for (index, line) in head.enumerated() {
        if line.contains(#/^Date: \w{3}, \d\d \w{3} \d{4} [\d:]{8} GMT$/#) {
          answer.head[index] = "Date: now"
        } else if line.contains(#/^X-Request-ID: [0-9a-f]{17,32}$/#) {
          answer.head[index] = "X-Request-ID: made"
        } else if namesRequest, line.hasPrefix("Content-Length: ") {
          answer.head[index] = "Content-Length: \(answer.body.utf8.count)"
        }
      }
      return answer
    }
  }

  private var inbound: NIOAsyncChannelInboundStream<ByteBuffer>.AsyncIterator
  private let outbound: NIOAsyncChannelOutboundWriter<ByteBuffer>
  private var received = ""

  private init(
    inbound: NIOAsyncChannelInboundStream<ByteBuffer>.AsyncIterator,
    outbound: NIOAsyncChannelOutboundWriter<ByteBuffer>
  ) {
    self.inbound = inbound
    self.outbound = outbound
  }

  /// Runs a body with a connection, which is closed afterwards.
  ///
  /// A socket's default receive buffer grows to megabytes.
  static func to<Value: Sendable>(
    _ port: Int, receiveBuffer: Int? = nil, _ body: (RawConnection) async throws -> Value
  ) async throws -> Value {
    var bootstrap = ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
    if let receiveBuffer {
      // As channel options they are set before the connection is made.
      bootstrap = bootstrap.channelOption(
        .socketOption(.so_rcvbuf), value: receiveBuffer)
    }
    let channel =
      try await bootstrap
      .connect(host: "127.0.0.1", port: port) { channel in
        channel.eventLoop.makeCompletedFuture {
          try NIOAsyncChannel<ByteBuffer, ByteBuffer>(
            wrappingChannelSynchronously: channel,
            configuration: .init(isOutboundHalfClosureEnabled: true))
        }
      }
    return try await channel.executeThenClose { inbound, outbound in
      try await body(
        RawConnection(inbound: inbound.makeAsyncIterator(), outbound: outbound))
    }
  }

  func send(_ text: String) async throws {
    try await outbound.write(ByteBuffer(string: text))
  }

  /// Says that nothing more will be sent.
  func finish() { outbound.finish() }

  /// Sends a GET without a body.
  func get(_ path: String, _ fields: [String] = ["Authorization: Bearer app-secret-for-trying"])
    async throws
  {
    try await send(Self.get(path, fields))
  }

  static func get(
    _ path: String, _ fields: [String] = ["Authorization: Bearer app-secret-for-trying"]
  ) -> String {
    (["GET \(path) HTTP/1.1", "Host: localhost"] + fields + ["", ""]).joined(separator: "\r\n")
  }

  /// The next answer, which must have a `Content-Length`; nil when the connection was closed
  /// instead.
  func answer(toHead: Bool = false) async throws -> Answer? {
    while true {
      if let answer = complete(hasBody: !toHead) { return answer }
      guard let part = try await inbound.next(isolation: #isolation) else { return nil }
      received += String(buffer: part)
    }
  }

  /// Reads until a text has arrived, or to the end if it never does.
  func received(until text: String) async -> String {
    while received.firstRange(of: text) == nil {
      // However the connection ends.
      guard let part = try? await inbound.next(isolation: #isolation) else { break }
      received += String(buffer: part)
    }
    defer { received = "" }
    return received
  }

  private func complete(hasBody: Bool) -> Answer? {
    guard let end = received.firstRange(of: "\r\n\r\n") else { return nil }
    var answer = Answer(
      head: received[..<end.lowerBound].split(separator: "\r\n").map(String.init), body: "")
    let rest = received[end.upperBound...].utf8
    guard let announced = answer["Content-Length"].flatMap({ Int($0) }) else { return nil }
    let length = hasBody ? announced : 0
    guard rest.count >= length else { return nil }
    answer.body = String(decoding: rest.prefix(length), as: UTF8.self)
    received = String(decoding: rest.dropFirst(length), as: UTF8.self)
    return answer
  }
}
