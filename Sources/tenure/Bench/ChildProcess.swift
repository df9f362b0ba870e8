import Foundation

/// A program that we started, and that does not outlive its use.
///
/// Its output goes to files, which hold any amount and can be read while it runs.
final class ChildProcess: Sendable {
  /// How a program ended, and what it said.
  struct Outcome: Sendable {
    /// The exit status, or the number of the signal that ended it.
    let status: Int32
    let output: String
    let errors: String
  }

  /// How often it is looked whether the program has ended.
  private static let pollInterval: Duration = .milliseconds(20)

  private let process: Process
  private let outputFile: URL
  private let errorFile: URL

  /// Starts a program.
  ///
  /// - Parameters:
  ///   - executable: The program's file.
  ///   - arguments: Without the program's name.
  ///   - environment: Added to ours.
  ///   - directory: Where the files of its output are made.
  /// - Throws: What keeps the program from being started.
  init(
    _ executable: URL, _ arguments: [String], environment: [String: String] = [:],
    in directory: URL
  ) throws {
    let name = "\(executable.lastPathComponent)-\(UUID().uuidString.prefix(8))"
    outputFile = directory.appending(path: "\(name).out")
    errorFile = directory.appending(path: "\(name).err")
    process = Process()
    process.executableURL = executable
    process.arguments = arguments
    process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
    process.standardInput = FileHandle.nullDevice
    let (output, errors) = (try Self.create(outputFile), try Self.create(errorFile))
    defer {
      try? output.close()
      try? errors.close()
    }
    process.standardOutput = output
    process.standardError = errors
    try process.run()
  }

  private static func create(_ file: URL) throws -> FileHandle {
    try Data().write(to: file)
    return try FileHandle(forWritingTo: file)
  }

  var processID: Int32 { process.processIdentifier }

  var isRunning: Bool { process.isRunning }

  /// What the program wrote to standard output so far.
  var output: String { (try? String(contentsOf: outputFile, encoding: .utf8)) ?? "" }

  /// What the program wrote to standard error so far.
  var errors: String { (try? String(contentsOf: errorFile, encoding: .utf8)) ?? "" }

  /// Waits for the program's end; when the task is cancelled, ends it.
  func outcome() async throws -> Outcome {
    while process.isRunning {
      do {
        try await Task.sleep(for: Self.pollInterval)
      } catch {
        await kill()
        throw error
      }
    }
    return Outcome(status: process.terminationStatus, output: output, errors: errors)
  }

  /// Ends the program as `kill -9` does, and waits until it is gone.
  func kill() async {
    // The signal can't be refused, so this takes a moment, cancelled or not.
    while process.isRunning {
      Foundation.kill(process.processIdentifier, SIGKILL)
      await Task.yield()
    }
  }

  /// Asks the program to end, and ends it if it has not after a while.
  ///
  /// - Parameter patience: How long it may take; no time at all when the task is cancelled.
  func stop(within patience: Duration = .seconds(20)) async {
    Foundation.kill(process.processIdentifier, SIGTERM)
    let end = ContinuousClock.now + patience
    while process.isRunning, ContinuousClock.now < end {
      guard (try? await Task.sleep(for: Self.pollInterval)) != nil else { break }
    }
    await kill()
  }

  /// Runs a program to its end.
  static func run(
    _ executable: URL, _ arguments: [String], environment: [String: String] = [:],
    in directory: URL
  ) async throws -> Outcome {
    try await ChildProcess(executable, arguments, environment: environment, in: directory)
      .outcome()
  }
}
