import Foundation

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// `tenure serve` at one address, killed and started again as often as a test likes.
actor RestartedServer {
  let url: String
  let secret: String
  private(set) var kills = 0
  private var process: ServeProcess
  private let databaseURL: String
  private let settings: [String: String]
  private let directory: URL

  init(databaseURL: String, settings: [String: String], directory: URL) async throws {
    let process = try await ServeProcess.start(
      try TenureProgram.executable, databaseURL: databaseURL, environment: settings,
      in: directory)
    self.process = process
    url = process.url
    secret = process.secret
    self.databaseURL = databaseURL
    self.settings = settings
    self.directory = directory
  }

  /// Ends the server as `kill -9` does, and starts another one in its place.
  func killAndStartAgain() async throws {
    await process.kill()
    kills += 1
    process = try await ServeProcess.start(
      try TenureProgram.executable, databaseURL: databaseURL, environment: settings,
      port: URL(string: url)?.port, secret: secret, in: directory)
  }

  func stop() async { await process.stop() }
}
