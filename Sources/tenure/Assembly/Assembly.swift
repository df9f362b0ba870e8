import AppStore
import AsyncHTTPClient
import BackgroundJobs
import Foundation
import HTTPAPI
import Intake
import LedgerStorage
import Logging
import Postgres
import ServiceLifecycle
import Subscriptions

/// The programs put together: one place for `serve`, `work`, the demo and the benchmarks.
struct Assembly: Sendable {
  let ledger: Ledger
  let catalogue: CatalogueCache
  let intake: SubmissionIntake
  let notifications: NotificationIntake
  let entitlements: EntitlementReader
  /// What verifies signed transactions and notifications.
  let signedData: SignedDataVerifier
  /// What asks the App Store Server API; nil without a key for it.
  let serverAPI: AppStoreServerAPI?
  private let schema: SchemaMigrator
  private let logger: Logger
  private let now: @Sendable () -> Timestamp

  /// - Parameters:
  ///   - database: Open, its schema up to date.
  ///   - settings: Checked.
  ///   - transport: The way to Apple.
  ///   - logger: The program's.
  ///   - now: The clock; the demo has one that runs fast.
  /// - Throws: ``SettingError``, or what the database says.
  init(
    database: ConnectionPool, settings: Settings, transport: any AppStoreTransport,
    logger: Logger, now: @escaping @Sendable () -> Timestamp = { .now }
  ) async throws {
    let apps = try settings.appStoreApps()
    let receipts = ReceiptVerifier(
      transport: transport, endpoints: settings.verifyReceipt, apps: apps,
      timeout: settings.appStoreTimeout, logger: logger, now: now)
    signedData = SignedDataVerifier(
      roots: settings.trustedRoots, apps: apps, acceptsXcode: settings.acceptsXcode, now: now)
    let signedData = signedData
    serverAPI = settings.serverAPIKey.map { key in
      AppStoreServerAPI(
        transport: transport, addresses: settings.serverAPIAddresses, key: key,
        verifier: signedData, timeout: settings.appStoreTimeout, logger: logger, now: now)
    }
    if settings.acceptsXcode {
      logger.warning(
        """
        What Xcode made is accepted, as of the sandbox, and Apple did not sign it: anybody can \
        make it. TENURE_APPSTORE_ACCEPT_XCODE is for development only
        """)
    }
    ledger = Ledger(database: database)
    catalogue = try await CatalogueCache(ledger: ledger, logger: logger)
    intake = SubmissionIntake(
      ledger: ledger, receipts: receipts, signedData: signedData, catalogue: catalogue,
      sandboxAccess: settings.sandboxAccess,
      provisionalAccess: settings.provisionalAccess.map {
        ProvisionalAccess(
          receipts: LocalReceiptVerifier(
            roots: settings.trustedReceiptRoots, apps: apps, acceptsXcode: settings.acceptsXcode),
          longest: $0)
      },
      logger: logger, now: now)
    notifications = NotificationIntake(
      ledger: ledger, receipts: receipts, signedData: signedData, apps: apps,
      catalogue: catalogue, sandboxAccess: settings.sandboxAccess, logger: logger, now: now)
    entitlements = EntitlementReader(
      ledger: ledger, catalogue: catalogue, sandboxAccess: settings.sandboxAccess)
    if try await ledger.publish(settings.sandboxAccess) {
      logger.notice("The view current_entitlement follows this program's TENURE_SANDBOX_ACCESS now")
    }
    schema = SchemaMigrator(database: database, logger: logger)
    self.logger = logger
    self.now = now
  }

  func api(keys: APIKeys) -> API {
    API(
      ledger: ledger, intake: intake, notifications: notifications, catalogue: catalogue,
      entitlements: entitlements,
      schema: schema, keys: keys, logger: logger, now: now)
  }

  /// Tells workers apart that hold jobs: in containers, hosts and process ids can be the same.
  private static var workerName: String {
    let process = ProcessInfo.processInfo
    return "\(process.hostName)-\(process.processIdentifier)-\(UUID().uuidString.prefix(8))"
  }

  func worker() -> Worker {
    Worker(
      ledger: ledger, intake: intake, notifications: notifications,
      name: Self.workerName,
      logger: logger, now: now)
  }
}

/// Keeps the catalogue fresh for as long as a program runs.
struct CatalogueRefresh: Service {
  let catalogue: CatalogueCache

  func run() async throws {
    await cancelWhenGracefulShutdown { await catalogue.run() }
  }
}

extension Timestamp {
  /// The system's clock.
  static var now: Timestamp {
    Timestamp(milliseconds: Int64((Date().timeIntervalSince1970 * 1000).rounded(.down)))
  }
}
