import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import ScratchDatabases
import Testing

@testable import tenure

/// What strangers can do to the real program without a key.
@Suite("Strangers")
struct StrangerTests {
  private static let mebibyte = 1024 * 1024
  /// With connections of its own, for those of the shared client are what is measured.
  private static let flood: HTTPClient = {
    var configuration = HTTPClient.Configuration()
    configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = 20
    return HTTPClient(eventLoopGroupProvider: .singleton, configuration: configuration)
  }()

  /// Opens connections that send something each and receive nothing.
  private static func open(
    _ count: Int, to port: Int, sending bytes: ByteBuffer
  ) async throws -> [any Channel] {
    var channels: [any Channel] = []
    for _ in 0..<count {
      let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
        .channelOption(.autoRead, value: false).connect(host: "127.0.0.1", port: port).get()
      channel.writeAndFlush(bytes, promise: nil)
      channels.append(channel)
    }
    return channels
  }

  /// Runs a body with a server and its port.
  private static func withServer(
    _ body: @Sendable (ServeProcess, Int) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        try await ServeProcess.run(
          try TenureProgram.executable, databaseURL: database.uri, in: directory
        ) { server in
          try await body(server, try #require(URL(string: server.url)?.port))
        }
      }
    }
  }

  @Test func `slow bodies and readers that never read leave the server small`() async throws {
    try await Self.withServer { server, port in
      let length = Self.mebibyte
      var body = ByteBuffer(
        string: "POST /v1/appstore/notifications HTTP/1.1\r\nHost: a\r\n"
          + "Content-Length: \(length)\r\n\r\n")
      body.writeRepeatingByte(UInt8(ascii: " "), count: length - 200)
      let requests = ByteBuffer(
        string: String(
          repeating: "GET /openapi.yaml HTTP/1.1\r\nHost: a\r\n\r\n", count: 4000))
      let channels =
        try await Self.open(200, to: port, sending: body)
        + (try await Self.open(100, to: port, sending: requests))
      for _ in 0..<10 {
        try await Task.sleep(for: .milliseconds(200))
        #expect(try await server.get("/healthz").status == 200)
        #expect(try await server.get("/v1/accounts/anna/entitlements").status == 200)
      }
      if let peak = server.peakMemory { #expect(peak < 200 * Self.mebibyte, "\(peak)") }
      for channel in channels { channel.close(promise: nil) }
    }
  }

  /// The slowest but one of a hundred reads, one after the other.
  private static func slowReads(_ server: ServeProcess) async throws -> Duration {
    var times: [Duration] = []
    for _ in 0..<100 {
      let start = ContinuousClock.now
      #expect(try await server.get("/v1/accounts/anna/entitlements").status == 200)
      times.append(ContinuousClock.now - start)
    }
    return times.sorted()[98]
  }

  @Test func `a flood of notifications does not make others wait three times as long`()
    async throws
  {
    try await Self.withServer { server, port in
      let element = #"{"a":1,"b":1},"#
      let text = "[" + String(repeating: element, count: 70_000) + "0]"
      let body = ByteBuffer(string: text)
      try await withThrowingTaskGroup(of: Void.self) { group in
        _ = try await Self.slowReads(server)
        // Other tests share the cores: the two are measured in turns, and each counts at its best.
        var (quiet, flooded) = (Duration.seconds(60), Duration.seconds(60))
        quiet = min(quiet, try await Self.slowReads(server))
        for _ in 0..<20 {
          group.addTask {
            while !Task.isCancelled {
              var request = HTTPClientRequest(url: server.url + "/v1/appstore/notifications")
              request.method = .POST
              request.body = .bytes(body)
              let answer = try? await Self.flood.execute(request, timeout: .seconds(30))
              if let answer { _ = try? await answer.body.collect(upTo: 65_536) }
            }
          }
        }
        // Sixty are refused at once before the flood is slowed.
        try await Task.sleep(for: .seconds(1))
        for _ in 0..<10 {
          flooded = min(flooded, try await Self.slowReads(server))
          if flooded <= max(quiet * 3, .milliseconds(5)) { break }
        }
        group.cancelAll()
        try await group.waitForAll()
        #expect(flooded <= max(quiet * 3, .milliseconds(5)), "\(quiet) quiet, \(flooded) flooded")
      }
    }
  }
}
