import Foundation

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// The built program, run in a separate process as users do.
enum TenureProgram {
  /// Next to the test bundle, or to the program that runs it: both are built into one folder.
  static var executable: URL {
    get throws {
      let builds =
        [Bundle.main.executableURL].compactMap(\.self) + Bundle.allBundles.map(\.bundleURL)
      let candidates = builds.map { $0.deletingLastPathComponent().appending(path: "tenure") }
      let found = candidates.first {
        FileManager.default.isExecutableFile(atPath: $0.path(percentEncoded: false))
      }
      guard let found else { throw NotBuilt(searched: candidates) }
      return found
    }
  }

  struct NotBuilt: Error {
    let searched: [URL]
  }

  /// Runs a command to its end.
  static func run(_ arguments: String..., environment: [String: String] = [:]) async throws
    -> ChildProcess.Outcome
  {
    try await run(arguments: arguments, environment: environment)
  }

  /// Runs a command to its end.
  static func run(arguments: [String], environment: [String: String] = [:]) async throws
    -> ChildProcess.Outcome
  {
    try await withTemporaryDirectory { directory in
      try await ChildProcess.run(
        try executable, arguments, environment: environment, in: directory)
    }
  }
}

/// Makes a directory for the length of a test.
func withTemporaryDirectory<Value>(_ body: (URL) async throws -> Value) async throws -> Value {
  let directory = FileManager.default.temporaryDirectory
    .appending(path: "tenure-test-\(UUID().uuidString)")
  try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
  defer { try? FileManager.default.removeItem(at: directory) }
  return try await body(directory)
}
