import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1

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

/// `tenure serve` as a process of its own, on a free port of the loopback address.
final class ServeProcess: Sendable {
  /// How long it may take until the server is ready.
  private static let startLimit: Duration = .seconds(180)
  private static let pollInterval: Duration = .milliseconds(20)
  /// Somebody else may listen on a port that was drawn.
  private static let portAttempts = 10
  /// Below the ports that the systems give to outgoing connections.
  private static let ports = 20_000...32_000

  /// The server's address, without a slash at its end.
  let url: String
  /// The secret of its one API key, whose role is `admin`.
  let secret: String
  let process: ChildProcess

  private init(url: String, secret: String, process: ChildProcess) {
    self.url = url
    self.secret = secret
    self.process = process
  }

  /// Starts the server and waits until it is ready.
  ///
  /// - Parameters:
  ///   - executable: The program `tenure`.
  ///   - databaseURL: Its database.
  ///   - environment: Its other settings.
  ///   - port: Where to listen; nil: on a free one.
  ///   - secret: Of its API key.
  ///   - directory: For its log.
  /// - Returns: The server, ready.
  /// - Throws: ``BenchError/serverDidNotStart(log:)``.
  static func start(
    _ executable: URL, databaseURL: String, environment: [String: String] = [:],
    port: Int? = nil, secret: String = UUID().uuidString, in directory: URL
  ) async throws -> ServeProcess {
    var settings = [
      "DATABASE_URL": databaseURL, "TENURE_API_KEYS": "bench:admin:\(secret)",
      "TENURE_LOG_LEVEL": "warning",
    ]
    if environment["TENURE_APPS"] == nil { settings["TENURE_BUNDLE_IDS"] = "com.example.tenure" }
    settings.merge(environment) { $1 }
    var log = ""
    for _ in 1...portAttempts {
      let port = port ?? Int.random(in: ports)
      let process = try ChildProcess(
        executable, ["serve", "--host", "127.0.0.1", "--port", "\(port)"],
        environment: settings, in: directory)
      let server = ServeProcess(
        url: "http://127.0.0.1:\(port)", secret: secret, process: process)
      do {
        if try await server.isReady() { return server }
      } catch {
        await process.kill()
        throw error
      }
      log = process.errors
      guard log.contains("in use") else { break }
    }
    throw BenchError.serverDidNotStart(log: log)
  }

  /// Runs the server with its usual settings for as long as the body does.
  ///
  /// - Parameters:
  ///   - executable: The program `tenure`; nil: it is not known where it is.
  ///   - databaseURL: Its database.
  ///   - directory: For its log.
  ///   - body: Is given the server, ready.
  /// - Returns: What the body does.
  /// - Throws: ``BenchError/serverDidNotStart(log:)``, or what the body throws.
  static func run<Value>(
    _ executable: URL?, databaseURL: String, in directory: URL,
    _ body: (ServeProcess) async throws -> Value
  ) async throws -> Value {
    guard let executable else {
      throw BenchError.serverDidNotStart(log: "The path of this program is unknown.")
    }
    let server = try await start(executable, databaseURL: databaseURL, in: directory)
    do {
      let value = try await body(server)
      await server.stop()
      return value
    } catch {
      await server.stop()
      throw error
    }
  }

  /// Waits until the server is ready; false if it has ended instead.
  private func isReady() async throws -> Bool {
    let end = ContinuousClock.now + Self.startLimit
    while process.isRunning, ContinuousClock.now < end {
      let answer = try? await HTTPClient.shared.execute(
        HTTPClientRequest(url: "\(url)/readyz"), timeout: .seconds(5))
      if answer?.status == .ok { return true }
      try await Task.sleep(for: Self.pollInterval)
    }
    await process.kill()
    return false
  }

  /// Asks the server for something, with its key.
  ///
  /// - Parameter path: From the first slash on.
  /// - Returns: The answer's status and body.
  /// - Throws: What kept an answer from coming.
  func get(_ path: String) async throws -> (status: UInt, body: String) {
    var request = HTTPClientRequest(url: url + path)
    request.headers.add(name: "Authorization", value: "Bearer \(secret)")
    let answer = try await HTTPClient.shared.execute(request, timeout: .seconds(30))
    let body = try await answer.body.collect(upTo: 1 << 20)
    return (answer.status.code, String(buffer: body))
  }

  /// In bytes, the most memory that the server has had; nil where the system does not tell.
  var peakMemory: Int? { ProcessMemory.peak(of: process.processID) }

  /// What the server has logged so far.
  var log: String { process.errors }

  /// Ends the server as `kill -9` does.
  func kill() async { await process.kill() }

  /// Stops the server as an operator does.
  func stop() async { await process.stop() }
}

/// The memory of processes, where the system tells it.
enum ProcessMemory {
  /// In bytes, the most that a process has had; nil where the system does not tell.
  static func peak(of processID: Int32) -> Int? {
    guard let status = try? String(contentsOfFile: "/proc/\(processID)/status", encoding: .utf8),
      let match = status.firstMatch(of: /VmHWM:\s+([0-9]+) kB/), let kibibytes = Int(match.1)
    else { return nil }
    return kibibytes * 1024
  }

  /// Forgets what this process has had: its peak begins with what it has now.
  ///
  /// See [proc(5)](https://man7.org/linux/man-pages/man5/proc_pid_clear_refs.5.html).
  static func resetPeak() {
    try? FileHandle(forWritingTo: URL(filePath: "/proc/self/clear_refs")).write(
      contentsOf: Data("5".utf8))
  }
}
