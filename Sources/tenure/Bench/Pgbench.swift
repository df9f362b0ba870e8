import Foundation

/// PostgreSQL's own load generator: what the database answers with nothing of ours in between.
struct Pgbench: Sendable {
  private let tool: BenchTool
  private let databaseURL: String
  private let directory: URL

  /// - Parameters:
  ///   - databaseURL: The database that is asked.
  ///   - directory: For its script.
  /// - Throws: ``BenchError/missingTool(name:package:)``.
  init(databaseURL: String, directory: URL) throws {
    tool = try BenchTool("pgbench", package: "postgresql")
    self.databaseURL = databaseURL
    self.directory = directory
  }

  /// Runs a script again and again, its statements prepared.
  ///
  /// - Parameters:
  ///   - script: In pgbench's language.
  ///   - clients: How many connections.
  ///   - times: How often each of them runs it. (Not how long: pgbench's clock is a signal, which
  ///     children of Swift's threads have blocked.)
  /// - Returns: The scripts that were run a second.
  /// - Throws: ``BenchError``.
  func run(_ script: String, clients: Int, times: Int) async throws -> Measurement {
    let file = directory.appending(path: "pgbench.sql")
    try script.write(to: file, atomically: true, encoding: .utf8)
    let output = try await tool.run(
      [
        "--protocol=prepared", "--no-vacuum", "--file=\(file.path(percentEncoded: false))",
        "--client=\(clients)", "--jobs=2", "--transactions=\(times)", databaseURL,
      ], in: directory)
    guard let match = output.firstMatch(of: /tps = ([0-9.]+)/), let rate = Double(match.1) else {
      throw BenchError.unreadable(name: "pgbench", output: output)
    }
    return Measurement(rate: rate)
  }
}
