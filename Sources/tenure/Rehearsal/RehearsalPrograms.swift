import Foundation
import Subscriptions

/// Tenure as an operator runs it: a server and two workers, each a process of its own.
actor RehearsalPrograms {
  private static let workers = 2

  /// The server's address, the same for all that follow each other.
  let url: String
  /// The secret of its API key, whose role is `admin`.
  let secret: String
  private let executable: URL
  private let environment: [String: String]
  private let directory: URL
  private var server: ServeProcess
  private var running: [ChildProcess] = []

  /// Starts them all.
  ///
  /// - Parameters:
  ///   - executable: The program `tenure`.
  ///   - environment: Their settings.
  ///   - directory: For their logs.
  /// - Throws: What keeps one from being started.
  init(_ executable: URL, environment: [String: String], in directory: URL) async throws {
    self.executable = executable
    self.environment = environment
    self.directory = directory
    server = try await Self.start(executable, environment, nil, UUID().uuidString, directory)
    url = server.url
    secret = server.secret
    do {
      for _ in 0..<Self.workers { running.append(try startWorker()) }
    } catch {
      await stop()
      throw error
    }
  }

  private static func start(
    _ executable: URL, _ environment: [String: String], _ port: Int?, _ secret: String,
    _ directory: URL
  ) async throws -> ServeProcess {
    try await ServeProcess.start(
      executable, databaseURL: environment["DATABASE_URL"] ?? "", environment: environment,
      port: port, secret: secret, in: directory)
  }

  private func startWorker() throws -> ChildProcess {
    try ChildProcess(executable, ["work"], environment: environment, in: directory)
  }

  /// Ends a worker as `kill -9` does, and starts another one in its place.
  func killWorker() async throws {
    await running[0].kill()
    running[0] = try startWorker()
  }

  /// Stops the workers and then the server, one after the other, and starts each again: as with a
  /// new version of the program.
  func replaceAll() async throws {
    for number in running.indices {
      await running[number].stop()
      running[number] = try startWorker()
    }
    await server.stop()
    server = try await Self.start(
      executable, environment, URL(string: url)?.port, secret, directory)
  }

  /// Runs a command of the program to its end.
  func run(_ arguments: [String]) async throws -> ChildProcess.Outcome {
    try await ChildProcess.run(executable, arguments, environment: environment, in: directory)
  }

  func stop() async {
    await server.stop()
    for worker in running { await worker.stop() }
  }
}
