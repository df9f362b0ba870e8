import AsyncHTTPClient
package import Foundation
import NIOCore
import NIOHTTP1

/// A child process that is stopped by its owner.
///
/// Its output goes to files, which take any amount and can be read while it runs.
package final class ChildProcess: Sendable {
  struct Outcome: Sendable {
    /// The exit status, or the number of the signal that ended the process.
    package let status: Int32
    package let output: String
    package let errors: String
  }

  private static let pollInterval: Duration = .milliseconds(20)

  private let process: Process
  private let outputFile: URL
  private let errorFile: URL

  /// Starts a program, with `environment` added to this process's.
  ///
  /// Its output files are created in `directory`.
  package init(
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

  var output: String { (try? String(contentsOf: outputFile, encoding: .utf8)) ?? "" }

  var errors: String { (try? String(contentsOf: errorFile, encoding: .utf8)) ?? "" }

  /// Waits for the end of the process; kills it if the task is cancelled.
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

  /// Kills the process with SIGKILL, and waits until it is gone.
  func kill() async {
    // SIGKILL can't be ignored, so this is short even in a cancelled task.
    while process.isRunning {
      Foundation.kill(process.processIdentifier, SIGKILL)
      await Task.yield()
    }
  }

  /// Sends SIGTERM, and SIGKILL if the process is still running after some time.
  ///
  /// If the task is cancelled, SIGKILL follows immediately.
  func stop(within patience: Duration = .seconds(20)) async {
    Foundation.kill(process.processIdentifier, SIGTERM)
    let end = ContinuousClock.now + patience
    while process.isRunning, ContinuousClock.now < end {
      guard (try? await Task.sleep(for: Self.pollInterval)) != nil else { break }
    }
    await kill()
  }

  static func run(
    _ executable: URL, _ arguments: [String], environment: [String: String] = [:],
    in directory: URL
  ) async throws -> Outcome {
    try await ChildProcess(executable, arguments, environment: environment, in: directory)
      .outcome()
  }
}

/// A `tenure serve` process on a free loopback port.
final class ServeProcess: Sendable {
  private static let startLimit: Duration = .seconds(180)
  private static let pollInterval: Duration = .milliseconds(20)
  /// A random port may be in use.
  private static let portAttempts = 10
  /// Below the ports that operating systems use for outgoing connections.
  private static let ports = 20_000...32_000

  /// The server's address, without a trailing slash.
  let url: String
  /// The secret of the server's API key with role `admin`.
  let secret: String
  let process: ChildProcess

  private init(url: String, secret: String, process: ChildProcess) {
    self.url = url
    self.secret = secret
    self.process = process
  }

  /// Starts the server and waits until it is ready; without a `port`, on a free one.
  ///
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

  /// Runs a server while a body runs.
  ///
  /// - Throws: ``BenchError/serverDidNotStart(log:)``, or an error of the body.
  static func run<Value>(
    _ executable: URL?, databaseURL: String, environment: [String: String] = [:],
    in directory: URL, _ body: (ServeProcess) async throws -> Value
  ) async throws -> Value {
    guard let executable else {
      throw BenchError.serverDidNotStart(log: "The path of this program is unknown.")
    }
    let server = try await start(
      executable, databaseURL: databaseURL, environment: environment, in: directory)
    do {
      let value = try await body(server)
      await server.stop()
      return value
    } catch {
      await server.stop()
      throw error
    }
  }

  /// Waits until the server is ready; returns false if it ended or took too long.
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

  /// Requests a path with the server's API key.
  func get(_ path: String) async throws -> BenchAnswer {
    try await execute(HTTPClientRequest(url: url + path))
  }

  /// Posts JSON to a path with the server's API key.
  func post(_ body: String, to path: String) async throws -> BenchAnswer {
    var request = HTTPClientRequest(url: url + path)
    request.method = .POST
    request.headers.add(name: "Content-Type", value: "application/json")
    request.body = .bytes(ByteBuffer(string: body))
    return try await execute(request)
  }

  private func execute(_ request: HTTPClientRequest) async throws -> BenchAnswer {
    var request = request
    request.headers.add(name: "Authorization", value: "Bearer \(secret)")
    let answer = try await HTTPClient.shared.execute(request, timeout: .seconds(30))
    let body = try await answer.body.collect(upTo: 1 << 20)
    return BenchAnswer(
      status: answer.status.code, headers: answer.headers, body: String(buffer: body))
  }

  /// The server's peak memory in bytes; nil where the system doesn't report it.
  var peakMemory: Int? { ProcessMemory.peak(of: process.processID) }

  var log: String { process.errors }

  func kill() async { await process.kill() }

  func stop() async { await process.stop() }
}

/// The memory of processes, on systems with `/proc`.
enum ProcessMemory {
  /// The peak memory in bytes; nil where the system doesn't report it.
  static func peak(of processID: Int32) -> Int? {
    guard let status = try? String(contentsOfFile: "/proc/\(processID)/status", encoding: .utf8),
      let match = status.firstMatch(of: /VmHWM:\s+([0-9]+) kB/), let kibibytes = Int(match.1)
    else { return nil }
    return kibibytes * 1024
  }

  /// Resets this process's peak memory to its current memory.
  ///
  /// See [proc(5)](https://man7.org/linux/man-pages/man5/proc_pid_clear_refs.5.html).
  static func resetPeak() {
    try? FileHandle(forWritingTo: URL(filePath: "/proc/self/clear_refs")).write(
      contentsOf: Data("5".utf8))
  }
}
