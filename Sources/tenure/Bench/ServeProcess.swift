import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1

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
  private let process: ChildProcess

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
