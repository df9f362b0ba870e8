import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import Hummingbird
import HummingbirdTesting
import Intake
import JSONText
import LedgerStorage
import Logging
import NIOCore
import Postgres
import Reports
import ScratchDatabases
import Secrets
import Subscriptions
import Testing

@testable import AdminSite
@testable import HTTPAPI

/// The real assembly over a separate database, with a stand-in for the network to Apple and the
/// simulation's clock.
///
/// Every answer is checked against the OpenAPI document, whatever else a test looks for.
struct TestAPI: Sendable {
  let client: any TestClientProtocol
  let api: API
  let apple: StandInAppStore
  let intake: SubmissionIntake
  let poll: StatusPoller
  let ledger: Ledger
  let database: ConnectionPool

  /// The operator's settings.
  struct Choices: Sendable {
    var sandboxAccess = SandboxAccess.all
    /// Nil: no provisional access.
    var provisionalAccess: Duration?
    /// The enabled write-backs to Apple.
    var writeBackKinds: Set<WriteBack.Kind> = []
    /// Signs people in.
    var proxy: TrustedProxy?
    var installation = Installation()
  }

  /// Runs a test on a fresh one.
  static func run(
    logger: Logger = quietLogger, choices: Choices = Choices(), apple: StandInAppStore? = nil,
    _ setup: TestingSetup = .router,
    _ test: @escaping @Sendable (TestAPI) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      let (api, apple, intake, poll) = try await assemble(
        database, choices: choices, apple: apple, logger: logger)
      // The framework's connection is idle while a test uses a browser.
      var limits = ConnectionLimits()
      limits.idle = .hours(1)
      try await api.application(host: "127.0.0.1", port: 0, limits: limits).test(setup) { client in
        let stage = TestAPI(
          client: client, api: api, apple: apple, intake: intake, poll: poll,
          ledger: api.ledger, database: database)
        try await test(stage)
        // All answers of the tests match the document.
        _ = try await stage.get("/v1/events?limit=1000")
      }
    }
  }

  /// Assembles the services as the program does.
  static func assemble(
    _ database: ConnectionPool, choices: Choices = Choices(), apple: StandInAppStore? = nil,
    logger: Logger = quietLogger
  ) async throws
    -> (api: API, apple: StandInAppStore, intake: SubmissionIntake, poll: StatusPoller)
  {
    let apple = try apple ?? StandInAppStore()
    let clock = apple.simulation.clock
    let now: @Sendable () -> Timestamp = { clock.now }
    let ledger = Ledger(database: database, writeBackKinds: choices.writeBackKinds)
    let catalogue = try await CatalogueCache(ledger: ledger, logger: logger)
    let app = SimulatedApp.sample
    let apps = try AppStoreApps([
      try AppStoreApp(bundleID: app.bundleID, sharedSecret: Secret(app.sharedSecret))
    ])
    let receipts = ReceiptVerifier(
      transport: apple, apps: apps, timeout: .seconds(240), logger: logger, now: now)
    let roots = try TrustedRoots(pem: apple.signer.rootCertificatePEM)
    let signedData = SignedDataVerifier(roots: roots, apps: apps, now: now)
    let services = IntakeServices(
      ledger: ledger, receipts: receipts, signedData: signedData,
      serverAPI: try apple.simulation.serverAPI(over: apple, verifier: signedData), apps: apps,
      catalogue: catalogue, sandboxAccess: choices.sandboxAccess, logger: logger, now: now)
    let intake = SubmissionIntake(
      services,
      provisionalAccess: choices.provisionalAccess.map {
        ProvisionalAccess(receipts: LocalReceiptVerifier(roots: roots, apps: apps), longest: $0)
      })
    let notifications = NotificationIntake(services)
    var api = API(
      ledger: ledger, intake: intake, notifications: notifications, catalogue: catalogue,
      entitlements: EntitlementReader(
        ledger: ledger, catalogue: catalogue, sandboxAccess: choices.sandboxAccess,
        cache: EntitlementCache(
          limit: 1 << 20, ledger: ledger, catalogue: catalogue, logger: logger)),
      reports: ReportReader(database: database),
      schema: SchemaMigrator(database: database, logger: logger),
      keys: try APIKeys(
        parsing: Secret(
          "shop:app:app-secret-for-trying, desk:support:support-secret-for-trying, "
            + "ops:admin:admin-secret-for-trying")),
      logger: logger,
      now: now)
    api.site = AdminSite(
      of: api, proxy: choices.proxy, installation: choices.installation)
    return (api, apple, intake, StatusPoller(services))
  }

  // MARK: Calling

  /// The role whose key is sent.
  enum Caller: String, CaseIterable {
    case anonymous
    case stranger
    case app
    case support
    case admin

    var authorization: String? {
      switch self {
      case .anonymous: nil
      case .stranger: "Bearer no-such-secret"
      case .app: "Bearer app-secret-for-trying"
      case .support: "Bearer support-secret-for-trying"
      case .admin: "Bearer admin-secret-for-trying"
      }
    }
  }

  func call(
    _ method: HTTPRequest.Method, _ path: String, _ body: JSONValue? = nil,
    as caller: Caller = .app, headers: HTTPFields = [:],
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Answer {
    var headers = headers
    if body != nil, !headers.contains(.contentType) { headers[.contentType] = "application/json" }
    return try await send(
      method, path, body?.bytes, as: caller, headers: headers, sourceLocation: sourceLocation)
  }

  func send(
    _ method: HTTPRequest.Method, _ path: String, _ body: [UInt8]?, as caller: Caller = .app,
    headers: HTTPFields = [:], sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Answer {
    var headers = headers
    headers[.authorization] = caller.authorization
    let response = try await client.executeRequest(
      uri: path, method: method, headers: headers, body: body.map { ByteBuffer(bytes: $0) })
    let answer = Answer(
      status: response.status.code, headers: response.headers,
      body: Array(response.body.readableBytesView))
    for fault in OpenAPIDescription.shared.faults(of: answer, to: method, path) {
      Issue.record("\(method) \(path): \(fault)", sourceLocation: sourceLocation)
    }
    return answer
  }

  func get(
    _ path: String, as caller: Caller = .app, sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Answer {
    try await call(.get, path, as: caller, sourceLocation: sourceLocation)
  }

  // MARK: Common first steps

  /// Puts a product into the catalogue that grants one entitlement.
  func describe(
    _ product: ProductID, _ entitlement: String, type: ProductType = .autoRenewable,
    period: String? = nil
  ) async throws {
    _ = try await ledger.products.describe(
      Product(
        id: product, validFrom: api.now(), type: type, entitlements: [entitlement],
        period: period.flatMap { CalendarPeriod(iso8601: $0) }))
    try await api.catalogue.refresh()
  }

  /// Gives the simulation a customer with a device of the same name.
  func addCustomer(_ name: String, environment: Subscriptions.Environment = .production) throws {
    try apple.simulation.addAppleID(AppleID(name), environment: environment)
    try apple.simulation.addDevice(DeviceID(name), appleID: AppleID(name))
  }

  /// Submits the receipt of a customer's device for an account.
  func submit(
    _ account: String, from device: String, _ more: KeyValuePairs<String, JSONValue> = [:],
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Answer {
    let receipt = try apple.simulation.receipt(on: DeviceID(device))
    return try await submit(account, receipt: receipt, more, sourceLocation: sourceLocation)
  }

  func submit(
    _ account: String, receipt: String, _ more: KeyValuePairs<String, JSONValue> = [:],
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Answer {
    try await submit(account, [("receipt_data", .string(receipt))], more, sourceLocation)
  }

  /// Submits signed transactions, with renewal infos if there are any.
  func submit(
    _ account: String, signed transactions: [String], renewalInfo: [String] = [],
    _ more: KeyValuePairs<String, JSONValue> = [:],
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Answer {
    var kinds = [("signed_transactions", JSONValue.array(transactions.map { .string($0) }))]
    if !renewalInfo.isEmpty {
      kinds.append(("signed_renewal_info", .array(renewalInfo.map { .string($0) })))
    }
    return try await submit(account, kinds, more, sourceLocation)
  }

  private func submit(
    _ account: String, _ kinds: [(String, JSONValue)], _ more: KeyValuePairs<String, JSONValue>,
    _ sourceLocation: SourceLocation
  ) async throws -> Answer {
    let members =
      [("account_id", JSONValue.string(account))] + kinds + more.map { ($0.key, $0.value) }
    return try await call(
      .post, "/v1/receipts",
      .object(members.map { JSONValue.Member(key: $0.0, value: $0.1) }),
      sourceLocation: sourceLocation)
  }
}

struct Answer: Sendable, CustomStringConvertible {
  let status: Int
  let headers: HTTPFields
  let body: [UInt8]

  /// The body as JSON; null if it is none.
  var json: JSONValue { (try? JSONValue(parsing: body)) ?? .null }

  /// The members of the body, whichever request asked for them.
  var content: [JSONValue.Member] {
    guard case .object(let members) = json else { return [] }
    return members.filter { $0.key != "request_id" }
  }

  subscript(key: String) -> JSONValue? { json[key] }

  var code: String? { self["code"]?.string }
  var field: String? { self["field"]?.string }
  var text: String { String(decoding: body, as: UTF8.self) }
  var description: String { "\(status) \(text)" }
}

extension JSONValue {
  /// An element of an array; null beyond its end.
  subscript(index: Int) -> JSONValue {
    guard let array, array.indices.contains(index) else { return .null }
    return array[index]
  }
}

extension Ledger {
  /// Claims jobs for submissions and notifications as a worker does.
  func claimJobs(limit: Int, worker: String, at now: Timestamp, lease: Duration) async throws
    -> [Job]
  {
    try await jobs.claimJobs(
      limits: [.submissions: limit, .notifications: limit], worker: worker, at: now, lease: lease)
  }
}
