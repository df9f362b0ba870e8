import Foundation

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
