import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import Secrets
import Subscriptions
import Synchronization
import Testing

@testable import BackgroundJobs

@Suite("What pushes events")
struct WebhookSenderTests {
  private static let secrets = ["one that is long enough", "another that is long enough"]
  private static let moment = Timestamp(milliseconds: 1_767_225_600_123)

  /// Runs a body with a sender to a URL.
  private func withSender<Value: Sendable>(
    to url: String, secrets: [String] = [Self.secrets[0]], allowsPrivate: Bool = true,
    timeout: Duration = .seconds(60), addresses: HostAddresses? = nil,
    _ body: (WebhookSender) async throws -> Value
  ) async throws -> Value {
    let sender = WebhookSender(
      to: try WebhookReceiver(
        url: Secret(url), secrets: secrets.map { Secret($0) }, allowsPrivateAddresses: allowsPrivate
      ),
      timeout: timeout, addresses: addresses)
    do {
      let value = try await body(sender)
      await sender.shutDown()
      return value
    } catch {
      await sender.shutDown()
      throw error
    }
  }

  @Test(
    "administrators see where events go, without tokens",
    arguments: [
      ("https://hooks.example.com?token=t", "https://hooks.example.com"),
      ("https://hooks.example.com:8443/t/x?y", "https://hooks.example.com:8443"),
      ("http://[::1]:80/t", "http://[::1]:80"),
    ])
  func origin(url: String, origin: String) throws {
    let receiver = try WebhookReceiver(
      url: Secret(url), secrets: [Secret("0123456789abcdef")], allowsPrivateAddresses: true)
    #expect(receiver.origin == origin)
  }

  @Test("an event is posted as it is, signed with each secret")
  func posts() async throws {
    try await StandInReceiver.run { receiver in
      let url = "http://127.0.0.1:\(receiver.port)/events?token=1"
      try await withSender(to: url, secrets: Self.secrets) { sender async throws in
        for body in [#"{"id":"1"}"#, #"{"id":"é"}"#] {
          #expect(try await sender.send(body, at: Self.moment) == nil)
        }
      }
      let requests = receiver.requests
      #expect(requests.map(\.body) == [#"{"id":"1"}"#, #"{"id":"é"}"#])
      // One after the other, on one connection.
      #expect(receiver.connections == 1)
      for request in requests {
        #expect(request.head.method == .POST)
        #expect(request.head.uri == "/events?token=1")
        #expect(request.head.headers["Host"] == ["127.0.0.1:\(receiver.port)"])
        #expect(request.head.headers["Content-Type"] == ["application/json"])
        let signature = try #require(request.signature)
        #expect(signature.hasPrefix("t=1767225600,v1="))
        #expect(signature.split(separator: ",").count == 3)
        for secret in Self.secrets {
          #expect(
            isGenuine(
              signature, body: Data(request.body.utf8), secret: secret,
              now: Date(timeIntervalSince1970: 1_767_225_600)))
        }
      }
    }
  }

  // swift-format-ignore
  @Test("2xx is delivered, and nothing else", arguments: [
      (200, nil), (204, nil), (299, nil),
      (301, "redirects are not followed"), (302, "redirects are not followed"),
      (307, "redirects are not followed"), (308, "redirects are not followed"),
      (400, "HTTP 400"), (401, "HTTP 401"), (410, "HTTP 410"), (429, "HTTP 429"), (500, "HTTP 500"),
      (503, "HTTP 503"),
    ] as [(Int, String?)])
  func statuses(status: Int, reason: String?) async throws {
    try await StandInReceiver.run { receiver in
      let elsewhere = "http://127.0.0.1:\(receiver.port)/elsewhere"
      receiver.answer { _ in .status(status, headers: ["Location": elsewhere]) }
      try await withSender(to: "http://127.0.0.1:\(receiver.port)/events") { sender async throws in
        let failure = try await sender.send("{}", at: Self.moment)
        if let reason {
          #expect(failure?.contains(reason) == true)
        } else {
          #expect(failure == nil)
        }
      }
      #expect(receiver.requests.map(\.head.uri) == ["/events"])
    }
  }

  @Test("a receiver that says nothing, hangs up or talks too much holds up nothing")
  func unruly() async throws {
    try await StandInReceiver.run { receiver in
      let url = "http://127.0.0.1:\(receiver.port)/events"
      receiver.answer { _ in .silence }
      try await withSender(to: url, timeout: .milliseconds(50)) { sender async throws in
        #expect(try await sender.send("{}", at: Self.moment)?.contains("did not respond") == true)
      }
      try await withSender(to: url) { sender async throws in
        receiver.answer { _ in .hangUp }
        #expect(try await sender.send("{}", at: Self.moment)?.contains("was lost") == true)
        receiver.answer { _ in .status(200, body: String(repeating: "x", count: 1_000_000)) }
        #expect(try await sender.send("{}", at: Self.moment) == nil)
        receiver.answer { _ in .status(204) }
        #expect(try await sender.send("{}", at: Self.moment) == nil)
      }
    }
  }

  @Test("where no server listens, and where no name resolves")
  func withoutListener() async throws {
    let port = try await StandInReceiver.run { $0.port }
    try await withSender(to: "http://127.0.0.1:\(port)/") { sender async throws in
      let reason = try await sender.send("{}", at: Self.moment) ?? ""
      #expect(reason.hasPrefix("Can't connect to the receiver"))
    }
    try await withSender(to: "http://receiver.invalid:\(port)/") { sender async throws in
      let reason = try await sender.send("{}", at: Self.moment) ?? ""
      #expect(reason == "The receiver's host name has no address.")
    }
  }

  // swift-format-ignore
  @Test("a name that leads to a private address gets nothing", arguments: [
      ["127.0.0.1"], ["::1"], ["10.0.0.7"], ["169.254.169.254"], ["::ffff:127.0.0.1"], ["fd00::1"],
      ["100.64.0.1"], ["0.0.0.0"], ["64:ff9b::7f00:1"],
      // One of many is enough.
      ["93.184.216.34", "127.0.0.1"], ["2606:2800:220:1:248:1893:25c8:1946", "::1"],
      // Unparsable addresses are not tried.
      ["127.1"], ["localhost"],
    ])
  func privateAddresses(found: [String]) async throws {
    try await StandInReceiver.run { receiver in
      try await withSender(
        to: "http://receiver.example:\(receiver.port)/", allowsPrivate: false,
        addresses: { _ in found }
      ) { sender async throws in
        let reason = try await sender.send("{}", at: Self.moment) ?? ""
        #expect(
          reason.contains("private address") || reason.contains("is invalid"))
      }
      #expect(receiver.connections == 0)
    }
  }

  @Test("names of this machine lead nowhere, however they are written")
  func local() async throws {
    try await StandInReceiver.run { receiver in
      for host in ["localhost", "2130706433", "127.1", "0x7f000001"] {
        try await withSender(
          to: "http://\(host):\(receiver.port)/", allowsPrivate: false
        ) { sender async throws in
          #expect(try await sender.send("{}", at: Self.moment) != nil, "\(host)")
        }
      }
      #expect(receiver.connections == 0)
      // As the system finds it.
      try await withSender(to: "http://localhost:\(receiver.port)/") { sender async throws in
        #expect(try await sender.send("{}", at: Self.moment) == nil)
      }
    }
  }

  @Test("what is connected to is the address that was checked, and not the name again")
  func rebinding() async throws {
    try await StandInReceiver.run { receiver in
      // Only this test knows an address of this name: a look-up would find none.
      let asked = Mutex<[String]>([])
      try await withSender(
        to: "http://receiver.invalid:\(receiver.port)/",
        addresses: { host in
          asked.withLock { $0.append(host) }
          return ["127.0.0.1"]
        }
      ) { sender async throws in
        for _ in 0..<3 { #expect(try await sender.send("{}", at: Self.moment) == nil) }
      }
      #expect(asked.withLock { $0 } == Array(repeating: "receiver.invalid", count: 3))
      #expect(
        receiver.requests.map { $0.head.headers["Host"] }
          == Array(repeating: ["receiver.invalid:\(receiver.port)"], count: 3))
    }
  }

  @Test("over TLS the receiver is called by its name, not by the address that was checked")
  func serverName() async throws {
    let hello = ReceivedBytes()
    let channel = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
      .childChannelInitializer { channel in channel.pipeline.addHandler(hello) }
      .bind(host: "127.0.0.1", port: 0).get()
    try await withSender(
      to: "https://receiver.example:\(channel.localAddress?.port ?? 0)/",
      addresses: { _ in ["127.0.0.1"] }
    ) { sender async throws in
      // No answer comes: the name is in clear text in the first bytes sent.
      #expect(try await sender.send("{}", at: Self.moment) != nil)
    }
    #expect(hello.text.contains("receiver.example"))
    #expect(!hello.text.contains("127.0.0.1"))
    try await channel.close()
  }

  @Test("of several addresses the next is tried where no connection is accepted")
  func several() async throws {
    try await StandInReceiver.run { receiver in
      try await withSender(
        to: "http://receiver.invalid:\(receiver.port)/",
        addresses: { _ in ["127.0.0.2", "127.0.0.1"] }
      ) { sender async throws in
        for _ in 0..<3 { #expect(try await sender.send("{}", at: Self.moment) == nil) }
        // Those that fail don't cost the one that serves its connection.
        #expect(receiver.connections == 1)
        // A receiver that refuses is not asked at its other addresses.
        receiver.answer { _ in .status(500) }
        #expect(try await sender.send("{}", at: Self.moment) != nil)
      }
      #expect(receiver.requests.count == 4)
    }
  }
}

/// Keeps what comes first on a connection, and closes it.
private final class ReceivedBytes: ChannelInboundHandler, Sendable {
  typealias InboundIn = ByteBuffer

  private let bytes = Mutex<[UInt8]>([])

  var text: String { bytes.withLock { String(decoding: $0, as: UTF8.self) } }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    let buffer = unwrapInboundIn(data)
    bytes.withLock { $0 += buffer.readableBytesView }
    context.close(promise: nil)
  }
}
