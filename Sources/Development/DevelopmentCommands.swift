import AppStore
import AppStoreSimulator
package import ArgumentParser
import Bootstrap
import Foundation
import HTTPAPI
import Intake
import JSONText
import Logging
import Observability
import Secrets
import ServiceLifecycle
import Subscriptions
import UnixSignals

/// The commands that the product does not need.
package let developmentCommands = CommandGroup(
  name: "Development",
  subcommands: [
    DemoCommand.self, RehearseCommand.self, SimulateAppStoreCommand.self, BenchCommand.self,
    FuzzCommand.self,
  ])

struct DemoCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "demo",
    abstract: "Demonstrates the whole product, no accounts or configuration needed.",
    discussion: """
      Starts a private PostgreSQL, a simulated App Store, the server and a worker. Simulates \
      purchases, renewals, account switches and refunds, with notifications that arrive late, \
      twice, out of order or not at all. Then simulates a year of two hundred customers on an \
      accelerated clock and compares Tenure's results with the simulated App Store's. Then keeps \
      running, to be tried with curl, until Ctrl-C; all demo data except the log is removed. Ignores settings and \
      the environment.
      """)

  @Option(
    help: """
      Port of the API; the simulated App Store and year get the next two. (default: 8080, or a \
      free one)
      """)
  var port: Int?

  @Flag(help: "Listen on all interfaces instead of \(DemoServer.host), for containers.")
  var allInterfaces = false

  @Flag(name: .customLong("exit"), help: "Exit afterwards; exit status 1 on a wrong outcome.")
  var exits = false

  @Option(help: "Number of customers in the simulated year; 0 skips it.")
  var customers = 200

  @Option(help: "Log level.", transform: Logger.Level.argument)
  var logLevel = Logger.Level.warning

  /// More would take hours.
  private static let mostCustomers = 10_000

  func validate() throws {
    guard (0...65_533).contains(port ?? 0) else {
      throw ValidationError("--port must be from 0 to 65533.")
    }
    guard (0...Self.mostCustomers).contains(customers) else {
      throw ValidationError("--customers must be from 0 to \(Self.mostCustomers).")
    }
  }

  func run() async throws {
    let (logger, log) = try Self.log(level: logLevel)
    PrometheusRegistry.bootstrapTenure()
    let program = DemoProgram(
      host: allInterfaces ? "0.0.0.0" : DemoServer.host, port: port, customers: customers,
      exits: exits, logger: logger, log: log)
    let isAsExpected = try await program.run()
    if exits, !isAsExpected { throw ExitCode.failure }
  }
}

extension DemoCommand {
  /// Sends the programs' logs to a file, because the story goes to the terminal.
  ///
  /// - Returns: The logger, and the file's path.
  private static func log(level: Logger.Level) throws -> (Logger, path: String) {
    let file = FileManager.default.temporaryDirectory
      .appending(path: "tenure-demo-\(UUID().text).log")
    let path = file.path(percentEncoded: false)
    try Data().write(to: file, options: .withoutOverwriting)
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: path)
    let handle = try FileHandle(forWritingTo: file)
    LoggingSystem.bootstrap(
      { label, provider in
        JSONLogHandler(label: label, metadataProvider: provider) {
          try? handle.write(contentsOf: Data($0.utf8))
        }
      }, metadataProvider: LogContext.metadataProvider)
    var logger = Logger(label: "tenure")
    logger.logLevel = level
    return (logger, path)
  }
}

struct RehearseCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rehearse",
    abstract: "Simulates migration day and the week after it.",
    discussion: """
      Starts a PostgreSQL primary and standby, a simulated App Store with another backend's \
      customers, a server and two workers. Imports the customers, confirms them with Apple and \
      compares the backends' entitlements, while notifications arrive. Then simulates a week on an \
      accelerated clock, with a schema upgrade, a failover and a killed worker under load. Finally \
      compares every account with the simulated truth and audits the ledger. Exit status 1 on any \
      wrong outcome. Ignores settings and the environment.
      """)

  @Option(help: "Number of customers of the other backend.")
  var owners = 100_000

  @Option(help: "Number of customers who join during the week.")
  var newcomers = 200

  @Option(help: "Seed; the same seed gives the same customers.")
  var seed: UInt64 = 1

  @Option(help: "Log level.", transform: Logger.Level.argument)
  var logLevel = Logger.Level.error

  func validate() throws {
    guard (100...1_000_000).contains(owners) else {
      throw ValidationError("--owners must be from 100 to 1000000.")
    }
    guard (0...10_000).contains(newcomers) else {
      throw ValidationError("--newcomers must be from 0 to 10000.")
    }
  }

  func run() async throws {
    let logger = Logger.bootstrapTenure(level: logLevel)
    PrometheusRegistry.bootstrapTenure()
    guard let executable = Bundle.main.executableURL else {
      throw Rehearsal.Failure(description: "The path of this executable is unknown.")
    }
    let plan = RehearsalPlan(seed: seed, owners: owners, newcomers: newcomers)
    let rehearsal = Rehearsal(plan, executable: executable, logger: logger)
    guard let isWell = try await untilSignalled({ try await rehearsal.run() }) else {
      throw ExitCode(Self.interrupted)
    }
    guard isWell else { throw ExitCode.failure }
  }

  /// The shells' exit status for a command ended by Ctrl-C.
  private static let interrupted: Int32 = 130
}

/// Cancels `body` on SIGINT, SIGTERM or SIGHUP and waits for its cleanup.
///
/// - Returns: The result of `body`, or nil after a signal.
private func untilSignalled<Value: Sendable>(
  _ body: @escaping @Sendable () async throws -> Value
) async throws -> Value? {
  let signals = await UnixSignalsSequence(trapping: .sigint, .sigterm, .sighup)
  let work = Task { try await body() }
  let watch = Task {
    for await _ in signals {
      work.cancel()
      return true
    }
    return false
  }
  let result = await work.result
  watch.cancel()
  return await watch.value ? nil : try result.get()
}

extension Logger.Level {
  fileprivate static func argument(_ text: String) throws -> Self {
    guard let level = Self(rawValue: text) else {
      throw ValidationError("must be trace, debug, info, notice, warning, error or critical")
    }
    return level
  }
}

extension BenchSubject: ExpressibleByArgument {}

extension FuzzTarget: ExpressibleByArgument {}

enum BenchFormat: String, CaseIterable, ExpressibleByArgument, Sendable {
  case table, json
}

struct BenchCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "bench",
    abstract: "Runs benchmarks, each next to a limit measured in the same run.",
    discussion: """
      reads: entitlements over HTTP, 64 connections, random accounts, after each was read once: \
      with the cache of TENURE_READ_CACHE, without, and through the router. Limits: a bare NIO \
      server that answers the same bytes, and pgbench's prepared query of the same table. \
      submissions: receipts and signed transactions from request to decision, with Apple's \
      response at hand. notifications: renewals from request to decision. Limit of both: the \
      smallest durable write; both print what PostgreSQL does for each. \
      signatures: signed transactions and notifications verified on one core, with cached and new \
      certificates. Limit: bare signature verification. jobs: expiring orders through the job \
      queue and a worker. Limit: pgbench with the same SKIP LOCKED. polling: ended subscriptions, \
      planned, polled and their renewals recorded, with Apple simulated in the same process. \
      Limit: the bare SQL of the writes. import: lines of a file of owners. Limit: psql's COPY of \
      the rows that it writes. Rounds of both sides alternate, and medians are printed; polling \
      has one round. A million polls take an hour: tenure bench polling --subscriptions 1000000 \
      --polls 1000000.

      growth (not part of all): entitlement reads without a cache with ten million accounts, next \
      to a hundredth of them, each with its own PostgreSQL and server. Takes five minutes and 6 GB \
      of disk space. Also the entries and bytes that a customer adds in a year with a launch and a \
      poll every day, next to the bytes that Apple signed.

      audit, what-if (not part of all): the audit of a ledger of customers with two charges each, \
      that of its accounts alone, and its comparison with the present rule. Limit: reading and \
      hashing the entries.

      distributed (not part of all): submissions, and entitlement reads of one and of 20 accounts, \
      one after another, on the Citus whose coordinator --url names. Limit: the same on a plain \
      PostgreSQL.

      reports (not part of all): every report and page on a large ledger with three years of \
      history, each requested twice. Exit status 1 if one neither answers nor reports progress \
      within two seconds. Also entitlement reads while reports run, next to the same reads alone. \
      First fills the database: records a few hundred sample customers and copies them with other \
      numbers and dates. Rows that neither reports nor pages read are left out (submissions, \
      Apple's responses, published entitlements); entries, notifications and events exist for \
      every tenth customer. A million subscriptions take about 20 minutes and 30 GB; --database \
      keeps them for the next run.

      Uses a private PostgreSQL in the temporary directory, with a quarter of the memory as shared \
      buffers, and removes it afterwards. Requires pgbench and wrk (Debian packages postgresql and \
      wrk); signatures and polling need neither, jobs only pgbench, growth only wrk, import only \
      psql. Compare ratios: absolute figures depend on the machine and its load.
      """)

  @Argument(help: "Benchmark to run.")
  var subject = BenchSubject.all

  @Option(
    help: """
      Number of accounts, each with one subscription. (default: 1000000; growth: 10000000; \
      audit and what-if: 10000)
      """)
  var accounts: Int?

  @Option(help: "Seconds per side of a round.")
  var seconds = 10

  @Option(help: "Number of rounds; the median counts.")
  var rounds = 3

  @Option(
    help: """
      Number of subscriptions: due ones for polling, all for reports. (default: 100000; reports: \
      1000000)
      """)
  var subscriptions: Int?

  @Option(help: "Number of subscriptions that are polled.")
  var polls = 10_000

  @Option(help: "Number of lines of the imported file.")
  var lines = 200_000

  @Option(
    help: """
      Memory for answers of the server that reads measures, such as 256MB. (default: \
      TENURE_READ_CACHE, or 64MB)
      """)
  var readCache: String?

  @Option(help: "Output format: table or json.")
  var format = BenchFormat.table

  @Option(
    name: [.customLong("database-url"), .customLong("url")],
    help: "An empty database to use instead of a private one; emptied again afterwards.",
    transform: { Secret($0) })
  var databaseURL: Secret<String>?

  @Option(
    help: "Directory that keeps the private database of reports for the next run.",
    completion: .directory)
  var database: String?

  func validate() throws {
    guard (1...100_000_000).contains(accounts ?? 1) else {
      throw ValidationError("--accounts must be from 1 to 100000000.")
    }
    guard (1...3600).contains(seconds) else {
      throw ValidationError("--seconds must be from 1 to 3600.")
    }
    guard (1...1000).contains(rounds) else {
      throw ValidationError("--rounds must be from 1 to 1000.")
    }
    guard (1...100_000_000).contains(subscriptions ?? 1) else {
      throw ValidationError("--subscriptions must be from 1 to 100000000.")
    }
    guard
      subject == .reports
        || (1...(subscriptions ?? PollingBenchmark.subscriptions)).contains(polls)
    else {
      throw ValidationError("--polls must be from 1 to the number of subscriptions.")
    }
    guard (1...100_000_000).contains(lines) else {
      throw ValidationError("--lines must be from 1 to 100000000.")
    }
    guard databaseURL?.revealed.isEmpty != true else {
      throw ValidationError("--database-url must not be empty.")
    }
    guard database == nil || subject == .reports && database?.isEmpty == false else {
      throw ValidationError("--database must name a directory, and applies to reports only.")
    }
    guard subject != .growth || databaseURL == nil else {
      throw ValidationError("--database-url can't be used with growth, which needs two databases.")
    }
    guard subject != .distributed || databaseURL != nil else {
      throw ValidationError("distributed needs --url, the coordinator of a Citus.")
    }
    guard database == nil || databaseURL == nil else {
      throw ValidationError("--database and --database-url can't be combined.")
    }
  }

  func run() async throws {
    let logger = Logger.bootstrapTenure(level: .notice)
    #if DEBUG
      logger.warning("Debug build: figures are meaningless, use swift build -c release")
    #endif
    let report = try await BenchRun(
      subject: subject, databaseURL: databaseURL, accounts: accounts, seconds: seconds,
      rounds: rounds, subscriptions: subscriptions, polls: polls, lines: lines,
      readCache: readCache,
      databaseDirectory: database.map { URL(filePath: $0, directoryHint: .isDirectory) },
      logger: logger
    ).run()
    guard let report else { throw ExitCode(130) }
    switch format {
    case .table: print(report.table)
    case .json: print(try report.json)
    }
    guard report.isMet else { throw ExitCode(1) }
  }
}

struct FuzzCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "fuzz", abstract: "Fuzzes the parsers of external input.",
    discussion: """
      Feeds samples, mutated from a seed, to the parsers: json, jws, notification, verify-receipt, \
      receipt. Each target runs in its own process, which must not crash, take longer than \
      \(FuzzWatch.longestInput) for an input or need more than \
      \(FuzzWatch.largestMemory >> 20) MB. Forged input must be refused, and parsed input must \
      survive a round trip. Signatures differ between runs, so inputs that fail are kept for \
      --replay.
      """,
    shouldDisplay: false)

  @Option(help: "Parser to fuzz. (default: all, one after another)")
  var target: FuzzTarget?

  @Option(help: "Seconds per target.")
  var seconds = 60

  @Option(help: "Seed of the mutations. (default: random, printed)")
  var seed: UInt64?

  @Option(help: "Directory with more samples (JSON files), such as Tests/AppStoreTests/Samples.")
  var samples: String?

  @Option(help: "Directory of a kept input to replay in this process.")
  var replay: String?

  @Option(help: .hidden)
  var worker: String?

  func validate() throws {
    guard (1...86_400).contains(seconds) else {
      throw ValidationError("--seconds must be from 1 to 86400.")
    }
    guard replay == nil || target != nil else {
      throw ValidationError("--replay requires --target.")
    }
  }

  func run() async throws {
    let seed = seed ?? UInt64.random(in: 1...999_999_999)
    if let target, let worker {
      try await work(target, seed: seed, in: FuzzDirectory(url: URL(filePath: worker)))
    } else if let target, let replay {
      try await tryAgain(target, FuzzDirectory(url: URL(filePath: replay)))
    } else {
      try await watch(target.map { [$0] } ?? FuzzTarget.allCases, seed: seed)
    }
  }

  private func work(_ target: FuzzTarget, seed: UInt64, in directory: FuzzDirectory) async throws {
    let subject = try target.subject(samples: FuzzSamples(folder: samples))
    let run = FuzzRun(subject: subject, directory: directory)
    let summary = try await run.run(seed: seed, for: .seconds(seconds))
    print("\(summary.inputs) inputs, \(summary.accepted) accepted")
  }

  private func tryAgain(_ target: FuzzTarget, _ directory: FuzzDirectory) async throws {
    let context = try String(contentsOf: directory.context, encoding: .utf8)
    let subject = try target.subject(
      samples: FuzzSamples(folder: samples), context: context.isEmpty ? nil : context)
    let isAccepted = try await subject.accepts(Array(Data(contentsOf: directory.input)))
    print(isAccepted ? "accepted" : "refused")
  }

  private func watch(_ targets: [FuzzTarget], seed: UInt64) async throws {
    print("seed \(seed)")
    guard let executable = Bundle.main.executableURL else {
      throw FuzzFinding("The path of this executable is unknown.")
    }
    var isBroken = false
    for target in targets {
      let url = FileManager.default.temporaryDirectory
        .appending(path: "tenure-fuzz-\(target.rawValue)-\(UUID().uuidString.prefix(8))")
      let path = url.path(percentEncoded: false)
      try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
      let arguments = [
        "fuzz", "--target", target.rawValue, "--seconds", "\(seconds)", "--seed", "\(seed)",
        "--worker", path,
      ]
      let process = try ChildProcess(
        executable, arguments + (samples.map { ["--samples", $0] } ?? []), in: url)
      let outcome = try await FuzzWatch(process: process, directory: FuzzDirectory(url: url))
        .outcome()
      if let finding = outcome.finding {
        isBroken = true
        print("\(target.rawValue): \(finding)")
        print("  tenure fuzz --target \(target.rawValue) --replay \(path)")
      } else {
        let memory = outcome.memory.map { ", at most \($0 >> 20) MB" } ?? ""
        let summary = outcome.output.trimmingCharacters(in: .whitespacesAndNewlines)
        print("\(target.rawValue): \(summary)\(memory)")
        try FileManager.default.removeItem(at: url)
      }
    }
    if isBroken { throw ExitCode.failure }
  }
}

struct SimulateAppStoreCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "simulate-app-store",
    abstract: "Runs a simulated App Store: receipts, signed data, notifications, Server API.",
    discussion: """
      Set TENURE_APPSTORE_VERIFY_RECEIPT_URL to http://HOST:PORT/verifyReceipt, \
      TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL to http://HOST:PORT/sandbox/verifyReceipt, \
      TENURE_APPSTORE_API_URL to http://HOST:PORT, TENURE_APPSTORE_SANDBOX_API_URL to \
      http://HOST:PORT/sandbox, TENURE_APPSTORE_ROOT_CERTIFICATES to the file of \
      --root-certificate-out, TENURE_APPSTORE_PRIVATE_KEY to the file of --api-key-out (keys are \
      new at every start), TENURE_BUNDLE_IDS to \(SimulatedApp.sample.bundleID) and \
      TENURE_APPSTORE_SHARED_SECRET to \(SimulatedApp.sample.sharedSecret). GET /simulator \
      describes how to make customers buy, renew, cancel and request refunds.
      """)

  @Option(help: "Address to listen on.")
  var host = "127.0.0.1"

  @Option(help: "Port to listen on, 0 for a free one.")
  var port = 8090

  @Option(help: "Seed; the same seed and requests give the same responses.")
  var seed: UInt64 = 1

  @Option(help: "Clock speed relative to real time; 0 stops it between explicit changes.")
  var speed: Double = 1

  @Option(
    help: ArgumentHelp(
      "Where to write the root certificate of all signatures (PEM).", valueName: "file"))
  var rootCertificateOut: String?

  @Option(
    help: ArgumentHelp(
      "Where to write the Server API key (.p8); also prints its settings.",
      valueName: "file"))
  var apiKeyOut: String?

  @Option(
    help: ArgumentHelp(
      "URL for the sample app's notifications, production and sandbox.", valueName: "url"))
  var notifyURL: String?

  @Option(help: "Notification version: v1, v2, both, or v1-before-2021.")
  var notifyVersion = SimulatedNotification.Version.v2.rawValue

  @Option(help: "Rate limit of the Server API as a multiple of Apple's. (default: no limit)")
  var rateLimitScale: Double?

  @Option(help: "Log level.", transform: Logger.Level.argument)
  var logLevel = Logger.Level.info

  func validate() throws {
    guard (0...65_535).contains(port) else {
      throw ValidationError("--port must be from 0 to 65535.")
    }
    guard speed >= 0, speed <= 10_000_000 else {
      throw ValidationError("--speed must be from 0 to 10000000.")
    }
    guard SimulatedNotification.Version.list(notifyVersion) != nil else {
      throw ValidationError("--notify-version must be v1, v2, both or v1-before-2021.")
    }
    if let rateLimitScale, !(0...1_000_000).contains(rateLimitScale) {
      throw ValidationError("--rate-limit-scale must be from 0 to 1000000.")
    }
    if let notifyURL {
      let parts = URLComponents(string: notifyURL)
      guard ["http", "https"].contains(parts?.scheme?.lowercased()), parts?.host?.isEmpty == false
      else {
        throw ValidationError(
          "--notify-url must be a URL such as http://127.0.0.1:8080/v1/appstore/notifications.")
      }
    }
  }

  func run() async throws {
    let logger = Logger.bootstrapTenure(level: logLevel)
    let simulation = try AppStoreSimulation(
      configuration: .init(
        seed: seed, start: .now, speed: speed, rateLimitScale: rateLimitScale))
    try writeFiles(of: simulation)
    if let notifyURL {
      let versions = SimulatedNotification.Version.list(notifyVersion) ?? []
      try simulation.setNotificationTargets(
        versions.map { NotificationTarget($0, url: notifyURL) })
    }
    try await withHTTPClient { client in
      let server = AppStoreSimulatorServer(
        simulation: simulation, configuration: .init(host: host, port: port),
        sender: NotificationSender(
          simulation: simulation, transport: HTTPClientTransport(client: client)),
        logger: logger)
      let group = ServiceGroup(
        services: [server], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
      do {
        try await group.run()
      } catch {
        throw SettingError(
          listeningOn: host, named: "--host", port: port, named: "--port", error) ?? error
      }
    }
  }

  /// Writes the files that a server needs to trust and query this App Store.
  private func writeFiles(of simulation: AppStoreSimulation) throws {
    if let rootCertificateOut {
      try write(
        simulation.rootCertificatePEM, to: rootCertificateOut, named: "--root-certificate-out",
        mode: 0o644)
    }
    if let apiKeyOut {
      try write(
        simulation.apiKey.privateKeyPEM, to: apiKeyOut, named: "--api-key-out", mode: 0o600)
      // Unbuffered, because scripts that start a server read it from a pipe.
      try FileHandle.standardOutput.write(
        contentsOf: Data(
          """
          TENURE_APPSTORE_ISSUER_ID=\(simulation.apiKey.issuerID)
          TENURE_APPSTORE_KEY_ID=\(simulation.apiKey.keyID)
          TENURE_APPSTORE_PRIVATE_KEY=\(apiKeyOut)

          """.utf8))
    }
  }

  private func write(_ text: String, to path: String, named option: String, mode: Int) throws {
    let files = FileManager.default
    let fault = SettingError(option, "\(path) can't be written")
    // Replaces only a file of an earlier start, never a directory, device or link.
    if let type = try? files.attributesOfItem(atPath: path)[.type] as? FileAttributeType {
      guard type == .typeRegular, (try? files.removeItem(atPath: path)) != nil else { throw fault }
    }
    let attributes: [FileAttributeKey: Any] = [.posixPermissions: mode]
    guard files.createFile(atPath: path, contents: Data(text.utf8), attributes: attributes) else {
      throw fault
    }
  }
}
