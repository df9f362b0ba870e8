import Foundation
import Logging
import ScratchDatabases
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import Observability
@testable import tenure

/// The logs of the programs contain no secret of the settings.
@Suite("Programs log no secrets")
struct SecretLogTests {
  /// A program, and its output once its services have started; nil if it ends without a signal.
  private typealias Command = (arguments: [String], runsOn: String?)

  private static let commands: [Command] = [
    (["serve", "--port", "0", "--with-worker"], "Serving"), (["work"], "Working"),
    // A flag's value is as secret, also where the command line is wrong.
    (["poll", "--once", "--database-url", url], nil), (["poll", "--database-url", url], nil),
    (["bench", "x", "--database-url", url], nil), (["migrate"], nil), (["doctor"], nil),
    (["jobs"], nil),
    (["audit"], nil), (["metrics", "list"], nil), (["webhooks"], nil),
  ]

  /// At `trace` a program writes all that it writes at another level; only `serve` looks at the
  /// level for anything else, and answers entitlements elsewhere above `debug`.
  private static let runs: [(Command, Logger.Level, LogFormat)] =
    LogFormat.allCases.flatMap { format in commands.map { ($0, .trace, format) } }
    + [((["serve", "--port", "0"], "Serving"), .info, .text)]

  @Test func `no program writes a secret`() async throws {
    try await withScratchDatabase { database in
      // The private servers use trust authentication: any password is right.
      let uri = database.uri
      let url = uri + (uri.contains("?") ? "&" : "?") + "password=5ecret-of-db"
      try await withTemporaryDirectory { directory in
        try await withThrowingTaskGroup(of: Void.self) { group in
          for (number, run) in Self.runs.enumerated() {
            if number >= 4 { try await group.next() }
            group.addTask { try await Self.check(run, databaseURL: url, in: directory) }
          }
          try await group.waitForAll()
        }
      }
    }
  }

  private static let nowhere = "http://127.0.0.1:1"
  /// Stands for the database's URL in arguments.
  private static let url = "URL"

  private static func check(
    _ run: (command: Command, level: Logger.Level, format: LogFormat), databaseURL: String,
    in directory: URL
  ) async throws {
    let environment = SecretSettings.environment(databaseURL: databaseURL).merging([
      "TENURE_LOG_LEVEL": run.level.rawValue, "TENURE_LOG_FORMAT": run.format.rawValue,
      "TENURE_APPSTORE_TIMEOUT_MS": "100",
      "TENURE_APPSTORE_API_URL": nowhere, "TENURE_APPSTORE_SANDBOX_API_URL": nowhere,
      "TENURE_APPSTORE_VERIFY_RECEIPT_URL": nowhere,
      "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL": nowhere,
    ]) { $1 }
    let process = try ChildProcess(
      try TenureProgram.executable,
      run.command.arguments.map { $0 == url ? databaseURL : $0 }, environment: environment,
      in: directory)
    if let awaited = run.command.runsOn {
      let end = ContinuousClock.now + .seconds(60)
      while process.isRunning, ContinuousClock.now < end, !process.errors.contains(awaited) {
        try await Task.sleep(for: .milliseconds(20))
      }
      // The services describe themselves in the log when they start and when they end.
      await process.stop()
      #expect(process.errors.contains(awaited), "\(run)")
      if run.level == .trace, run.command.arguments[0] == "serve" {
        #expect(process.errors.contains("SpanExporter"), "\(run)")
      }
    }
    let outcome = try await process.outcome()
    let text = outcome.output + outcome.errors
    #expect(!text.isEmpty, "\(run)")
    for secret in SecretSettings.all { #expect(!text.contains(secret), "\(run): \(secret)") }
  }
}
