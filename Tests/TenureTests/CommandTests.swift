import Foundation
import Testing

@testable import tenure

@Suite("Commands and settings")
struct CommandTests {
  static let commands = [
    "serve", "work", "migrate", "audit", "rebuild", "demo", "simulate-app-store", "bench",
  ]

  @Test("the program's help lists every command")
  func help() async throws {
    let outcome = try await TenureProgram.run("--help")
    #expect(outcome.status == 0)
    for command in Self.commands {
      #expect(outcome.output.contains("\n  \(command) "), "\(command)")
    }
    #expect(outcome.errors.isEmpty)
  }

  @Test("every command has help", arguments: commands)
  func help(of command: String) async throws {
    let outcome = try await TenureProgram.run(command, "--help")
    #expect(outcome.status == 0)
    #expect(outcome.output.contains("OVERVIEW: "))
    #expect(outcome.output.contains("USAGE: tenure \(command)"))
    #expect(outcome.errors.isEmpty)
  }

  /// Settings with which `serve` must not start.
  struct WrongSettings: Sendable, CustomTestStringConvertible {
    /// Changes to settings that would do.
    var changes: [String: String]
    /// What the line on standard error must name.
    var named: String

    init(_ changes: [String: String], _ named: String) {
      self.changes = changes
      self.named = named
    }

    var testDescription: String {
      changes.sorted { $0.key < $1.key }.map { "\($0)=\($1)" }.joined(separator: " ")
    }
  }

  /// Nobody listens there: a setting that is let through shows in another error.
  static let settings = [
    "DATABASE_URL": "postgresql://127.0.0.1:1/none", "TENURE_API_KEYS": "shop:app:s3cr3t",
    "TENURE_BUNDLE_IDS": "com.example.app",
  ]

  // swift-format-ignore
  static let wrongSettings: [WrongSettings] = [
    WrongSettings(["TENURE_API_KEYS": ""],                                     "TENURE_API_KEYS"),
    WrongSettings(["TENURE_API_KEYS": "shop:s3cr3t"],                          "TENURE_API_KEYS"),
    WrongSettings(["TENURE_API_KEYS": "shop:owner:s3cr3t"],                    "TENURE_API_KEYS"),
    WrongSettings(["TENURE_API_KEYS": "a:app:x,a:app:y"],                      "TENURE_API_KEYS"),
    WrongSettings(["TENURE_API_KEYS_FILE": "/dev/null"],                       "TENURE_API_KEYS_FILE"),
    WrongSettings(["TENURE_BUNDLE_IDS": ""],                                   "TENURE_BUNDLE_IDS"),
    WrongSettings(["TENURE_BUNDLE_IDS": "com example"],                        "TENURE_BUNDLE_IDS"),
    WrongSettings(["TENURE_APPS": "com.example.app:1:s3cr3t"],                 "TENURE_APPS"),
    WrongSettings(["TENURE_BUNDLE_IDS": "", "TENURE_APPS": "com.example.app"], "TENURE_APPS"),
    WrongSettings(["TENURE_BUNDLE_IDS": "", "TENURE_APPS": "com.example:x:"],  "TENURE_APPS"),
    WrongSettings(["TENURE_BUNDLE_IDS": "", "TENURE_APPS": "a.b::,a.b::"],     "TENURE_APPS"),
    WrongSettings(["TENURE_APP_APPLE_ID": "one"],                              "TENURE_APP_APPLE_ID"),
    WrongSettings(["TENURE_APPSTORE_SHARED_SECRET_FILE": "/nowhere/secret"],   "TENURE_APPSTORE_SHARED_SECRET_FILE"),
    WrongSettings(["TENURE_APPSTORE_SHARED_SECRET": "s3cr3t word"],              "TENURE_BUNDLE_IDS"),
    WrongSettings(["TENURE_APPSTORE_VERIFY_RECEIPT_URL": "ftp://apple"],       "TENURE_APPSTORE_VERIFY_RECEIPT_URL"),
    WrongSettings(["TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL": "sandbox"],   "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL"),
    WrongSettings(["TENURE_APPSTORE_TIMEOUT_MS": "99"],                        "TENURE_APPSTORE_TIMEOUT_MS"),
    WrongSettings(["TENURE_APPSTORE_TIMEOUT_MS": "10s"],                       "TENURE_APPSTORE_TIMEOUT_MS"),
    WrongSettings(["TENURE_HTTP_PORT": "http"],                                "TENURE_HTTP_PORT"),
    WrongSettings(["TENURE_HTTP_PORT": "65536"],                               "TENURE_HTTP_PORT"),
    WrongSettings(["TENURE_DATABASE_PREPARED_STATEMENTS": "perhaps"],          "TENURE_DATABASE_PREPARED_STATEMENTS"),
    WrongSettings(["TENURE_LOG_LEVEL": "loud"],                                "TENURE_LOG_LEVEL"),
  ]

  @Test("a wrong setting stops the program with one line that names it", arguments: wrongSettings)
  func wrongSetting(_ wrong: WrongSettings) async throws {
    let outcome = try await TenureProgram.run(
      "serve", environment: Self.settings.merging(wrong.changes) { $1 })
    #expect(outcome.status != 0)
    #expect(outcome.output.isEmpty)
    let lines = outcome.errors.split(separator: "\n")
    #expect(lines.count == 1, "\(outcome.errors)")
    #expect(lines.first?.hasPrefix("Error: ") == true, "\(outcome.errors)")
    #expect(outcome.errors.contains(wrong.named), "\(outcome.errors)")
    #expect(!outcome.errors.contains("s3cr3t"), "\(outcome.errors)")
  }

  @Test("a file of settings that is not there is named")
  func missingFile() async throws {
    let outcome = try await TenureProgram.run(
      "serve", "--config", "/nowhere/tenure.env", environment: Self.settings)
    #expect(outcome.status != 0)
    #expect(outcome.errors.split(separator: "\n").count == 1)
    #expect(outcome.errors.contains("--config: /nowhere/tenure.env"))
  }

  @Test("flags win over the environment, and it wins over the file")
  func precedence() async throws {
    try await withTemporaryDirectory { directory in
      let file = directory.appending(path: "tenure.env")
      try "TENURE_LOG_LEVEL=from-the-file\n".write(to: file, atomically: true, encoding: .utf8)
      let path = file.path(percentEncoded: false)
      let inFile = try await TenureProgram.run(
        "serve", "--config", path, environment: Self.settings)
      #expect(inFile.errors.contains("\"from-the-file\""))
      let environment = Self.settings.merging(["TENURE_LOG_LEVEL": "from-outside"]) { $1 }
      let outside = try await TenureProgram.run(
        "serve", "--config", path, environment: environment)
      #expect(outside.errors.contains("\"from-outside\""))
      let flag = try await TenureProgram.run(
        "serve", "--config", path, "--log-level", "from-a-flag", environment: environment)
      #expect(flag.errors.contains("\"from-a-flag\""))
    }
  }
}
