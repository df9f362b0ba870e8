import Foundation
import Logging
import ScratchDatabases
import Testing

@testable import tenure

/// What the programs write at each level holds no secret of the settings.
@Suite("Programs log no secrets")
struct SecretLogTests {
  /// Long enough for a program to start its services, which describe themselves in the log.
  private static let life: Duration = .milliseconds(1500)

  private static let commands: [(arguments: [String], runsOn: Bool)] = [
    (["serve", "--port", "0"], true), (["serve", "--port", "0", "--with-worker"], true),
    (["work"], true), (["poll", "--once"], false), (["migrate"], false), (["doctor"], false),
    (["jobs"], false), (["audit"], false), (["metrics"], false),
  ]

  @Test(arguments: Logger.Level.allCases)
  func `no program writes a secret`(level: Logger.Level) async throws {
    try await withScratchDatabase { database in
      // Trust is what the private servers go by: any password is right.
      let url = Self.url(database.uri)
      let turn = Logger.Level.allCases.firstIndex(of: level) ?? 0
      for (number, command) in Self.commands.enumerated() {
        // Both formats at each level, shared out over the programs.
        let isJSON = (number + turn) % 2 == 0
        let environment = SecretSettings.environment(databaseURL: url).merging([
          "TENURE_LOG_LEVEL": level.rawValue, "TENURE_LOG_FORMAT": isJSON ? "json" : "text",
          "TENURE_POLLS_PER_HOUR": "0", "TENURE_APPSTORE_TIMEOUT_MS": "100",
          "TENURE_APPSTORE_API_URL": Self.nowhere, "TENURE_APPSTORE_SANDBOX_API_URL": Self.nowhere,
          "TENURE_APPSTORE_VERIFY_RECEIPT_URL": Self.nowhere,
          "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL": Self.nowhere,
        ]) { $1 }
        let awaited = command.arguments[0] == "serve" && level <= .info ? "Serving" : nil
        let text = try await Self.output(of: command, environment, awaiting: awaited)
        for secret in SecretSettings.all {
          #expect(!text.contains(secret), "\(command.arguments) at \(level): \(secret)")
        }
        if let awaited { #expect(text.contains(awaited)) }
      }
    }
  }

  private static let nowhere = "http://127.0.0.1:1"

  /// The address with a password that must not be printed.
  private static func url(_ uri: String) -> String {
    uri + (uri.contains("?") ? "&" : "?") + "password=5ecret-of-db"
  }

  private static func output(
    of command: (arguments: [String], runsOn: Bool), _ environment: [String: String],
    awaiting awaited: String?
  ) async throws -> String {
    try await withTemporaryDirectory { directory in
      let process = try ChildProcess(
        try TenureProgram.executable, command.arguments, environment: environment, in: directory)
      if command.runsOn {
        try await Task.sleep(for: life)
        let end = ContinuousClock.now + .seconds(60)
        while let awaited, process.isRunning, ContinuousClock.now < end,
          !process.errors.contains(awaited)
        { try await Task.sleep(for: .milliseconds(50)) }
        await process.stop()
      }
      let outcome = try await process.outcome()
      return outcome.output + outcome.errors
    }
  }
}
