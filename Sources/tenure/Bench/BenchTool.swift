import Foundation

/// A program of others that a benchmark needs.
struct BenchTool: Sendable {
  let executable: URL

  /// Looks for a program where it is usually installed.
  ///
  /// - Parameters:
  ///   - name: The program's name.
  ///   - package: What to install where it is missing, on Debian and Ubuntu.
  /// - Throws: ``BenchError/missingTool(name:package:)``.
  init(_ name: String, package: String) throws {
    let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
    // Debian's pgbench on the PATH is a wrapper that wants a cluster of the system's: the program
    // itself comes first.
    let folders = Self.postgresFolders + path.split(separator: ":").map(String.init)
    let file = folders.map { "\($0)/\(name)" }
      .first { FileManager.default.isExecutableFile(atPath: $0) }
    guard let file else { throw BenchError.missingTool(name: name, package: package) }
    executable = URL(filePath: file)
  }

  /// Where Debian keeps PostgreSQL's programs, the newest version first.
  private static var postgresFolders: [String] {
    let folder = "/usr/lib/postgresql"
    let versions = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
    return versions.compactMap(Int.init).sorted(by: >).map { "\(folder)/\($0)/bin" }
  }

  /// Runs the program, which has to succeed, and returns what it printed.
  func run(_ arguments: [String], in directory: URL) async throws -> String {
    let outcome = try await ChildProcess.run(executable, arguments, in: directory)
    guard outcome.status == 0 else {
      throw BenchError.toolFailed(
        name: executable.lastPathComponent, output: outcome.errors + outcome.output)
    }
    return outcome.output
  }
}

/// Why a benchmark could not be run.
enum BenchError: Error, CustomStringConvertible {
  case missingTool(name: String, package: String)
  case toolFailed(name: String, output: String)
  case unreadable(name: String, output: String)
  case databaseInUse
  case serverDidNotStart(log: String)
  case wrongAnswer(String)

  var description: String {
    switch self {
    case .missingTool(let name, let package):
      "\(name) is missing: install the package \(package) (apt-get install \(package))."
    case .toolFailed(let name, let output): "\(name) failed: \(Self.tail(output))"
    case .unreadable(let name, let output):
      "What \(name) printed can't be read: \(Self.tail(output))"
    case .databaseInUse:
      """
      The database has a schema of Tenure's, and the benchmarks fill theirs with invented \
      accounts: \
      name an empty database, or leave --database-url out.
      """
    case .serverDidNotStart(let log): "tenure serve did not start: \(Self.tail(log))"
    case .wrongAnswer(let what): "What was measured is wrong: \(what)"
    }
  }

  /// The last lines of what a program said, in one.
  private static func tail(_ output: String) -> String {
    output.split(separator: "\n").suffix(5).joined(separator: " | ")
  }
}
