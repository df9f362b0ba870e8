import Foundation
import NIOCore
import NIOPosix
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("tenure demo")
struct DemoCommandTests {
  /// How long the story may take.
  private static let limit: Duration = .seconds(300)

  @Test("plays its story, in which every check passes, and leaves nothing")
  func story() async throws {
    try await withTemporaryDirectory { directory in
      let outcome = try await ChildProcess.run(
        try TenureProgram.executable, ["demo", "--exit", "--port", "0", "--customers", "5"],
        environment: Self.temporaryFiles(in: directory), in: directory)
      #expect(outcome.status == 0, "\(outcome.errors.suffix(2000)) \(outcome.output)")
      let counts = try #require(outcome.output.firstMatch(of: /(\d+) of (\d+) outcomes/))
      #expect(counts.1 == counts.2)
      let recorded = try #require(
        outcome.output.firstMatch(of: /(\d+) of (\d+)\s+charges\s+of\s+the\s+App\s+Store/))
      #expect(recorded.1 == recorded.2)
      #expect(outcome.output.contains(/compared\s+with\s+the\s+truth:\s+0\s+differences/))
      #expect(outcome.output.contains(/: \d+ entries, 0 differences/))
      #expect(outcome.output.contains("5 customers live through 12 months"))
      #expect(try Self.leftovers(in: directory).isEmpty)
    }
  }

  /// Before this demo is stopped, everything has been looked at.
  private static let visited = (SIGINT, "Press Ctrl-C to stop")

  @Test(
    "leaves nothing when it is stopped, in the middle of its story or when it stays up",
    arguments: [(SIGINT, "✓"), visited, (SIGTERM, "curl ")])
  func stops(on signal: Int32, after text: String) async throws {
    try await withTemporaryDirectory { directory in
      let isVisited = (signal, text) == Self.visited
      let port = isVisited ? try await Self.freePorts() : 0
      let demo = try ChildProcess(
        try TenureProgram.executable,
        ["demo", "--port", "\(port)", "--customers", "0"]
          + (isVisited ? ["--all-interfaces"] : []),
        environment: Self.temporaryFiles(in: directory), in: directory)
      let end = ContinuousClock.now + Self.limit
      while !demo.output.contains(text), ContinuousClock.now < end {
        try await Task.sleep(for: .milliseconds(50))
      }
      #expect(demo.isRunning, "\(demo.errors)")
      if isVisited {
        try await DemoVisit(demo.output).visit()
        #expect(demo.output.contains("http://127.0.0.1:\(port)/admin"))
        #expect(demo.output.contains("http://127.0.0.1:\(port + 1)/simulator"))
        #if os(Linux)
          // As from outside of a container.
          for path in ["\(port)/healthz", "\(port + 1)/simulator"] {
            _ = try await DemoVisit.get("http://127.0.0.2:\(path)")
          }
        #endif
      }
      kill(demo.processID, signal)
      while demo.isRunning, ContinuousClock.now < end {
        try await Task.sleep(for: .milliseconds(50))
      }
      #expect(!demo.isRunning)
      await demo.kill()
      #expect(try Self.leftovers(in: directory).isEmpty)
    }
  }

  /// The first of two consecutive free ports.
  private static func freePorts() async throws -> Int {
    for first in (20_000..<30_000).shuffled() {
      if await isFree(first), await isFree(first + 1) { return first }
    }
    throw CancellationError()
  }

  private static func isFree(_ port: Int) async -> Bool {
    let bootstrap = ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
    let channel = try? await bootstrap.bind(host: "0.0.0.0", port: port).get()
    try? await channel?.close()
    return channel != nil
  }

  private static func temporaryFiles(in directory: URL) -> [String: String] {
    ["TMPDIR": directory.path(percentEncoded: false)]
  }

  /// The files in a directory, without the program's output and its log.
  private static func leftovers(in directory: URL) throws -> [String] {
    try FileManager.default
      .contentsOfDirectory(atPath: directory.path(percentEncoded: false))
      .filter { name in ![".out", ".err", ".log"].contains { name.hasSuffix($0) } }
  }
}
