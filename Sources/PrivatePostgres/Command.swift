import Foundation

/// A program that is run to its end.
enum Command {
  struct Outcome: Sendable {
    let status: Int32
    let output: String
  }

  /// What runs a program in a session of its own, out of reach of the terminal's Ctrl-C, where
  /// there is such a thing.
  static var inSession: [String] {
    FileManager.default.isExecutableFile(atPath: "/usr/bin/setsid") ? ["setsid", "--wait"] : []
  }

  /// Runs a program from the root directory, for its user may not be able to reach ours.
  ///
  /// Its output (standard output and error) has to fit a pipe's buffer, 64 KB: it is read at the
  /// end.
  static func run(_ arguments: [String]) async throws -> Outcome {
    let process = Process()
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = arguments
    process.currentDirectoryURL = URL(filePath: "/")
    let pipe = Pipe()
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = pipe
    process.standardError = pipe
    let status = try await withCheckedThrowingContinuation { continuation in
      process.terminationHandler = { continuation.resume(returning: $0.terminationStatus) }
      do {
        try process.run()
      } catch {
        process.terminationHandler = nil
        continuation.resume(throwing: error)
      }
    }
    let output = try pipe.fileHandleForReading.readToEnd() ?? Data()
    return Outcome(
      status: status,
      output: String(decoding: output, as: UTF8.self)
        .trimmingCharacters(in: .whitespacesAndNewlines))
  }

  /// Runs a program that has to succeed, and returns its output.
  @discardableResult
  static func succeed(_ arguments: [String]) async throws -> String {
    let outcome = try await run(arguments)
    guard outcome.status == 0 else {
      throw PrivatePostgresError.commandFailed(
        command: arguments.joined(separator: " "), output: outcome.output)
    }
    return outcome.output
  }

  /// Whether a program of that name is to be found.
  static func exists(_ name: String) async -> Bool {
    (try? await run(["sh", "-c", "command -v \"$0\"", name]).status) == 0
  }
}
