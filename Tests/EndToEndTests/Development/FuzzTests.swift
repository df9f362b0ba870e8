import AppStore
import AppStoreSimulator
import Foundation
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("Texts from outside")
struct FuzzTests {
  /// How many inputs a target gets here; `tenure fuzz` gives it as many as there is time for.
  private static let inputCount = 400

  @Test("break nothing, and reach what lies behind the door", arguments: FuzzTarget.allCases)
  func inputs(of target: FuzzTarget) async throws {
    let seed: UInt64 = 20_261_122
    let subject = try target.subject(samples: FuzzSamples())
    var random = SplitMix64(seed: seed)
    var accepted = 0
    for number in 1...Self.inputCount {
      do {
        if try await subject.tryNext(&random) { accepted += 1 }
      } catch {
        Issue.record("input \(number) of seed \(seed): \(error)")
      }
    }
    // Neither all of them rubbish nor all of them harmless.
    #expect(accepted > Self.inputCount / 20, "seed \(seed)")
    #expect(accepted < Self.inputCount * 19 / 20, "seed \(seed)")
  }

  @Test("follow from the seed")
  func sameInputs() throws {
    let samples = try FuzzSamples()
    func inputs(_ seed: UInt64) throws -> [[UInt8]] {
      var random = SplitMix64(seed: seed)
      let subject = JSONFuzz(samples: samples)
      return (0..<50).map { _ in subject.input(&random).bytes }
    }
    #expect(try inputs(1) == inputs(1))
    #expect(try inputs(1) != inputs(2))
  }

  @Test("that are forged and accepted are a finding")
  func forgedAndAccepted() async throws {
    struct Gullible: FuzzSubject {
      func input(_ random: inout SplitMix64) -> FuzzInput { FuzzInput(bytes: [1], isForged: true) }
      func accepts(_ bytes: [UInt8]) -> Bool { true }
    }
    var random = SplitMix64(seed: 1)
    await #expect(throws: FuzzFinding.self) { try await Gullible().tryNext(&random) }
  }

  /// Scripts that misbehave, and the findings they cause.
  // swift-format-ignore
  @Test("a process that dies, hangs or grows is a finding", arguments: [
    ("echo fine",                                           nil),
    ("kill -SEGV $$",                                       "ended with"),
    ("echo broken >&2; exit 1",                             "broken"),
    ("exec sleep 600",                                           "longer than"),
    ("x=$(head -c 60000000 /dev/zero | tr '\\0' a); while :; do sleep 0.05; done", "MB"),
  ] as [(String, String?)])
  func watched(script: String, finding: String?) async throws {
    let url = FileManager.default.temporaryDirectory
      .appending(path: "tenure-fuzz-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: url) }
    let directory = FuzzDirectory(url: url)
    try Data("an input".utf8).write(to: directory.input)
    let shell = URL(filePath: "/bin/sh")
    let process = try ChildProcess(shell, ["-c", script], in: url)
    let patience: Duration = finding == "longer than" ? .milliseconds(200) : .seconds(120)
    let watch = FuzzWatch(
      process: process, directory: directory, longestInput: patience,
      largestMemory: 32 * 1024 * 1024)
    let outcome = try await watch.outcome()
    if let finding {
      #expect(outcome.finding?.contains(finding) == true, "\(outcome)")
    } else {
      #expect(outcome.finding == nil)
      #expect(outcome.output == "fine\n")
    }
    #expect(!process.isRunning)
  }
}
