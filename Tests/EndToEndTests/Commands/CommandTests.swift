import AppStore
import AppStoreSimulator
import ArgumentParser
import Foundation
import JSONText
import NIOCore
import NIOPosix
import Observability
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("Commands and settings")
struct CommandTests {
  static let commands = [
    "serve", "work", "poll", "jobs", "webhooks", "account", "charge", "migrate", "audit", "rebuild",
    "what-if",
    "report", "rates", "import", "export", "compare", "app-store", "demo", "rehearse",
    "simulate-app-store",
    "doctor", "metrics", "bench",
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

  @Test("the version is that of logs, /healthz and metrics")
  func version() async throws {
    let outcome = try await TenureProgram.run("--version")
    #expect(outcome.status == 0)
    #expect(outcome.output == TenureVersion.current + "\n")
  }

  @Test(
    "an unknown command is an error that suggests the nearest one",
    arguments: [
      (["srve"], "There is no command srve: did you mean serve?"),
      (["help", "migrat"], "There is no command migrat: did you mean migrate?"),
      (["help", "nosuch"], "There is no command nosuch."),
    ])
  func unknownCommand(arguments: [String], fault: String) async throws {
    let outcome = try await TenureProgram.run(arguments: arguments)
    #expect(outcome.status == 64)
    #expect(outcome.errors.contains(fault), "\(outcome.errors)")
  }

  @Test("a misspelled setting is named beside the fault that it causes")
  func misspelledSetting() async throws {
    let source = try await SettingSource(
      environment: ["TENURE_BUNDEL_IDS": "com.example.app", "TENURE_API_KEYS": ""])
    let error = #expect(throws: SettingErrors.self) {
      try Settings(source, needing: [.apps])
    }
    let text = error?.description ?? ""
    #expect(
      text.contains("TENURE_BUNDEL_IDS (did you mean TENURE_BUNDLE_IDS?): unknown setting"),
      "\(text)")
    #expect(source.unread.map(\.nearest) == ["TENURE_BUNDLE_IDS"])
    #expect("TENURE_COMPLETELY_ELSE".nearest(in: ["TENURE_BUNDLE_IDS"]) == nil)
  }

  @Test("every command has help", arguments: commands)
  func help(of command: String) async throws {
    let outcome = try await TenureProgram.run(command, "--help")
    #expect(outcome.status == 0)
    #expect(outcome.output.contains("OVERVIEW: "))
    #expect(outcome.output.contains("USAGE: tenure \(command)"))
    #expect(outcome.errors.isEmpty)
  }

  @Test(
    "a wrong argument is answered with the usage of its own command",
    arguments: [
      // arguments, command, fault
      (["account", "grant", "a", "gold", "--until", "tomorrow"], "account grant", ": must be "),
      (["account", "grant", "a", "gold", "--id", "1"], "account grant", ": must be "),
      (["account", "revoke", "1"], "account revoke", ": must be "),
      (
        ["charge", "place", "1", "--account", "a", "--environment", "prod"], "charge place",
        "Please provide one of 'production' and 'sandbox'."
      ),
      (
        ["charge", "release", "1", "--effective-from", "yesterday"], "charge release", ": must be "
      ),
    ])
  func wrongArgument(arguments: [String], command: String, fault: String) {
    let error = #expect(throws: (any Error).self) {
      _ = try Tenure.parseAsRoot(arguments + ["--reason", "r"])
    }
    let text = error.map { Tenure.fullMessage(for: $0) } ?? ""
    #expect(text.contains("is invalid for"), "\(text)")
    #expect(text.contains(fault), "\(text)")
    #expect(text.contains("\nUsage: tenure \(command) "), "\(text)")
  }

  /// Settings with which `serve` must not start.
  struct WrongSettings: Sendable, CustomTestStringConvertible {
    /// Changes to settings that would do.
    var changes: [String: String]
    /// The text that the line on standard error must contain.
    var named: String

    init(_ changes: [String: String], _ named: String) {
      self.changes = changes
      self.named = named
    }

    var testDescription: String {
      changes.sorted { $0.key < $1.key }.map { "\($0)=\($1)" }.joined(separator: " ")
    }
  }

  /// No server listens there: a setting that is accepted leads to another error.
  static let settings = [
    "DATABASE_URL": "postgresql://127.0.0.1:1/none",
    "TENURE_API_KEYS": "shop:app:s3cr3t-for-trying",
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
    WrongSettings(["TENURE_API_KEYS": "a:app:long-enough-for-a-key,a:app:another-long-enough"],                      "TENURE_API_KEYS"),
    WrongSettings(["TENURE_API_KEYS_FILE": "/dev/null"],                       "TENURE_API_KEYS_FILE"),
    WrongSettings(["TENURE_READ_DATABASE_URL": "standby"],                     "TENURE_READ_DATABASE_URL"),
    WrongSettings(["TENURE_READ_MAX_STALENESS": "5"],                          "TENURE_READ_MAX_STALENESS"),
    WrongSettings(["TENURE_READ_MAX_STALENESS": "0s"],                         "TENURE_READ_MAX_STALENESS"),
    WrongSettings(["TENURE_READ_CACHE": "64"],                                 "TENURE_READ_CACHE"),
    WrongSettings(["TENURE_READ_CACHE": "0MB"],                                "TENURE_READ_CACHE"),
    WrongSettings(["TENURE_READ_CACHE": "65GB"],                               "TENURE_READ_CACHE"),
    WrongSettings(["TENURE_LISTEN_DATABASE_URL": "primary"],                   "TENURE_LISTEN_DATABASE_URL"),
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
    WrongSettings(["TENURE_WEBHOOK_URL": "https://a.example/s3cr3t"],          "TENURE_WEBHOOK_SECRET"),
    WrongSettings(["TENURE_APP_APPLE_ID": "one"],                              "TENURE_APP_APPLE_ID"),
    WrongSettings(["TENURE_APPSTORE_SHARED_SECRET_FILE": "/nowhere/secret"],   "TENURE_APPSTORE_SHARED_SECRET_FILE"),
    WrongSettings(["TENURE_APPSTORE_SHARED_SECRET": "s3cr3t word"],            "TENURE_APPSTORE_SHARED_SECRET"),
    WrongSettings(["TENURE_APPSTORE_VERIFY_RECEIPT_URL": "ftp://apple"],       "TENURE_APPSTORE_VERIFY_RECEIPT_URL"),
    WrongSettings(["TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL": "sandbox"],   "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL"),
    WrongSettings(["TENURE_APPSTORE_TIMEOUT_MS": "99"],                        "TENURE_APPSTORE_TIMEOUT_MS"),
    WrongSettings(["TENURE_APPSTORE_TIMEOUT_MS": "10s"],                       "TENURE_APPSTORE_TIMEOUT_MS"),
    WrongSettings(["TENURE_APPSTORE_ROOT_CERTIFICATES": "/nowhere/roots.pem"], "TENURE_APPSTORE_ROOT_CERTIFICATES"),
    WrongSettings(["TENURE_APPSTORE_ROOT_CERTIFICATES": "/dev/null"],          "TENURE_APPSTORE_ROOT_CERTIFICATES"),
    WrongSettings(["TENURE_APPSTORE_ACCEPT_XCODE": "perhaps"],                 "TENURE_APPSTORE_ACCEPT_XCODE"),
    WrongSettings(["TENURE_APPSTORE_KEY_ID": "2X9R4HXF34"],                    "TENURE_APPSTORE_ISSUER_ID: required"),
    WrongSettings(["TENURE_APPSTORE_ISSUER_ID": "5724", "TENURE_APPSTORE_PRIVATE_KEY": "/s3cr3t"], "TENURE_APPSTORE_KEY_ID: required"),
    WrongSettings(["TENURE_APPSTORE_ISSUER_ID": "5724", "TENURE_APPSTORE_KEY_ID": "2X9R4HXF34"],   "TENURE_APPSTORE_PRIVATE_KEY: required"),
    WrongSettings(key("/nowhere/s3cr3t.p8"),                                   "TENURE_APPSTORE_PRIVATE_KEY"),
    WrongSettings(key("/dev/null"),                                            "TENURE_APPSTORE_PRIVATE_KEY"),
    WrongSettings(key("-----BEGIN PRIVATE KEY-----s3cr3t"),                    "TENURE_APPSTORE_PRIVATE_KEY"),
    WrongSettings(["TENURE_APPSTORE_API_URL": "ftp://apple"],                  "TENURE_APPSTORE_API_URL"),
    WrongSettings(["TENURE_APPSTORE_SANDBOX_API_URL": "http://a/?s3cr"],       "TENURE_APPSTORE_SANDBOX_API_URL"),
    WrongSettings(["TENURE_APPSTORE_WRITE_OWNERSHIP": "on"],                   "TENURE_APPSTORE_WRITE_OWNERSHIP: requires"),
    WrongSettings(["TENURE_APPSTORE_WRITE_OWNERSHIP": "perhaps"],              "TENURE_APPSTORE_WRITE_OWNERSHIP"),
    WrongSettings(["TENURE_APPSTORE_ANSWER_CONSUMPTION": "on"],                "TENURE_APPSTORE_ANSWER_CONSUMPTION: requires"),
    WrongSettings(["TENURE_HTTP_PORT": "http"],                                "TENURE_HTTP_PORT"),
    WrongSettings(["TENURE_HTTP_PORT": "65536"],                               "TENURE_HTTP_PORT"),
    WrongSettings(["TENURE_DATABASE_PREPARED_STATEMENTS": "perhaps"],          "TENURE_DATABASE_PREPARED_STATEMENTS"),
    WrongSettings(["TENURE_APPSTORE_VERIFY_RECEIPT_URL": "http://a/\(String(repeating: "b", count: 255))"], "TENURE_APPSTORE_VERIFY_RECEIPT_URL"),
    WrongSettings(["TENURE_PROVISIONAL_ACCESS": "on"],                         "TENURE_PROVISIONAL_ACCESS"),
    WrongSettings(["TENURE_PROVISIONAL_ACCESS": "24"],                         "TENURE_PROVISIONAL_ACCESS"),
    WrongSettings(["TENURE_PROVISIONAL_ACCESS": "0h"],                         "TENURE_PROVISIONAL_ACCESS"),
    WrongSettings(["TENURE_PROVISIONAL_ACCESS": "721h"],                       "TENURE_PROVISIONAL_ACCESS"),
    WrongSettings(["TENURE_SANDBOX_ACCESS": "4711,None"],                      "TENURE_SANDBOX_ACCESS"),
    WrongSettings(["TENURE_EVENT_RETENTION": "30"],                            "TENURE_EVENT_RETENTION"),
    WrongSettings(["TENURE_EVENT_RETENTION": "0d"],                            "TENURE_EVENT_RETENTION"),
    WrongSettings(["TENURE_EVENT_RETENTION": "36501d"],                        "TENURE_EVENT_RETENTION"),
    WrongSettings(["TENURE_RAW_RETENTION": "0d"],                              "TENURE_RAW_RETENTION"),
    WrongSettings(["TENURE_RAW_RETENTION": "never"],                           "TENURE_RAW_RETENTION"),
    WrongSettings(["TENURE_NOTIFICATION_RETENTION": "400"],                    "TENURE_NOTIFICATION_RETENTION"),
    WrongSettings(["TENURE_CHECKPOINTS": "checkpoints.jsonl"],                 "TENURE_CHECKPOINTS: must be an absolute path or a URL"),
    WrongSettings(["TENURE_CHECKPOINTS": "https://example.com/"],              "TENURE_WEBHOOK_SECRET"),
    WrongSettings(["TENURE_CLOCK_FILE": "/dev/null"],                          "TENURE_CLOCK_FILE"),
    WrongSettings(["TENURE_POLLS_PER_HOUR": "-1"],                             "TENURE_POLLS_PER_HOUR"),
    WrongSettings(["TENURE_LOG_LEVEL": "loud"],                                "TENURE_LOG_LEVEL"),
    WrongSettings(["TENURE_LOG_FORMAT": "xml"],                                "TENURE_LOG_FORMAT"),
    WrongSettings(["TENURE_METRICS_PORT": "prometheus"],                       "TENURE_METRICS_PORT"),
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

  @Test("several wrong settings are reported at once", arguments: ["serve", "work"])
  func severalWrong(command: String) async throws {
    let outcome = try await TenureProgram.run(
      command,
      environment: Self.settings.merging([
        "TENURE_HTTP_PORT": "http", "TENURE_LOG_LEVEL": "loud", "TENURE_BUNDLE_IDS": "",
        "TENURE_API_KEYS": "", "TENURE_APPSTORE_SHARED_SECRET": "s3cr3t word",
      ]) { $1 })
    #expect(outcome.status != 0)
    let lines = outcome.errors.split(separator: "\n")
    let named = lines.dropFirst().compactMap { $0.split(separator: ":").first }.map {
      $0.trimmingCharacters(in: .whitespaces)
    }
    // The apps are unknown while their secret is wrong.
    let wrong = ["TENURE_HTTP_PORT", "TENURE_APPSTORE_SHARED_SECRET", "TENURE_LOG_LEVEL"]
    #expect(named == wrong + (command == "serve" ? ["TENURE_API_KEYS"] : []))
    #expect(lines.first == "Error: \(named.count) settings are invalid:")
    #expect(!outcome.errors.contains("s3cr3t"))
  }

  @Test("a setting that can't be read is reported once")
  func oneFault() async throws {
    for name in ["TENURE_APPS_FILE", "TENURE_APPSTORE_PRIVATE_KEY_FILE", "TENURE_API_KEYS_FILE"] {
      let source = try await SettingSource(environment: [name: "/nowhere"])
      let error = #expect(throws: SettingError.self) {
        try Settings(source, needing: name == "TENURE_API_KEYS_FILE" ? [.apiKeys] : [])
      }
      #expect(error?.name == name)
    }
  }

  @Test("what the first lines of docker-compose.yml make is accepted")
  func composeSettings() async throws {
    let repository = (0..<4).reduce(URL(filePath: #filePath)) { url, _ in
      url.deletingLastPathComponent()
    }
    let text = try String(
      contentsOf: repository.appending(path: "docker-compose.yml"), encoding: .utf8)
    let script = text.split(separator: "\n", omittingEmptySubsequences: false)
      .prefix { $0.hasPrefix("#") }.filter { $0.hasPrefix("#   ") }.map { $0.dropFirst(4) }
      .prefix { !$0.hasPrefix("docker compose up") }
    #expect(script.count > 5)
    try await withTemporaryDirectory { directory in
      let shell = Process()
      shell.executableURL = URL(filePath: "/bin/sh")
      shell.arguments = ["-e", "-c", script.joined(separator: "\n")]
      shell.currentDirectoryURL = directory
      try shell.run()
      shell.waitUntilExit()
      #expect(shell.terminationStatus == 0)
      let secrets = directory.appending(path: ".secrets").path(percentEncoded: false)
      let source = try await SettingSource(
        environment: [
          "DATABASE_URL_FILE": "\(secrets)/database_url",
          "TENURE_MIGRATION_DATABASE_URL_FILE": "\(secrets)/migration_database_url",
          "TENURE_API_KEYS_FILE": "\(secrets)/api_keys",
          "TENURE_APPSTORE_SHARED_SECRET_FILE": "\(secrets)/appstore_shared_secret",
        ],
        file: directory.appending(path: ".env").path(percentEncoded: false))
      let settings = try Settings(source, needing: Settings.Need.allCases)
      #expect(settings.unread == [])
      #expect(settings.apps.map(\.bundleID) == ["com.example.app"])
    }
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

  @Test("unknown settings are reported, wherever they are set")
  func misspelt() async throws {
    try await withTemporaryDirectory { directory in
      let apps = directory.appending(path: "apps")
      try "com.example.app".write(to: apps, atomically: true, encoding: .utf8)
      let file = directory.appending(path: "settings")
      try "# TENURE_OLD=1\nTENURE_LOG_LEVEL=info\n TENURE_BUNDEL_IDS = a\n".write(
        to: file, atomically: true, encoding: .utf8)
      let settings = try Settings(
        await SettingSource(
          environment: [
            "TENURE_SANDBOX_ACCES": "none", "TENURE_TEST_SEED": "1", "PATH": "/",
            "TENURE_BUNDLE_IDS_FILE": apps.path(percentEncoded: false),
          ], file: file.path(percentEncoded: false)))
      #expect(
        settings.unread == [
          "TENURE_BUNDEL_IDS (did you mean TENURE_BUNDLE_IDS?)",
          "TENURE_SANDBOX_ACCES (did you mean TENURE_SANDBOX_ACCESS?)",
        ])
    }
  }

  @Test("the roots of a file are trusted instead of Apple's")
  func rootCertificates() async throws {
    try await withTemporaryDirectory { directory in
      let file = directory.appending(path: "roots.pem")
      let signers = [try SimulatedSigner(), try SimulatedSigner()]
      try signers.map(\.rootCertificatePEM).joined()
        .write(to: file, atomically: true, encoding: .utf8)
      let settings = try Settings(
        await SettingSource(environment: [
          "TENURE_APPSTORE_ROOT_CERTIFICATES": file.path(percentEncoded: false)
        ]))
      let apps = try AppStoreApps([AppStoreApp(bundleID: "com.example.app")])
      for (roots, isTrusted) in [(settings.trustedRoots, true), (.apple, false)] {
        let verifier = SignedDataVerifier(roots: roots, apps: apps, now: { .now })
        for signer in signers {
          let signed = signer.sign(["bundleId": "com.example.app", "receiptType": "Sandbox"])
          let verdict = await verifier.appTransaction(signed)
          #expect(((try? verdict.get()) != nil) == isTrusted, "\(verdict)")
        }
      }
      #expect(!settings.acceptsXcode)
    }
  }

  @Test(
    "provisional access is off, or some hours",
    arguments: [("off", nil), ("OFF", nil), ("24h", 24), ("1H", 1), ("720h", 720)]
      as [(String, Int?)])
  func provisionalAccess(text: String, hours: Int?) async throws {
    let settings = try Settings(
      await SettingSource(environment: ["TENURE_PROVISIONAL_ACCESS": text]))
    #expect(settings.provisionalAccess == hours.map { .seconds($0 * 3600) })
    #expect(try await Settings(SettingSource(environment: [:])).provisionalAccess == nil)
  }

  @Test(
    "events are kept for some days or hours",
    arguments: [("1d", 24), ("90D", 90 * 24), ("36h", 36), ("", 30 * 24)])
  func eventRetention(text: String, hours: Int) async throws {
    let settings = try Settings(
      await SettingSource(environment: ["TENURE_EVENT_RETENTION": text]))
    #expect(settings.eventRetention == .seconds(hours * 3600))
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

  @Test("a port in use is reported in one line, and an invalid one is refused")
  func takenPort() async throws {
    let server = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
      .bind(host: "127.0.0.1", port: 0).get()
    let port = "\(server.localAddress?.port ?? 0)"
    let simulator = try await TenureProgram.run("simulate-app-store", "--port", port)
    #expect(simulator.errors.contains("Error: --port: \(port) is in use"), "\(simulator.errors)")
    try await withScratchDatabase { database in
      let serve = try await TenureProgram.run(
        "serve", "--port", port,
        environment: Self.settings.merging([
          "DATABASE_URL": database.uri, "TENURE_LOG_LEVEL": "error",
        ]) { $1 })
      #expect(serve.status == 1)
      #expect(
        serve.errors.hasPrefix("Error: TENURE_HTTP_PORT: \(port) is in use"), "\(serve.errors)")
      #expect(serve.errors.split(separator: "\n").count == 1, "\(serve.errors)")
      let elsewhere = try await TenureProgram.run(
        "serve", "--host", "192.0.2.1", "--port", "0",
        environment: Self.settings.merging([
          "DATABASE_URL": database.uri, "TENURE_LOG_LEVEL": "error",
        ]) { $1 })
      #expect(elsewhere.errors.hasPrefix("Error: TENURE_HTTP_HOST: "), "\(elsewhere.errors)")
    }
    try await server.close()
    let none = try await TenureProgram.run("simulate-app-store", "--port", "99999")
    #expect(none.status != 0)
    #expect(none.errors.contains("--port must be from 0 to 65535"))
  }

  @Test("a simulated App Store writes its root and its key before it listens")
  func simulatorFiles() async throws {
    // A port that is taken ends it just after.
    let server = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
      .bind(host: "127.0.0.1", port: 0).get()
    let port = "\(server.localAddress?.port ?? 0)"
    try await withTemporaryDirectory { directory in
      let root = directory.appending(path: "root.pem")
      let key = directory.appending(path: "key.p8")
      try "of an earlier start".write(to: key, atomically: true, encoding: .utf8)
      let simulator = try await TenureProgram.run(
        "simulate-app-store", "--port", port, "--root-certificate-out",
        root.path(percentEncoded: false), "--api-key-out", key.path(percentEncoded: false),
        "--notify-url", "http://127.0.0.1:1/", "--notify-version", "both")
      #expect(simulator.errors.contains("Error: --port: \(port) is in use"), "\(simulator.errors)")
      let names = simulator.output.split(separator: "\n").map { $0.prefix { $0 != "=" } }
      #expect(
        names == [
          "TENURE_APPSTORE_ISSUER_ID", "TENURE_APPSTORE_KEY_ID", "TENURE_APPSTORE_PRIVATE_KEY",
        ])
      #expect(
        try String(contentsOf: root, encoding: .utf8).hasPrefix("-----BEGIN CERTIFICATE-----"))
      #expect(
        try String(contentsOf: key, encoding: .utf8).hasPrefix("-----BEGIN PRIVATE KEY-----"))
      let attributes = try FileManager.default.attributesOfItem(
        atPath: key.path(percentEncoded: false))
      #expect((attributes[.posixPermissions] as? NSNumber)?.intValue == 0o600)
    }
    try await server.close()
  }

  @Test("a folder is no file to write a key to, and stays as it is")
  func simulatorFolder() async throws {
    try await withTemporaryDirectory { directory in
      let folder = directory.appending(path: "folder")
      try FileManager.default.createDirectory(
        at: folder, withIntermediateDirectories: false, attributes: [.posixPermissions: 0o755])
      let path = folder.path(percentEncoded: false)
      let outcome = try await TenureProgram.run(
        "simulate-app-store", "--port", "0", "--api-key-out", path)
      #expect(outcome.status != 0)
      #expect(outcome.errors.contains("--api-key-out: \(path)"), "\(outcome.errors)")
      let attributes = try FileManager.default.attributesOfItem(atPath: path)
      #expect((attributes[.posixPermissions] as? NSNumber)?.intValue == 0o755)
      #expect(try FileManager.default.contentsOfDirectory(atPath: path).isEmpty)
      #expect(
        try FileManager.default.contentsOfDirectory(
          atPath: directory.path(percentEncoded: false)
        ).count == 1)
    }
  }

  @Test(
    "wrong options of the simulated App Store",
    arguments: [
      (["--notify-version", "v3"], "--notify-version must be"),
      (["--notify-url", "tenure"], "--notify-url must be a URL"),
      (["--rate-limit-scale=-1"], "--rate-limit-scale must be from"),
      (["--root-certificate-out", "/nowhere/ca.pem"], "--root-certificate-out: /nowhere"),
      (["--api-key-out", "/nowhere/key.p8"], "--api-key-out: /nowhere"),
    ])
  func simulatorOptions(_ arguments: [String], _ fault: String) async throws {
    let outcome = try await withTemporaryDirectory { directory in
      try await ChildProcess.run(
        try TenureProgram.executable, ["simulate-app-store", "--port", "0"] + arguments,
        environment: [:], in: directory)
    }
    #expect(outcome.status != 0)
    #expect(outcome.errors.contains(fault), "\(outcome.errors)")
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
