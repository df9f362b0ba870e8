import Foundation
import NIOCore
import NIOPosix
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import tenure

@Suite("Commands and settings")
struct CommandTests {
  static let commands = [
    "serve", "work", "migrate", "audit", "rebuild", "app-store", "demo", "simulate-app-store",
    "bench",
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

  private static func key(_ privateKey: String) -> [String: String] {
    [
      "TENURE_APPSTORE_ISSUER_ID": "57246542-96fe-1a63-e053-0824d011072a",
      "TENURE_APPSTORE_KEY_ID": "2X9R4HXF34", "TENURE_APPSTORE_PRIVATE_KEY": privateKey,
    ]
  }

  // swift-format-ignore
  static let wrongSettings: [WrongSettings] = [
    WrongSettings(["TENURE_API_KEYS": ""],                                     "TENURE_API_KEYS"),
    WrongSettings(["TENURE_API_KEYS": "shop:s3cr3t"],                          "TENURE_API_KEYS"),
    WrongSettings(["TENURE_API_KEYS": "shop:owner:s3cr3t"],                    "TENURE_API_KEYS"),
    WrongSettings(["TENURE_API_KEYS": "a:app:x,a:app:y"],                      "TENURE_API_KEYS"),
    WrongSettings(["TENURE_API_KEYS_FILE": "/dev/null"],                       "TENURE_API_KEYS_FILE"),
    WrongSettings(["TENURE_BUNDLE_IDS": ""],                                   "TENURE_BUNDLE_IDS"),
    WrongSettings(["TENURE_BUNDLE_IDS": "com example"],                        "TENURE_BUNDLE_IDS"),
    WrongSettings(["TENURE_API_KEYS": "", "TENURE_API_KEYS_FILE": "/dev/null"], "TENURE_API_KEYS_FILE"),
    WrongSettings(["DATABASE_URL": "", "DATABASE_URL_FILE": "/dev/null"],      "DATABASE_URL_FILE"),
    WrongSettings(["DATABASE_URL": "nonsense"],                                "DATABASE_URL"),
    WrongSettings(["TENURE_MIGRATION_DATABASE_URL": "nonsense"],               "TENURE_MIGRATION_DATABASE_URL"),
    WrongSettings(["TENURE_BUNDLE_IDS": "a,a"],                                "TENURE_BUNDLE_IDS: entries 1 and 2"),
    WrongSettings(["TENURE_APPS": "com.example.app:1:s3cr3t"],                 "TENURE_APPS"),
    WrongSettings(["TENURE_BUNDLE_IDS": "", "TENURE_APPS": "a.b::,s3cr3t"],    "TENURE_APPS: entry 2"),
    WrongSettings(["TENURE_BUNDLE_IDS": "", "TENURE_APPS": "s3cr3t:x:"],       "TENURE_APPS: entry 1"),
    WrongSettings(["TENURE_BUNDLE_IDS": "", "TENURE_APPS": "s3cr3t word::"],   "TENURE_APPS: entry 1"),
    WrongSettings(["TENURE_BUNDLE_IDS": "", "TENURE_APPS": "s3cr3t:1:a b"],    "TENURE_APPS: entry 1"),
    WrongSettings(["TENURE_BUNDLE_IDS": "", "TENURE_APPS": "s3cr3t:0:"],       "TENURE_APPS: entry 1"),
    WrongSettings(["TENURE_BUNDLE_IDS": "", "TENURE_APPS": "s3cr3t::,s3cr3t::"], "TENURE_APPS: entries 1 and 2"),
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
    WrongSettings(["TENURE_APPSTORE_ROOT_CERTIFICATES": "/nowhere/root.pem"],  "TENURE_APPSTORE_ROOT_CERTIFICATES"),
    WrongSettings(["TENURE_APPSTORE_ROOT_CERTIFICATES": "/dev/null"],          "TENURE_APPSTORE_ROOT_CERTIFICATES"),
    WrongSettings(["TENURE_APPSTORE_ACCEPT_XCODE": "perhaps"],                 "TENURE_APPSTORE_ACCEPT_XCODE"),
    WrongSettings(["TENURE_APPSTORE_KEY_ID": "2X9R4HXF34"],                    "TENURE_APPSTORE_ISSUER_ID: it is not set"),
    WrongSettings(["TENURE_APPSTORE_ISSUER_ID": "5724", "TENURE_APPSTORE_PRIVATE_KEY": "/s3cr3t"], "TENURE_APPSTORE_KEY_ID: it is not set"),
    WrongSettings(["TENURE_APPSTORE_ISSUER_ID": "5724", "TENURE_APPSTORE_KEY_ID": "2X9R4HXF34"],   "TENURE_APPSTORE_PRIVATE_KEY: it is not set"),
    WrongSettings(key("/nowhere/s3cr3t.p8"),                                   "TENURE_APPSTORE_PRIVATE_KEY"),
    WrongSettings(key("/dev/null"),                                            "TENURE_APPSTORE_PRIVATE_KEY"),
    WrongSettings(key("-----BEGIN PRIVATE KEY-----s3cr3t"),                    "TENURE_APPSTORE_PRIVATE_KEY"),
    WrongSettings(["TENURE_APPSTORE_API_URL": "ftp://apple"],                  "TENURE_APPSTORE_API_URL"),
    WrongSettings(["TENURE_APPSTORE_SANDBOX_API_URL": "http://a/?s3cr"],       "TENURE_APPSTORE_SANDBOX_API_URL"),
    WrongSettings(["TENURE_HTTP_PORT": "http"],                                "TENURE_HTTP_PORT"),
    WrongSettings(["TENURE_HTTP_PORT": "65536"],                               "TENURE_HTTP_PORT"),
    WrongSettings(["TENURE_DATABASE_PREPARED_STATEMENTS": "perhaps"],          "TENURE_DATABASE_PREPARED_STATEMENTS"),
    WrongSettings(["TENURE_APPSTORE_VERIFY_RECEIPT_URL": "http://a/\(String(repeating: "b", count: 255))"], "TENURE_APPSTORE_VERIFY_RECEIPT_URL"),
    WrongSettings(["TENURE_SANDBOX_ACCESS": "4711,None"],                      "TENURE_SANDBOX_ACCESS"),
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

  @Test("an empty flag is no setting")
  func emptyFlag() async throws {
    let outcome = try await TenureProgram.run(
      "serve", "--database-url", "", environment: Self.settings)
    #expect(outcome.status != 0)
    #expect(outcome.errors.hasPrefix("Error: DATABASE_URL: "), "\(outcome.errors)")
  }

  @Test(
    "all and none are understood in any case",
    arguments: [("ALL", true), ("All", true), ("None", false), (" none ", false), ("4711", true)])
  func sandboxAccess(text: String, isGranted: Bool) async throws {
    let settings = try Settings(
      await SettingSource(environment: ["TENURE_SANDBOX_ACCESS": text]))
    #expect(settings.sandboxAccess.grants(.sandbox, to: "4711") == isGranted)
  }

  @Test("a value in a file can stand in quotes")
  func quotes() async throws {
    try await withTemporaryDirectory { directory in
      let file = directory.appending(path: "tenure.env")
      let lines = [
        "TENURE_BUNDLE_IDS=\"com.example.app\"",
        "TENURE_APPSTORE_SHARED_SECRET=\"\"quoted\"\"", "TENURE_HTTP_HOST=\"",
        "TENURE_LOG_LEVEL=\"\"",
      ]
      try lines.joined(separator: "\n")
        .write(to: file, atomically: true, encoding: .utf8)
      let source = try await SettingSource(
        environment: ["TENURE_DATA_DIR": "\"as it is\""],
        file: file.path(percentEncoded: false))
      #expect(try source.string("TENURE_BUNDLE_IDS") == "com.example.app")
      #expect(try source.string("TENURE_APPSTORE_SHARED_SECRET") == "\"quoted\"")
      #expect(try source.string("TENURE_DATA_DIR") == "\"as it is\"")
      #expect(try source.string("TENURE_HTTP_HOST") == "\"")
      #expect(try source.string("TENURE_LOG_LEVEL") == nil)
    }
  }

  @Test("a port that is taken is told in one line, and one that is none is refused")
  func takenPort() async throws {
    let server = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
      .bind(host: "127.0.0.1", port: 0).get()
    let port = "\(server.localAddress?.port ?? 0)"
    let simulator = try await TenureProgram.run("simulate-app-store", "--port", port)
    #expect(simulator.errors.contains("Error: --port: \(port) is taken"), "\(simulator.errors)")
    try await withScratchDatabase { database in
      let serve = try await TenureProgram.run(
        "serve", "--port", port,
        environment: Self.settings.merging([
          "DATABASE_URL": database.configuration.uri, "TENURE_LOG_LEVEL": "error",
        ]) { $1 })
      #expect(serve.status == 1)
      #expect(
        serve.errors.hasPrefix("Error: TENURE_HTTP_PORT: \(port) is taken"), "\(serve.errors)")
      #expect(serve.errors.split(separator: "\n").count == 1, "\(serve.errors)")
      let elsewhere = try await TenureProgram.run(
        "serve", "--host", "192.0.2.1", "--port", "0",
        environment: Self.settings.merging([
          "DATABASE_URL": database.configuration.uri, "TENURE_LOG_LEVEL": "error",
        ]) { $1 })
      #expect(elsewhere.errors.hasPrefix("Error: TENURE_HTTP_HOST: "), "\(elsewhere.errors)")
    }
    try await server.close()
    let none = try await TenureProgram.run("simulate-app-store", "--port", "99999")
    #expect(none.status != 0)
    #expect(none.errors.contains("--port is from 0 to 65535"))
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
