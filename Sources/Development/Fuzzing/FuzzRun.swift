package import AppStoreSimulator

package import Foundation

/// The directory in which a run keeps its current input, for the case that it crashes.
package struct FuzzDirectory: Sendable {
  let url: URL

  package init(url: URL) {
    self.url = url
  }

  package var input: URL { url.appending(path: "input") }
  package var context: URL { url.appending(path: "context") }
}

/// A run of one target in this process, which crashes if the target does.
package struct FuzzRun: Sendable {
  let subject: any FuzzSubject
  let directory: FuzzDirectory

  package init(subject: any FuzzSubject, directory: FuzzDirectory) {
    self.subject = subject
    self.directory = directory
  }

  /// The result of a run without findings.
  package struct Summary: Sendable {
    package var inputs = 0
    package var accepted = 0
  }

  /// Tries inputs derived from a seed.
  ///
  /// - Throws: ``FuzzFinding``, or an error of writing the input.
  package func run(seed: UInt64, for duration: Duration) async throws -> Summary {
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

/// Watches a fuzzing process for crashes, hangs and growth.
package struct FuzzWatch: Sendable {
  /// The limit for one input; usual ones take about a millisecond.
  package static let longestInput: Duration = .seconds(10)
  /// The limit of the process's memory in bytes.
  ///
  /// Inputs are smaller than a megabyte, and the program itself needs less than a hundred.
  package static let largestMemory = 256 * 1024 * 1024
  private static let interval: Duration = .milliseconds(100)

  let process: ChildProcess
  let directory: FuzzDirectory
  let longestInput: Duration
  let largestMemory: Int

  package init(
    process: ChildProcess, directory: FuzzDirectory, longestInput: Duration = Self.longestInput,
    largestMemory: Int = Self.largestMemory
  ) {
    self.process = process
    self.directory = directory
    self.longestInput = longestInput
    self.largestMemory = largestMemory
  }

  package struct Outcome: Sendable {
    /// One sentence; nil if nothing was found.
    package var finding: String?
    /// Peak memory in bytes; nil where the system doesn't report it.
    package var memory: Int?
    package var output: String
  }

  /// Waits for the process, which is killed as soon as something is found.
  package func outcome() async throws -> Outcome {
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
      if let peak = ProcessMemory.peak(of: process.processID) { memory = max(memory ?? 0, peak) }
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

  /// The time of the last input.
  private var modified: Date? {
    let path = directory.input.path(percentEncoded: false)
    return try? FileManager.default.attributesOfItem(atPath: path)[.modificationDate] as? Date
  }
}

/// The parsers that `tenure fuzz` tests.
package enum FuzzTarget: String, CaseIterable, Sendable {
  /// The JSON reader and the payloads decoded from it.
  case json
  /// Signed transactions, renewal infos and app transactions.
  case jws
  /// Notifications with signed parts.
  case notification
  /// Responses of verifyReceipt.
  case verifyReceipt = "verify-receipt"
  /// Submitted receipts, verified locally or only parsed.
  case receipt
}

/// An input for a target.
package struct FuzzInput: Sendable {
  var bytes: [UInt8]
  /// Whether accepting it would be a security hole.
  var isForged = false
}

/// A parser under test.
package protocol FuzzSubject: Sendable {
  /// Needed to try an input again: the root certificate, for a subject that trusts one.
  var context: String { get }
  /// Makes an input, determined by the generator's state.
  func input(_ random: inout SplitMix64) throws -> FuzzInput
  /// Parses an input and returns whether it was accepted.
  ///
  /// - Throws: ``FuzzFinding`` if the result contradicts itself.
  func accepts(_ bytes: [UInt8]) async throws -> Bool
}

/// A fault of a parser, in one sentence.
package struct FuzzFinding: Error, CustomStringConvertible {
  package let description: String

  package init(_ description: String) { self.description = description }
}

extension FuzzTarget {
  /// The subject with its samples, and the context of an earlier run if an input is tried again.
  package func subject(samples: FuzzSamples, context: String? = nil) throws -> any FuzzSubject {
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

  /// Makes an input and parses it, and returns whether it was accepted; calls `willTry` before.
  ///
  /// - Throws: ``FuzzFinding``, or an error of `willTry`.
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
