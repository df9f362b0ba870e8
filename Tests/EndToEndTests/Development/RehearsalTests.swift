import Foundation
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// `tenure rehearse`, with few customers: everything that happens to many happens to them.
@Suite("The rehearsal of the Monday")
struct RehearsalTests {
  @Test("imports, upgrades, fails over and kills, and in the end everybody has what is right")
  func isWell() async throws {
    let outcome = try await TenureProgram.run("rehearse", "--owners", "150", "--newcomers", "5")
    #expect(outcome.status == 0, "\(outcome.output)\(outcome.errors)")
    for step in [
      "import finished: 150 owners", "compare finds no difference", "schema was upgraded in",
      "database was killed", "worker was killed", "compared with the truth: 0 differences",
    ] {
      // The story is broken into lines.
      let text = outcome.output.split { $0.isWhitespace }.joined(separator: " ")
      #expect(text.contains(step), "\(step) is missing from: \(text)")
    }
  }

  @Test(
    "ended by a signal leaves no process and no file behind",
    arguments: [SIGINT, SIGTERM])
  func leavesNothing(signal: Int32) async throws {
    try await withTemporaryDirectory { directory in
      let rehearsal = try ChildProcess(
        try TenureProgram.executable, ["rehearse", "--owners", "2000", "--newcomers", "0"],
        in: directory)
      let id = rehearsal.processID
      let files = FileManager.default.temporaryDirectory.appending(path: "tenure-rehearsal-\(id)")
      let end = ContinuousClock.now + .seconds(240)
      // Confirming is under way: everything has been started.
      while rehearsal.isRunning, !rehearsal.output.contains("tenure import finished"),
        ContinuousClock.now < end
      {
        try await Task.sleep(for: .milliseconds(100))
      }
      let children = try await Self.children(of: id, in: directory)
      #expect(children.count { $0.command.contains("tenure serve") } == 1, "\(children)")
      #expect(children.count { $0.command.contains("tenure work") } == 2, "\(children)")
      kill(id, signal)
      let outcome = try await rehearsal.outcome()
      #expect(outcome.status == 130, "\(outcome.errors)")
      for child in children {
        // A server's watchdog exits a moment after it.
        let end = ContinuousClock.now + .seconds(20)
        while kill(child.id, 0) == 0, ContinuousClock.now < end {
          try await Task.sleep(for: .milliseconds(20))
        }
        #expect(kill(child.id, 0) != 0, "\(child.command) still runs")
      }
      #expect(!FileManager.default.fileExists(atPath: files.path(percentEncoded: false)))
    }
  }

  private static func children(of parent: Int32, in directory: URL) async throws
    -> [(id: Int32, command: String)]
  {
    let list = try await ChildProcess.run(
      URL(filePath: "/bin/ps"), ["-A", "-o", "pid=,ppid=,args="], in: directory)
    return list.output.split(separator: "\n").compactMap { line in
      let parts = line.split(separator: " ", maxSplits: 2)
      guard parts.count == 3, Int32(parts[1]) == parent, let id = Int32(parts[0]) else {
        return nil
      }
      return (id, String(parts[2]))
    }
  }

  // swift-format-ignore
  @Test("a long wait says how far it has come and how long it may take", arguments: [
    // seconds  waiting  line
    (  9,         900,   nil),
    ( 10,        1000,   "0 of 1000 owners confirmed."),
    ( 10,         900,   "100 of 1000 owners confirmed, about 90 seconds left."),
    ( 10,         500,   "500 of 1000 owners confirmed, about 10 seconds left."),
    (600,         400,   "600 of 1000 owners confirmed, about 7 minutes left."),
    ( 10,           0,   nil),
  ] as [(Int, Int, String?)])
  func progress(seconds: Int, waiting: Int, line: String?) {
    let begin = ContinuousClock.now
    var progress = RehearsalProgress(total: 1000, from: begin)
    let now = begin + .seconds(seconds)
    let found = progress.line(waiting: waiting, at: now)
    #expect(found == line)
    // Not again before the next one is due.
    if line != nil { #expect(progress.line(waiting: waiting, at: now + .seconds(9)) == nil) }
  }
}
