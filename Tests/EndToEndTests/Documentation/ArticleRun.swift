import Foundation
import NIOCore
import NIOPosix
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// An article, and the preparation for its first block.
///
/// The blocks of an article are one session, as they are for a reader: `sh` is run by
/// bash, in order, in one shell whose variables and programs last to the article's end, and the
/// first command that fails ends it; `sql` is run by psql. The program `tenure` is the one that was
/// built with the tests. Ports in an article are replaced by free ones, and `db.example.com`
/// by the test's server.
struct ArticleRun: Sendable, CustomTestStringConvertible {
  /// The article, by its name.
  var name: String
  /// Whether the article goes on from an App Store and a Tenure that run.
  var needsServer = false
  var testDescription: String { name }

  /// The section of ``ConnectingAnAppServer`` that starts both.
  static let start = "Start an App Store and a Tenure of your own"

  /// The ports that articles name.
  private static let ports = ["8080", "8090", "9100"]
  /// Below those that systems give to outgoing connections.
  private static let freePorts = 20_000...32_000

  /// Runs the blocks and compares their output.
  ///
  /// - Parameters:
  ///   - environment: Where the database is.
  ///   - directory: Where the session is.
  /// - Throws: Errors that keep the blocks from being run; wrong output is an issue.
  func run(environment: [String: String], in directory: URL) async throws {
    let examples = try prelude + Article.named(name).examples.run
    let outputs = directory.appending(path: "answers")
    let session = directory.appending(path: "session")
    for folder in [outputs, session] {
      try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    }
    try "max-time = 120\n".write(
      to: directory.appending(path: ".curlrc"), atomically: true, encoding: .utf8)
    let script = directory.appending(path: "article.sh")
    try await text(of: examples).write(to: script, atomically: true, encoding: .utf8)

    let programs = try TenureProgram.executable.deletingLastPathComponent()
      .path(percentEncoded: false)
    let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
    let outcome = try await ChildProcess.run(
      URL(filePath: "/usr/bin/env"), ["bash", script.path(percentEncoded: false)],
      environment: environment.merging([
        "PATH": "\(programs):\(path)", "ANSWERS": outputs.path(percentEncoded: false),
        "SESSION": session.path(percentEncoded: false),
        "CURL_HOME": directory.path(percentEncoded: false), "TENURE_LOG_LEVEL": "error",
        "TENURE_APPSTORE_TIMEOUT_MS": "120000",
      ]) { $1 }, in: directory)

    var written = WrittenAnswer()
    for (number, example) in examples.enumerated() {
      let file = outputs.appending(path: "\(number)")
      guard let answer = try? String(contentsOf: file, encoding: .utf8) else { break }
      let isLast = !FileManager.default.fileExists(
        atPath: outputs.appending(path: "\(number + 1)").path(percentEncoded: false))
      if outcome.status != 0, isLast {
        Issue.record(
          "\(name), line \(example.block.line), fails: \(answer) \(outcome.errors.suffix(4000))")
      } else if let block = example.answer {
        let differences = written.differences(between: answer, and: block)
        #expect(differences == [], "\(name), line \(block.line)")
      }
    }
    #expect(outcome.status == 0, "\(name): \(outcome.errors.suffix(4000))")
  }

  private var prelude: [Example] {
    get throws {
      guard needsServer else { return [] }
      let blocks = try Article.named("ConnectingAnAppServer").examples.run.filter {
        $0.block.section == Self.start
      }
      guard !blocks.isEmpty else { throw Article.Missing(name: Self.start) }
      return blocks
    }
  }

  /// One script of all blocks, each writing its output to a separate file.
  private func text(of examples: [Example]) async throws -> String {
    var text = """
      set -euo pipefail
      # Programs that an article leaves running end with it.
      trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT
      cd "$SESSION"

      """
    for (number, example) in examples.enumerated() {
      var code = example.block.code
      if example.block.language == "sql" {
        code = "psql -X -q -v ON_ERROR_STOP=1 \"$SQL_URL\" << 'END'\n\(code)END\n"
      }
      text += "{\n\(code)} > \"$ANSWERS/\(number)\"\n"
    }
    for port in Self.ports { text = text.replacing(port, with: "\(try await Self.freePort())") }
    // An empty host: the environment says where.
    return text.replacing("db.example.com", with: "")
  }

  private static func freePort() async throws -> Int {
    while true {
      let port = Int.random(in: freePorts)
      // It would be replaced, too.
      guard !ports.contains(where: { "\(port)".contains($0) }) else { continue }
      let channel = try? await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
        .bind(host: "127.0.0.1", port: port).get()
      guard let channel else { continue }
      try await channel.close()
      return port
    }
  }
}
