import AppStore
import AppStoreSimulator
import ArgumentParser
import Foundation
import Logging
import PrometheusMetrics
import Secrets
import ServiceLifecycle
import Subscriptions
import UnixSignals

/// `tenure demo`: the whole product, with nothing to configure.
struct DemoCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "demo",
    abstract: "Shows everything at once, with no account anywhere and nothing to configure.",
    discussion: """
      Starts a private PostgreSQL, a simulated App Store, the server and the worker, and lets \
      sample customers live through purchases, renewals, account switches and refunds, while \
      Apple's notifications come late, twice, in the wrong order or not at all. Then two hundred \
      customers live through a year on a fast clock, and what Tenure says of each at its end is \
      compared with what the simulated App Store knows. Then it stays up, to be tried with curl, \
      until Ctrl-C, and leaves nothing behind. Settings and the environment are not looked at.
      """)

  @Option(help: "The port of the API. Default: 8080, or a free one if that is taken.")
  var port: Int?

  @Flag(name: .customLong("exit"), help: "End after the story; exit status 1 on any wrong outcome.")
  var exits = false

  @Option(help: "How many customers live through the year; 0: none, and there is no year.")
  var customers = 200

  @Option(help: "Log level.")
  var logLevel = "warning"

  /// A year of more takes hours.
  private static let mostCustomers = 10_000

  func validate() throws {
    guard (0...65_535).contains(port ?? 0) else {
      throw ValidationError("--port is from 0 to 65535.")
    }
    guard (0...Self.mostCustomers).contains(customers) else {
      throw ValidationError("--customers is from 0 to \(Self.mostCustomers).")
    }
    guard Logger.Level(rawValue: logLevel) != nil else {
      throw ValidationError("--log-level is one of trace, debug, info, notice, warning, error.")
    }
  }

  func run() async throws {
    let logger = Logger.bootstrapTenure(level: Logger.Level(rawValue: logLevel) ?? .warning)
    PrometheusRegistry.bootstrapTenure()
    let program = DemoProgram(port: port, customers: customers, exits: exits, logger: logger)
    let isAsExpected = try await program.run()
    if exits, !isAsExpected { throw ExitCode.failure }
  }
}

/// `tenure rehearse`: the day of the switch, before it comes.
struct RehearseCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rehearse",
    abstract: "Plays the day on which a team moves in, and the week after it.",
    discussion: """
      Starts two PostgreSQL, one the other's standby, a simulated App Store with customers of \
      another backend, a server and two workers. The customers are imported and confirmed by \
      Apple, what the other backend says is compared. Notifications come from the beginning. A \
      week passes on a fast clock, in which the schema is upgraded, the database fails over and a \
      worker is killed, each in the middle of the work. In the end what Tenure says of every \
      account is compared with what is true, and the ledger is audited. Exit status 1 if anything \
      is not as it has to be. Settings and the environment are not looked at.
      """)

  @Option(help: "How many customers the other backend has.")
  var owners = 100_000

  @Option(help: "How many customers come in the week.")
  var newcomers = 200

  @Option(help: "The same seed gives the same lives.")
  var seed: UInt64 = 1

  @Option(help: "Log level.")
  var logLevel = "error"

  func validate() throws {
    guard (100...1_000_000).contains(owners) else {
      throw ValidationError("--owners is from 100 to 1000000.")
    }
    guard (0...10_000).contains(newcomers) else {
      throw ValidationError("--newcomers is from 0 to 10000.")
    }
    guard Logger.Level(rawValue: logLevel) != nil else {
      throw ValidationError("--log-level is one of trace, debug, info, notice, warning, error.")
    }
  }

  func run() async throws {
    let logger = Logger.bootstrapTenure(level: Logger.Level(rawValue: logLevel) ?? .error)
    PrometheusRegistry.bootstrapTenure()
    guard let executable = Bundle.main.executableURL else {
      throw Rehearsal.Failure(description: "The path of this program is unknown.")
    }
    let plan = RehearsalPlan(seed: seed, owners: owners, newcomers: newcomers)
    let rehearsal = Rehearsal(plan, executable: executable, logger: logger)
    guard let isWell = try await untilSignalled({ try await rehearsal.run() }) else {
      throw ExitCode(Self.interrupted)
    }
    guard isWell else { throw ExitCode.failure }
  }

  /// The exit status of a shell command that Ctrl-C has ended.
  private static let interrupted: Int32 = 130
}

/// Runs a body until it ends, or until SIGINT, SIGTERM or SIGHUP cancels it; then waits until
/// it has cleaned up.
///
/// - Returns: The body's value; nil if a signal came.
/// - Throws: What the body throws, unless a signal came.
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

/// What `tenure bench` measures.
enum BenchSubject: String, CaseIterable, ExpressibleByArgument, Sendable {
  case reads, submissions, signatures, jobs, polling, `import`, all, growth, reports
}

/// How its results are printed.
enum BenchFormat: String, CaseIterable, ExpressibleByArgument, Sendable {
  case table, json
}

/// `tenure bench`: the benchmarks, each with its limit.
struct BenchCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "bench",
    abstract: "Measures the speed, each figure beside its limit measured in the same run.",
    discussion: """
      reads: entitlements over HTTP, 64 connections, random accounts; beside pgbench's prepared \
      select on the same table, and once more in a way that only the router answers. submissions: \
      receipts decided, Apple's answer at hand; beside the bare SQL of one. signatures: signed \
      transactions and notifications verified on one core, their certificates known and unknown; \
      beside the bare verification of their signatures. jobs: orders that expire, through the \
      queue and a worker; beside pgbench's bare SKIP LOCKED of the same. polling: subscriptions \
      that have ended, found and planned, and then asked about and their renewals recorded, Apple \
      simulated in the same process; beside the bare SQL of the writes. import: the lines of a \
      file of owners; beside psql's COPY of the rows that this writes. Rounds of both sides \
      alternate, and medians are printed; polling has one round. All of a million subscriptions \
      takes an hour: tenure bench polling --subscriptions 1000000 --polls 1000000.

      growth, which is no part of all: entitlement reads of ten million accounts, beside the same \
      reads of a hundredth of them, each with a PostgreSQL and a server of its own. It takes five \
      minutes, and 6 GB on the disk.

      reports, which is no part of all either: every report and every page on a large ledger with \
      three years of history, each asked for twice through a server; it is missed, and the exit \
      status 1, what neither answers nor says that it is working within two seconds. And \
      entitlement reads while somebody asks for one report after the other, beside the same reads \
      alone. Filling comes first: some hundred lives are recorded as the programs do, and copied \
      with other numbers and dates. Left out is what neither reports nor pages read (what was \
      submitted, what Apple answered, what apps were told), and entries, notifications and events \
      are there for every tenth customer only. A million subscriptions take about 20 minutes and \
      30 GB: --database keeps them for the next run.

      Uses a private PostgreSQL in the temporary directory, with a quarter of the memory as its \
      shared buffers, and removes it afterwards. Needs the programs pgbench and wrk (packages \
      postgresql and wrk on Debian); signatures and polling need neither, jobs only pgbench, \
      growth only wrk, import only psql. Trust the ratios: absolute figures depend on the machine \
      and on who else uses it.
      """)

  @Argument(help: "What to measure.")
  var subject = BenchSubject.all

  @Option(
    help: """
      How many accounts there are, each with one subscription (1000000; 10000000 when growth is \
      measured).
      """)
  var accounts: Int?

  @Option(help: "How long each side of a round takes.")
  var seconds = 10

  @Option(help: "How many rounds; their median counts.")
  var rounds = 3

  @Option(
    help: """
      How many subscriptions are due when polling is measured (100000), or there are when reports \
      are (1000000).
      """)
  var subscriptions: Int?

  @Option(help: "How many of them are polled.")
  var polls = 10_000

  @Option(help: "How many lines the imported file has.")
  var lines = 200_000

  @Option(help: "How the results are printed: table or json.")
  var format = BenchFormat.table

  @Option(help: "An empty database to use instead of a private one. What is made in it is removed.")
  var databaseURL: Secret<String>?

  @Option(
    help: "A directory where the private database of the reports is kept for the next run.",
    completion: .directory)
  var database: String?

  func validate() throws {
    guard (1...100_000_000).contains(accounts ?? 1) else {
      throw ValidationError("--accounts is from 1 to 100000000.")
    }
    guard (1...3600).contains(seconds) else {
      throw ValidationError("--seconds is from 1 to 3600.")
    }
    guard (1...1000).contains(rounds) else {
      throw ValidationError("--rounds is from 1 to 1000.")
    }
    guard (1...100_000_000).contains(subscriptions ?? 1) else {
      throw ValidationError("--subscriptions is from 1 to 100000000.")
    }
    guard
      subject == .reports
        || (1...(subscriptions ?? PollingBenchmark.subscriptions)).contains(polls)
    else {
      throw ValidationError("--polls is from 1 to the number of subscriptions.")
    }
    guard (1...100_000_000).contains(lines) else {
      throw ValidationError("--lines is from 1 to 100000000.")
    }
    guard databaseURL?.revealed.isEmpty != true else {
      throw ValidationError("--database-url is empty: leave it out, or give a value.")
    }
    guard database == nil || subject == .reports && database?.isEmpty == false else {
      throw ValidationError("--database names a directory, and is for reports alone.")
    }
    guard subject != .growth || databaseURL == nil else {
      throw ValidationError("--database-url names one database, and growth compares two.")
    }
    guard database == nil || databaseURL == nil else {
      throw ValidationError("--database and --database-url are two ways: give one of them.")
    }
  }

  func run() async throws {
    let logger = Logger.bootstrapTenure(level: .notice)
    #if DEBUG
      logger.warning("This is a debug build: its figures mean nothing (swift build -c release)")
    #endif
    let report = try await BenchRun(
      subject: subject, databaseURL: databaseURL, accounts: accounts, seconds: seconds,
      rounds: rounds, subscriptions: subscriptions, polls: polls, lines: lines,
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

/// `tenure fuzz`: tries to break whatever reads texts from outside.
struct FuzzCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "fuzz", abstract: "Tries to break what reads texts from outside.",
    discussion: """
      Changes samples in ways that follow from a seed, and gives them to the parsers: json, jws, \
      notification, verify-receipt, receipt. Each target runs in a process of its own, which is \
      watched: it must not die, take longer than \(FuzzWatch.longestInput) for an input, or \
      need more than \(FuzzWatch.largestMemory >> 20) MB; what is forged must be refused, and \
      what is read must be what is written of it. Only signatures differ from run to run, so an \
      input that breaks something is kept: --replay tries it again.
      """,
    shouldDisplay: false)

  @Option(help: "What to try; all, one after the other, if it is left out.")
  var target: FuzzTarget?

  @Option(help: "How long each target is tried.")
  var seconds = 60

  @Option(help: "What the inputs follow from; printed where it is left out.")
  var seed: UInt64?

  @Option(help: "A folder with more samples: JSON files, for example Tests/AppStoreTests/Samples.")
  var samples: String?

  @Option(help: "The folder of an input that was kept: tries it once more, in this process.")
  var replay: String?

  @Option(help: .hidden)
  var worker: String?

  func validate() throws {
    guard (1...86_400).contains(seconds) else {
      throw ValidationError("--seconds is from 1 to 86400.")
    }
    guard replay == nil || target != nil else {
      throw ValidationError("--replay needs --target: the parser that the input is for.")
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
    print("\(summary.inputs) inputs, \(summary.accepted) of them accepted")
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
      throw FuzzFinding("The path of this program is unknown.")
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

/// `tenure simulate-app-store`: an Apple of one's own.
struct SimulateAppStoreCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "simulate-app-store",
    abstract: "Runs a simulated App Store: receipts, signed data, notifications, Server API.",
    discussion: """
      Point TENURE_APPSTORE_VERIFY_RECEIPT_URL at http://HOST:PORT/verifyReceipt and \
      TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL at http://HOST:PORT/sandbox/verifyReceipt, \
      TENURE_APPSTORE_API_URL at http://HOST:PORT and TENURE_APPSTORE_SANDBOX_API_URL at \
      http://HOST:PORT/sandbox. TENURE_APPSTORE_ROOT_CERTIFICATES is what --root-certificate-out \
      wrote, TENURE_APPSTORE_PRIVATE_KEY what --api-key-out did; the keys are new at every start. \
      TENURE_BUNDLE_IDS is \(SimulatedApp.sample.bundleID), TENURE_APPSTORE_SHARED_SECRET \
      \(SimulatedApp.sample.sharedSecret). GET /simulator tells how to make customers buy, renew, \
      cancel and ask for refunds.
      """)

  @Option(help: "The address to listen on.")
  var host = "127.0.0.1"

  @Option(help: "The port to listen on, 0 for a free one.")
  var port = 8090

  @Option(help: "The same seed and the same calls give the same answers.")
  var seed: UInt64 = 1

  @Option(help: "How many times faster than the real clock time passes; 0: only when told.")
  var speed: Double = 1

  @Option(
    help: ArgumentHelp(
      "Where to write the root of everything that is signed, as PEM.", valueName: "file"))
  var rootCertificateOut: String?

  @Option(
    help: ArgumentHelp(
      "Where to write the key for the Server API (.p8); prints issuer and key id.",
      valueName: "file"))
  var apiKeyOut: String?

  @Option(
    help: ArgumentHelp(
      "Where notifications of the sample app go, of production and sandbox.", valueName: "url"))
  var notifyURL: String?

  @Option(help: "Which notifications: v1, v2, both, or v1-before-2021.")
  var notifyVersion = SimulatedNotification.Version.v2.rawValue

  @Option(help: "How many times Apple's number of requests the Server API takes; else any number.")
  var rateLimitScale: Double?

  @Option(help: "Log level.")
  var logLevel: String = "info"

  func validate() throws {
    guard (0...65_535).contains(port) else {
      throw ValidationError("--port is from 0 to 65535.")
    }
    guard speed >= 0, speed <= 10_000_000 else {
      throw ValidationError("--speed is from 0 to 10000000.")
    }
    guard SimulatedNotification.Version.list(notifyVersion) != nil else {
      throw ValidationError("--notify-version is one of v1, v2, both, v1-before-2021.")
    }
    if let rateLimitScale, !(0...1_000_000).contains(rateLimitScale) {
      throw ValidationError("--rate-limit-scale is from 0 to 1000000.")
    }
    if let notifyURL {
      let parts = URLComponents(string: notifyURL)
      guard ["http", "https"].contains(parts?.scheme?.lowercased()), parts?.host?.isEmpty == false
      else {
        throw ValidationError(
          "--notify-url is a whole URL, as http://127.0.0.1:8080/v1/appstore/notifications.")
      }
    }
    guard Logger.Level(rawValue: logLevel) != nil else {
      throw ValidationError("--log-level is one of trace, debug, info, notice, warning, error.")
    }
  }

  func run() async throws {
    let logger = Logger.bootstrapTenure(level: Logger.Level(rawValue: logLevel) ?? .info)
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

  /// What a server needs that is to believe this App Store, and to ask it.
  private func writeFiles(of simulation: AppStoreSimulation) throws {
    if let rootCertificateOut {
      try write(
        simulation.rootCertificatePEM, to: rootCertificateOut, named: "--root-certificate-out",
        mode: 0o644)
    }
    if let apiKeyOut {
      try write(
        simulation.apiKey.privateKeyPEM, to: apiKeyOut, named: "--api-key-out", mode: 0o600)
      // At once, also into a pipe: whoever starts a server waits for it.
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
    let fault = SettingError(name: option, fault: "\(path) cannot be written: name another file")
    // Only a file of an earlier start is in the way: folders, devices and links stay as they are.
    if let type = try? files.attributesOfItem(atPath: path)[.type] as? FileAttributeType {
      guard type == .typeRegular, (try? files.removeItem(atPath: path)) != nil else { throw fault }
    }
    let attributes: [FileAttributeKey: Any] = [.posixPermissions: mode]
    guard files.createFile(atPath: path, contents: Data(text.utf8), attributes: attributes) else {
      throw fault
    }
  }
}
