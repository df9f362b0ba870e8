import Foundation

/// The HTTP load generator wrk: keep-alive connections, each with one request under way.
struct Wrk: Sendable {
  /// What the script below prints at the end.
  private struct Summary: Decodable {
    var requests: Double
    var microseconds: Double
    var errors: Int
    var p50: Double
    var p99: Double
  }

  private let tool: BenchTool
  private let directory: URL

  /// - Parameter directory: For its script.
  /// - Throws: ``BenchError/missingTool(name:package:)``.
  init(directory: URL) throws {
    tool = try BenchTool("wrk", package: "wrk")
    self.directory = directory
  }

  /// Asks for the entitlements of random accounts as fast as they are answered.
  ///
  /// - Parameters:
  ///   - server: Which is asked.
  ///   - accounts: The numbers of the accounts there are.
  ///   - query: What follows the path: nothing, or a query with its question mark.
  ///   - connections: How many requests are under way at a time.
  ///   - seconds: How long.
  /// - Returns: The answers a second, and how long they took.
  /// - Throws: ``BenchError``, also when a request failed.
  func readEntitlements(
    from server: ServeProcess, accounts: ClosedRange<Int>, query: String = "", connections: Int,
    seconds: Int
  ) async throws -> Measurement {
    let file = directory.appending(path: "wrk.lua")
    try script(server, accounts, query).write(to: file, atomically: true, encoding: .utf8)
    let output = try await tool.run(
      [
        "--threads", "2", "--connections", "\(connections)", "--duration", "\(seconds)s",
        "--script", file.path(percentEncoded: false), server.url,
      ], in: directory)
    guard let line = output.split(separator: "\n").last(where: { $0.hasPrefix("{") }),
      let summary = try? JSONDecoder().decode(Summary.self, from: Data(line.utf8))
    else { throw BenchError.unreadable(name: "wrk", output: output) }
    guard summary.errors == 0 else {
      throw BenchError.wrongAnswer("\(summary.errors) of \(Int(summary.requests)) reads failed")
    }
    return Measurement(
      rate: summary.requests / (summary.microseconds / 1_000_000),
      p50: .microseconds(summary.p50), p99: .microseconds(summary.p99))
  }

  /// Requests are put together by hand, since wrk takes as long for its own formatting as for all
  /// the rest.
  private func script(_ server: ServeProcess, _ accounts: ClosedRange<Int>, _ query: String)
    -> String
  {
    """
    local threads = 0
    function setup(thread)
      threads = threads + 1
      thread:set("seed", os.time() * 64 + threads)
    end
    function init(arguments)
      math.randomseed(seed)
    end
    local rest = "/entitlements\(query) HTTP/1.1\\r\\nHost: localhost\\r\\n" ..
      "Authorization: Bearer \(server.secret)\\r\\n\\r\\n"
    function request()
      local account = math.random(\(accounts.lowerBound), \(accounts.upperBound))
      return "GET /v1/accounts/" .. account .. rest
    end
    function done(summary, latency, requests)
      local errors = summary.errors
      io.write(string.format(
        '{"requests": %d, "microseconds": %d, "errors": %d, "p50": %d, "p99": %d}\\n',
        summary.requests, summary.duration,
        errors.connect + errors.read + errors.write + errors.status + errors.timeout,
        latency:percentile(50), latency:percentile(99)))
    end
    """
  }
}
