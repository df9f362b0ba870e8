import AppStoreSimulator

import Foundation

/// Where a run keeps the input that is tried now, for whoever finds it dead.
struct FuzzDirectory: Sendable {
  let url: URL

  var input: URL { url.appending(path: "input") }
  var context: URL { url.appending(path: "context") }
}

/// One target, tried in this process until its time is over: it dies of what it finds.
struct FuzzRun: Sendable {
  let target: FuzzTarget
  let subject: any FuzzSubject
  let directory: FuzzDirectory

  /// What came of a run that nothing was found in.
  struct Summary: Sendable, Codable {
    var inputs = 0
    var accepted = 0
  }

  /// Tries inputs that follow from a seed.
  ///
  /// - Throws: ``FuzzFinding``, or what keeps the input from being written down.
  func run(seed: UInt64, for duration: Duration) async throws -> Summary {
    try Data(subject.context.utf8).write(to: directory.context)
    try Data().write(to: directory.input)
    let file = try FileHandle(forWritingTo: directory.input)
    defer { try? file.close() }
    var random = SplitMix64(seed: seed)
    var summary = Summary()
    let end = ContinuousClock.now + duration
    while ContinuousClock.now < end {
      let isAccepted = try await subject.tryNext(&random) { input in
        try file.seek(toOffset: 0)
        try file.write(contentsOf: input.bytes)
        try file.truncate(atOffset: UInt64(input.bytes.count))
      }
      summary.inputs += 1
      if isAccepted { summary.accepted += 1 }
    }
    return summary
  }
}

/// Watches a process that tries inputs: whether it dies, hangs, or grows.
struct FuzzWatch: Sendable {
  /// How long one input may take; a good one takes a thousandth of a second.
  static let longestInput: Duration = .seconds(10)
  /// How much the process may need, in bytes.
  ///
  /// Inputs are smaller than a megabyte, and the program itself takes less than a hundred.
  static let largestMemory = 256 * 1024 * 1024
  /// How often it is looked at.
  private static let interval: Duration = .milliseconds(100)

  let process: ChildProcess
  let directory: FuzzDirectory
  var longestInput = Self.longestInput
  var largestMemory = Self.largestMemory

  /// How it ended.
  struct Outcome: Sendable {
    /// What was found, in one sentence; nil for nothing.
    var finding: String?
    /// In bytes; nil where the system doesn't tell.
    var memory: Int?
    /// What the process printed.
    var output: String
  }

  /// Waits for the process, which is ended as soon as something is found.
  func outcome() async throws -> Outcome {
    let clock = ContinuousClock()
    var memory: Int?
    var (input, since) = (modified, clock.now)
    func found(_ finding: String) async -> Outcome {
      await process.kill()
      return Outcome(finding: finding, memory: memory, output: process.output)
    }
    while process.isRunning {
      do {
        try await Task.sleep(for: Self.interval)
      } catch {
        await process.kill()
        throw error
      }
      if let peak { memory = max(memory ?? 0, peak) }
      if let memory, memory > largestMemory {
        return await found("The process needed more than \(largestMemory >> 20) MB.")
      }
      if modified != input { (input, since) = (modified, clock.now) }
      if clock.now - since > longestInput {
        return await found("An input took longer than \(longestInput).")
      }
    }
    let end = try await process.outcome()
    let finding = end.status == 0 ? nil : "The process ended with \(end.status): \(end.errors)"
    return Outcome(finding: finding, memory: memory, output: end.output)
  }

  /// When the last input was begun.
  private var modified: Date? {
    let path = directory.input.path(percentEncoded: false)
    return try? FileManager.default.attributesOfItem(atPath: path)[.modificationDate] as? Date
  }

  /// The most memory that the process has needed, in bytes.
  private var peak: Int? {
    let path = "/proc/\(process.processID)/status"
    guard let status = try? String(contentsOfFile: path, encoding: .utf8),
      let line = status.split(separator: "\n").first(where: { $0.hasPrefix("VmHWM:") }),
      let kilobytes = line.split(whereSeparator: \.isWhitespace).dropFirst().first
    else { return nil }
    return Int(kilobytes).map { $0 * 1024 }
  }
}

/// What `tenure fuzz` tries to break.
enum FuzzTarget: String, CaseIterable, Sendable {
  /// The reader of JSON, and the payloads that are read of it.
  case json
  /// Signed transactions, renewal infos and app transactions.
  case jws
  /// Notifications with signed parts.
  case notification
  /// Answers of verifyReceipt.
  case verifyReceipt = "verify-receipt"
  /// What is submitted as a receipt, whether or not Apple is asked about it.
  case receipt
}

/// A text from nowhere, and what must become of it.
struct FuzzInput: Sendable {
  var bytes: [UInt8]
  /// Whether accepting it would be a hole.
  var isForged = false
}

/// A part of the program that takes texts from outside.
protocol FuzzSubject: Sendable {
  /// What is needed to try an input again, beside the input: for one that trusts a root, that.
  var context: String { get }
  /// Makes an input, the same for the same state of the generator.
  func input(_ random: inout SplitMix64) throws -> FuzzInput
  /// Takes an input.
  ///
  /// - Returns: Whether it was accepted.
  /// - Throws: ``FuzzFinding`` where what was understood contradicts itself.
  func accepts(_ bytes: [UInt8]) async throws -> Bool
}

/// What must not happen, in one sentence.
struct FuzzFinding: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}

extension FuzzTarget {
  /// The subject with its samples.
  ///
  /// - Parameters:
  ///   - samples: More of them than are built in.
  ///   - context: What an earlier run kept of its own; nil for a new one.
  /// - Returns: What is tried.
  /// - Throws: What keeps it from being made.
  func subject(samples: FuzzSamples, context: String? = nil) throws -> any FuzzSubject {
    switch self {
    case .json: JSONFuzz(samples: samples)
    case .jws: try JWSFuzz(samples: samples, context: context)
    case .notification: try NotificationFuzz(samples: samples, context: context)
    case .verifyReceipt: VerifyReceiptFuzz(samples: samples)
    case .receipt: try ReceiptFuzz(context: context)
    }
  }
}

extension FuzzSubject {
  var context: String { "" }

  /// Makes one input after the other, and takes it.
  ///
  /// - Parameters:
  ///   - random: Where the inputs come from.
  ///   - willTry: Is told of each input before it is taken.
  /// - Returns: Whether it was accepted.
  /// - Throws: ``FuzzFinding``, or what `willTry` throws.
  func tryNext(
    _ random: inout SplitMix64, willTry: (FuzzInput) throws -> Void = { _ in }
  ) async throws -> Bool {
    let input = try input(&random)
    try willTry(input)
    let isAccepted = try await accepts(input.bytes)
    if isAccepted, input.isForged { throw FuzzFinding("A forged text was accepted.") }
    return isAccepted
  }
}
