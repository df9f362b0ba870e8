import AppStoreSimulator
import ArgumentParser
import Foundation

/// `tenure fuzz`: tries to break whatever reads texts from outside.
struct FuzzCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "fuzz", abstract: "Tries to break what reads texts from outside.",
    discussion: """
      Changes samples in ways that follow from a seed, and gives them to the parsers: json, jws, \
      notification, verify-receipt, receipt. Each target runs in a process of its own, which is \
      watched: it must not die, take longer than \(FuzzWatch.longestInput) for an input, or need \
      more than \(FuzzWatch.largestMemory >> 20) MB; what is forged must be refused, and what is \
      read must be what is written of it. Only signatures differ from run to run, so an input that \
      breaks something is kept: --replay tries it again.
      """,
    shouldDisplay: false)

  @Option(help: "What to try; all, one after the other, if it is left out.")
  var target: FuzzTarget?

  @Option(help: "How long each target is tried.")
  var seconds = 60

  @Option(help: "What the inputs follow from; printed where it is left out.")
  var seed: UInt64?

  @Option(help: "A folder with more samples: JSON files, for example Tests/AppStoreTests/Samples.")
  var samples: String?

  @Option(help: "The folder of an input that was kept: tries it once more, in this process.")
  var replay: String?

  @Option(help: .hidden)
  var worker: String?

  func validate() throws {
    guard (1...86_400).contains(seconds) else {
      throw ValidationError("--seconds is from 1 to 86400.")
    }
    guard replay == nil || target != nil else {
      throw ValidationError("--replay needs --target: the parser that the input is for.")
    }
  }

  func run() async throws {
    let seed = seed ?? UInt64.random(in: 1...999_999_999)
    if let target, let worker {
      try await work(target, seed: seed, in: FuzzDirectory(url: URL(filePath: worker)))
    } else if let target, let replay {
      try await tryAgain(target, FuzzDirectory(url: URL(filePath: replay)))
    } else {
      try await watch(target.map { [$0] } ?? FuzzTarget.allCases, seed: seed)
    }
  }

  private func work(_ target: FuzzTarget, seed: UInt64, in directory: FuzzDirectory) async throws {
    let subject = try target.subject(samples: FuzzSamples(folder: samples))
    let run = FuzzRun(target: target, subject: subject, directory: directory)
    let summary = try await run.run(seed: seed, for: .seconds(seconds))
    print("\(summary.inputs) inputs, \(summary.accepted) of them accepted")
  }

  private func tryAgain(_ target: FuzzTarget, _ directory: FuzzDirectory) async throws {
    let context = try String(contentsOf: directory.context, encoding: .utf8)
    let subject = try target.subject(
      samples: FuzzSamples(folder: samples), context: context.isEmpty ? nil : context)
    let isAccepted = try await subject.accepts(Array(Data(contentsOf: directory.input)))
    print(isAccepted ? "accepted" : "refused")
  }

  private func watch(_ targets: [FuzzTarget], seed: UInt64) async throws {
    print("seed \(seed)")
    guard let executable = Bundle.main.executableURL else {
      throw FuzzFinding("The path of this program is unknown.")
    }
    var isBroken = false
    for target in targets {
      let url = FileManager.default.temporaryDirectory
        .appending(path: "tenure-fuzz-\(target.rawValue)-\(UUID().uuidString.prefix(8))")
      let path = url.path(percentEncoded: false)
      try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
      let arguments = [
        "fuzz", "--target", target.rawValue, "--seconds", "\(seconds)", "--seed", "\(seed)",
        "--worker", path,
      ]
      let process = try ChildProcess(
        executable, arguments + (samples.map { ["--samples", $0] } ?? []), in: url)
      let outcome = try await FuzzWatch(process: process, directory: FuzzDirectory(url: url))
        .outcome()
      if let finding = outcome.finding {
        isBroken = true
        print("\(target.rawValue): \(finding)")
        print("  tenure fuzz --target \(target.rawValue) --replay \(path)")
      } else {
        let memory = outcome.memory.map { ", at most \($0 >> 20) MB" } ?? ""
        let summary = outcome.output.trimmingCharacters(in: .whitespacesAndNewlines)
        print("\(target.rawValue): \(summary)\(memory)")
        try FileManager.default.removeItem(at: url)
      }
    }
    if isBroken { throw ExitCode.failure }
  }
}
