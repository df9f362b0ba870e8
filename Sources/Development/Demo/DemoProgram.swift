import AppStore
import AppStoreSimulator
import AsyncHTTPClient
import BackgroundJobs
import Bootstrap
import Foundation
import HTTPAPI
import HTTPTypes
import Hummingbird
import Intake
import JSONText
import LedgerStorage
import Logging
import NIOCore
import Postgres
import PrivatePostgres
import Reports
import Secrets
import ServiceLifecycle
import Subscriptions
import Synchronization
import UnixSignals

/// `tenure demo`: starts its parts in order and stops them in reverse.
struct DemoProgram {
  /// The address on which all servers listen.
  let host: String
  /// The API's port; the App Store and the simulated year have the next two.
  ///
  /// 0 or nil selects free ports; with nil, the API has 8080 unless that is taken.
  let port: Int?
  /// The number of customers in the simulated year; 0 skips it.
  let customers: Int
  /// Whether to end after the story.
  let exits: Bool
  let logger: Logger
  /// The path of the log.
  let log: String

  /// - Returns: Whether every outcome was as expected.
  func run() async throws -> Bool {
    StoryPrinter().line("Starting a private PostgreSQL, a simulated App Store and Tenure …")
    return try await withOwnServer { postgres, directory in
      try await withDatabase(await postgres.uri()) { database in
        try await withAppStore { simulation, simulatorPort in
          let receiver = DemoReceiver(logger: logger) { simulation.now }
          return try await withServices([receiver], logger: logger) {
            // The stories include notifications that get lost, so polling is off.
            let settings = try DemoSettings(
              in: directory, simulation: simulation, port: simulatorPort, pollsPerHour: 0,
              webhookURL: try await receiver.url)
            return try await withHTTPClient { client in
              try await narrate(
                database, simulation, simulatorPort, settings, client,
                year: { try await liveThroughYear(in: postgres, directory) },
                showingYear: { try await showYear(in: postgres, directory, to: $0, $1) })
            }
          }
        }
      }
    }
  }

  private func narrate(
    _ database: ConnectionPool, _ simulation: AppStoreSimulation, _ simulatorPort: Int,
    _ files: DemoSettings, _ client: HTTPClient,
    year: @escaping @Sendable () async throws -> YearComparison?,
    showingYear: @escaping DemoStory.ShowingYear
  ) async throws -> Bool {
    let keys = DemoKeys()
    let settings = try await files.read(keys: keys)
    let transport = HTTPClientTransport(client: client)
    let network = DemoNetwork(transport: transport)
    let webhook = settings.webhook.map { WebhookSender(to: $0) }
    let assembly = try await Assembly(
      database: database, settings: settings, transport: network, webhook: webhook, logger: logger,
      clock: .jumping { simulation.now })
    let server = DemoServer(
      api: assembly.api(keys: try settings.apiKeys()), host: host, port: port)
    guard let serverAPI = assembly.serverAPI else {
      preconditionFailure("The demo's settings have a key for the App Store Server API.")
    }
    let story = DemoStory(
      simulation: simulation, network: network, ledger: assembly.ledger, server: server,
      client: client, sender: NotificationSender(simulation: simulation, transport: transport),
      serverAPI: serverAPI, keys: keys, simulatorPort: simulatorPort, settingsPath: files.path,
      log: log,
      poll: { _ = try await assembly.poll.pollNow($0) },
      year: year, showingYear: showingYear, exits: exits)
    let services: [any Service] =
      [server, assembly.catalogueRefresh] + assembly.worker()
    // Services are stopped in reverse order: the story first.
    let group = ServiceGroup(
      configuration: ServiceGroupConfiguration(
        services: services.map { .init(service: $0) } + [
          .init(service: story, successTerminationBehavior: .gracefullyShutdownGroup)
        ],
        gracefulShutdownSignals: [.sigterm, .sigint], logger: logger))
    try await ending(webhook, with: { await webhook?.shutDown() }) { _ in try await group.run() }
    return story.isAsExpected
  }

  // MARK: Parts

  /// Runs a body with a private PostgreSQL, which is removed afterwards.
  private func withOwnServer(
    _ body: (PrivatePostgres, _ directory: URL) async throws -> Bool
  ) async throws -> Bool {
    let directory = FileManager.default.temporaryDirectory
      .appending(path: "tenure-demo-\(ProcessInfo.processInfo.processIdentifier)")
    let server = try await PrivatePostgres.start(
      in: directory, options: .temporary, logger: logger)
    do {
      let result = try await body(server, directory)
      await server.stop()
      return result
    } catch {
      await server.stop()
      throw error
    }
  }

  /// Runs a body with a database whose schema is up to date.
  private func withDatabase<Value>(
    _ uri: String, _ body: (ConnectionPool) async throws -> Value
  ) async throws -> Value {
    let pool = ConnectionPool(configuration: .init(uri: Secret(uri)), logger: logger)
    return try await Database(pool: pool, server: nil).use { database in
      _ = try await SchemaMigrator(
        database: database, reports: ReportSQL(Report.sql), logger: logger
      ).migrate()
      return try await body(database)
    }
  }

  /// Simulates a year with its own database, App Store and server.
  private func liveThroughYear(
    in postgres: PrivatePostgres, _ directory: URL
  ) async throws -> YearComparison? {
    guard customers > 0 else { return nil }
    try await withDatabase(await postgres.uri()) {
      try await SchemaMigrator.createDatabase(Self.yearName, on: $0)
    }
    let files = directory.appending(path: Self.yearName)
    try FileManager.default.createDirectory(at: files, withIntermediateDirectories: true)
    return try await withDatabase(await postgres.uri(database: Self.yearName)) { database in
      let diary = YearDiary(printer: StoryPrinter())
      let comparison = try await yearWorld.live(in: database, directory: files) { diary.note($0) }
      diary.close(comparison)
      return comparison
    }
  }

  /// Serves the admin UI of the simulated year, if there was one, while a body runs.
  private func showYear(
    in postgres: PrivatePostgres, _ directory: URL, to keys: DemoKeys,
    _ body: @escaping @Sendable (String?) async throws -> Void
  ) async throws {
    guard customers > 0 else { return try await body(nil) }
    let files = directory.appending(path: Self.yearName)
    try await withDatabase(await postgres.uri(database: Self.yearName)) { database in
      try await yearWorld.show(
        database, directory: files, host: host, port: port(after: 2), to: keys
      ) { try await body($0) }
    }
  }

  /// The name of the year's database and of its directory.
  private static let yearName = "year"

  private var yearWorld: YearEnvironment {
    YearEnvironment(plan: YearPlan(seed: 1, customers: customers), logger: logger)
  }

  /// Runs a simulated App Store that starts in the past, until Tenure has stopped calling it.
  private func withAppStore(
    _ body: (AppStoreSimulation, _ port: Int) async throws -> Bool
  ) async throws -> Bool {
    let (today, time) = Timestamp.now.dayAndTime
    let start = Timestamp(
      today.adding(months: -DemoStory.monthsBeforeNow), millisecondOfDay: time)
    let simulation = try AppStoreSimulation(
      configuration: AppStoreSimulation.Configuration(
        seed: 1, start: start, speed: 1, apps: [DemoCatalogue.app],
        renewalLead: .hours(22) ... .hours(22)))
    let port = port(after: 1)
    let server = AppStoreSimulatorServer(
      simulation: simulation, configuration: .init(host: host, port: port), logger: logger)
    do {
      return try await withServices([server], logger: logger) {
        try await body(simulation, server.port)
      }
    } catch {
      throw SettingError(
        listeningOn: host, named: "--all-interfaces", port: port,
        named: "the App Store's port (--port + 1)", error) ?? error
    }
  }

  /// The port at a distance from the API's; 0 for a free one.
  private func port(after distance: Int) -> Int {
    guard let port, port > 0 else { return 0 }
    return port + distance
  }
}

/// The API on a given port or, without one, on 8080 or a free port.
struct DemoServer: Service {
  /// The default address, and the one in all URLs.
  static let host = "127.0.0.1"
  private static let usualPort = 8080

  private let api: API
  private let host: String
  private let wantedPort: Int?
  private let ports = AsyncStream.makeStream(of: Int.self)

  init(api: API, host: String = Self.host, port: Int?) {
    self.api = api
    self.host = host
    wantedPort = port
  }

  /// The port on which the server listens, once it does.
  ///
  /// - Throws: `CancellationError` if the server ends first.
  var port: Int {
    get async throws {
      for await port in ports.stream { return port }
      throw CancellationError()
    }
  }

  func run() async throws {
    defer { ports.continuation.finish() }
    do {
      try await serve(at: wantedPort ?? Self.usualPort)
    } catch {
      let fault = SettingError(
        listeningOn: host, named: "--all-interfaces", port: wantedPort ?? Self.usualPort,
        named: "--port", error)
      guard let fault else { throw error }
      guard wantedPort == nil else { throw fault }
      try await serve(at: 0)
    }
  }

  private func serve(at port: Int) async throws {
    let listening = ports.continuation
    try await api.application(host: host, port: port) { listening.yield($0) }.run()
  }
}

/// The app server's receiver of events.
///
/// Today it fails at regular intervals, so that the log of attempts has some that were repeated. On
/// earlier days it doesn't: the simulated clock would have passed the time of retries.
struct DemoReceiver: Service {
  private static let failureInterval = 5

  private let logger: Logger
  private let now: @Sendable () -> Timestamp
  private let ports = AsyncStream.makeStream(of: Int.self)

  init(logger: Logger, now: @escaping @Sendable () -> Timestamp) {
    self.logger = logger
    self.now = now
  }

  /// The URL for events, once it listens.
  ///
  /// - Throws: `CancellationError` if it ends first.
  var url: String {
    get async throws {
      for await port in ports.stream { return "http://\(DemoServer.host):\(port)/events" }
      throw CancellationError()
    }
  }

  func run() async throws {
    let requests = Mutex(0)
    let listening = ports.continuation
    defer { listening.finish() }
    let router = Router()
    router.post("/events") { [now] _, _ -> HTTPResponse.Status in
      guard Timestamp.now - now() < .days(1) else { return .noContent }
      let number = requests.withLock { count in
        count += 1
        return count
      }
      return number % Self.failureInterval == 0 ? .serviceUnavailable : .noContent
    }
    try await Application(
      router: router,
      configuration: ApplicationConfiguration(
        address: .hostname(DemoServer.host, port: 0), serverName: nil),
      onServerRunning: { listening.yield($0.localAddress?.port ?? 0) }, logger: logger
    ).run()
  }
}

/// Settings for the simulated App Store, written to files so that other commands can use them.
struct DemoSettings {
  /// The settings file, for `--config`.
  let path: String
  /// The same settings by name, for a process's environment.
  let values: [String: String]

  init(
    in directory: URL, simulation: AppStoreSimulation, port: Int, pollsPerHour: Int = 144_000,
    webhookURL: String? = nil
  ) throws {
    func write(_ text: String, to name: String) throws -> String {
      let path = directory.appending(path: name).path(percentEncoded: false)
      // A key is for its owner only.
      guard
        FileManager.default.createFile(
          atPath: path, contents: Data(text.utf8), attributes: [.posixPermissions: 0o600])
      else { throw CocoaError(.fileWriteUnknown) }
      return path
    }
    let app = DemoCatalogue.app
    let appStore = "http://\(DemoServer.host):\(port)"
    let key = simulation.apiKey
    let webhook = webhookURL.map {
      [
        "TENURE_WEBHOOK_URL": $0, "TENURE_WEBHOOK_SECRET": UUID().text,
        "TENURE_WEBHOOK_ALLOW_PRIVATE": "on",
      ]
    }
    values = [
      "TENURE_APPS": "\(app.bundleID):\(app.appAppleID):\(app.sharedSecret)",
      "TENURE_APPSTORE_VERIFY_RECEIPT_URL": "\(appStore)/verifyReceipt",
      "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL": "\(appStore)/sandbox/verifyReceipt",
      "TENURE_APPSTORE_API_URL": appStore,
      "TENURE_APPSTORE_SANDBOX_API_URL": "\(appStore)/sandbox",
      "TENURE_APPSTORE_ISSUER_ID": key.issuerID,
      "TENURE_APPSTORE_KEY_ID": key.keyID,
      "TENURE_APPSTORE_PRIVATE_KEY": try write(key.privateKeyPEM, to: "app-store-key.p8"),
      "TENURE_APPSTORE_ROOT_CERTIFICATES": try write(
        simulation.rootCertificatePEM, to: "root.pem"),
      "TENURE_POLLS_PER_HOUR": "\(pollsPerHour)",
    ].merging(webhook ?? [:]) { value, _ in value }
    path = try write(
      values.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)\n" }.joined(), to: "settings")
  }

  /// Reads the file; ignores the environment.
  func read(keys: DemoKeys) async throws -> Settings {
    try Settings(
      await SettingSource(
        flags: ["TENURE_API_KEYS": keys.setting], environment: [:], file: path))
  }
}

/// The demo's API keys, one of each role, freshly generated.
struct DemoKeys: Sendable {
  let app = secret("app")
  let support = secret("support")
  let admin = secret("admin")

  /// The value of `TENURE_API_KEYS`.
  var setting: String { "app:app:\(app),support:support:\(support),admin:admin:\(admin)" }

  /// A secret that is recognizable as a demo's.
  private static func secret(_ role: String) -> String {
    "demo-\(role)-\(UUID().text.prefix(8))"
  }
}

/// The network between Tenure and the simulated App Store, with faults that affect one receipt.
///
/// Faults on Apple's side belong to the simulation; they affect all requests.
final class DemoNetwork: AppStoreTransport {
  /// A response that is held back until the story releases it.
  struct StuckAnswer: Sendable {
    /// Opens when Apple has responded, with its state at that time.
    let isGiven = Latch()
    /// Opened to let the response arrive.
    let mayArrive = Latch()
  }

  private enum Trouble {
    case nothingPasses
    case isStuck(StuckAnswer)
  }

  private let transport: any AppStoreTransport
  private let troubles = Mutex<[String: Trouble]>([:])

  init(transport: any AppStoreTransport) {
    self.transport = transport
  }

  /// Drops all requests about a receipt.
  func cut(_ receipt: String) {
    troubles.withLock { $0[receipt] = .nothingPasses }
  }

  /// Forwards one request about a receipt and holds its response; later requests are dropped.
  func hold(_ receipt: String) -> StuckAnswer {
    let answer = StuckAnswer()
    troubles.withLock { $0[receipt] = .isStuck(answer) }
    return answer
  }

  /// Ends all faults of a receipt.
  func repair(_ receipt: String) {
    troubles.withLock { $0[receipt] = nil }
  }

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    switch takeTrouble(with: String(decoding: request.body, as: UTF8.self)) {
    case nil: return try await transport.send(request)
    case .nothingPasses:
      throw AppStoreTransportError(.connectionLost, detail: "the demo has cut it")
    case .isStuck(let answer):
      let response = try await transport.send(request)
      answer.isGiven.open()
      await answer.mayArrive.wait()
      return response
    }
  }

  private func takeTrouble(with body: String) -> Trouble? {
    troubles.withLock { troubles in
      guard let receipt = troubles.keys.first(where: body.contains) else { return nil }
      let trouble = troubles[receipt]
      troubles[receipt] = .nothingPasses
      return trouble
    }
  }
}

/// A one-time event that tasks can wait for.
struct Latch: Sendable {
  private let stream: AsyncStream<Never>
  private let continuation: AsyncStream<Never>.Continuation

  init() {
    (stream, continuation) = AsyncStream.makeStream()
  }

  func open() {
    continuation.finish()
  }

  /// Waits until the latch is open or the task is cancelled.
  func wait() async {
    for await _ in stream {}
  }
}
