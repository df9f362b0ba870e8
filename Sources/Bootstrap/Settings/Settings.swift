package import AdminSite
package import AppStore
package import BackgroundJobs
import Foundation
package import HTTPAPI
import Intake
package import LedgerStorage
package import Logging
package import Secrets
package import Subscriptions

package struct Settings: Sendable {
  /// Nil for a private PostgreSQL under ``dataDirectory``.
  package var databaseURL: Secret<String>?
  /// The schema's owner; nil for the role in ``databaseURL``.
  package var migrationDatabaseURL: Secret<String>?
  /// The server for LISTEN; nil for ``databaseURL``, unless that is a PgBouncer.
  package var listenDatabaseURL: Secret<String>?
  /// A standby that answers entitlement reads; nil if the primary answers all.
  package var readDatabaseURL: Secret<String>?
  package var readMaxStaleness: Duration = .seconds(5)
  /// The bytes that answers to reads may take in `serve`; 0: none are kept.
  package var readCache = 64 << 20
  package var usesPreparedStatements = true
  package var dataDirectory = ".tenure"
  package var httpHost = "127.0.0.1"
  package var httpPort = 8080
  package var httpMaxConnections = 10_000
  package var metricsHost = "127.0.0.1"
  /// Nil if workers serve no metrics.
  package var metricsPort: Int?
  package var apps: [AppStoreApp] = []
  package var verifyReceipt = AppleURLs.verifyReceipt
  package var appStoreTimeout: Duration = .milliseconds(10_000)
  /// Nil if the App Store Server API is not used.
  package var serverAPIKey: ServerAPIKey?
  /// The key's file; nil if the setting is the key itself.
  package var serverAPIKeyPath: String?
  package var serverAPIAddresses = AppleURLs.serverAPI
  package var writeBackKinds: Set<WriteBack.Kind> = []
  /// The roots of Apple's signed data.
  package var trustedRoots = TrustedRoots.apple
  package var trustedReceiptRoots = TrustedRoots.appleReceipts
  /// Whether to accept transactions that Xcode signed; for development only.
  package var acceptsXcode = false
  package var sandboxAccess = SandboxAccess.all
  /// The maximum provisional access by a receipt while Apple is unavailable; nil for none.
  package var provisionalAccess: Duration?
  package var eventRetention = JobTools.eventRetention
  /// The retention of raw bodies; forever by default.
  package var rawRetention = RawRetention()
  /// The time after which an unpaid order expires.
  package var orderExpiry: Duration = .days(7)
  /// Nil if no events are delivered.
  package var webhook: WebhookReceiver?
  /// Where checkpoints of the ledger are kept besides the database.
  package var checkpoints = CheckpointKeeper.none
  /// Nil if tracing is off.
  package var traces: TraceSettings?
  /// The maximum number of polls per hour, by default four fifths of Apple's rate limit; with 0,
  /// Apple's notification history is not queried either.
  package var pollsPerHour = 144_000
  package var logLevel = Logger.Level.info
  package var logFormat = LogFormat.text
  package var clock = WorkerClock { .now }
  /// Whether a file sets ``clock``; for development only.
  package var isClockSet = false
  /// Names that look like settings but aren't.
  package var unread: [String] = []
  /// Nil: people log in with keys only.
  package var adminProxy: TrustedProxy?
  private var source: SettingSource?
  /// The setting that lists the apps.
  private var appsSetting = "TENURE_BUNDLE_IDS"

  /// Settings that only some programs require.
  package enum Need: CaseIterable {
    case apiKeys, apps
  }

  /// Reads all settings and reports all faults together.
  ///
  /// - Throws: ``SettingError``, or ``SettingErrors`` for more than one fault.
  package init(_ source: SettingSource, needing needs: [Need] = []) throws {
    var faults: [any Error] = []
    func read<Value>(_ value: () throws -> Value?) -> Value? {
      do {
        return try value()
      } catch {
        // Some settings are read more than once.
        if !faults.contains(where: { "\($0)" == "\(error)" }) { faults.append(error) }
        return nil
      }
    }
    func set<Value>(_ setting: inout Value, _ value: () throws -> Value?) {
      if let value = read(value) { setting = value }
    }
    set(&databaseURL) { try Self.databaseURL("DATABASE_URL", source) }
    set(&migrationDatabaseURL) { try Self.databaseURL("TENURE_MIGRATION_DATABASE_URL", source) }
    set(&listenDatabaseURL) { try Self.databaseURL("TENURE_LISTEN_DATABASE_URL", source) }
    set(&readDatabaseURL) { try Self.databaseURL("TENURE_READ_DATABASE_URL", source) }
    // At least a second: with less, every recent write would send reads to the primary.
    set(&readMaxStaleness) {
      try source.duration(
        "TENURE_READ_MAX_STALENESS", in: .seconds, atMost: .seconds(600), example: "5s")
    }
    set(&readCache) {
      try source.bytes(
        "TENURE_READ_CACHE", atLeast: EntitlementCache.smallestLimit, atMost: 64 << 30)
    }
    set(&usesPreparedStatements) { try source.flag("TENURE_DATABASE_PREPARED_STATEMENTS") }
    set(&dataDirectory) { try source.string("TENURE_DATA_DIR") }
    set(&httpHost) { try source.string("TENURE_HTTP_HOST") }
    set(&httpPort) { try source.integer("TENURE_HTTP_PORT", in: 0...65_535) }
    set(&httpMaxConnections) {
      try source.integer("TENURE_HTTP_MAX_CONNECTIONS", in: 1...1_000_000)
    }
    set(&metricsHost) { try source.string("TENURE_METRICS_HOST") }
    set(&metricsPort) { try source.integer("TENURE_METRICS_PORT", in: 0...65_535) }
    let readKeys = read { try source.secret("TENURE_API_KEYS") as Secret<String>?? }
    self.source = source
    if read({ try source.string("TENURE_APPS") }) != nil { appsSetting = "TENURE_APPS" }
    let readApps = read { try Self.apps(source) }
    apps = readApps ?? apps
    set(&verifyReceipt) {
      try Self.urls(
        .verifyReceipt, "TENURE_APPSTORE_VERIFY_RECEIPT_URL",
        "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL", source)
    }
    set(&appStoreTimeout) {
      try source.integer("TENURE_APPSTORE_TIMEOUT_MS", in: 100...600_000).map { .milliseconds($0) }
    }
    if let roots = read({ try Self.trustedRoots(source) }) {
      (trustedRoots, trustedReceiptRoots) = (roots, roots)
    }
    set(&acceptsXcode) { try source.flag("TENURE_APPSTORE_ACCEPT_XCODE") }
    let readServerAPIKey = read { try Self.serverAPIKey(source) as ServerAPIKey?? }
    serverAPIKey = readServerAPIKey ?? nil
    set(&serverAPIKeyPath) { try Self.serverAPIKeyPath(source) }
    set(&serverAPIAddresses) {
      try Self.urls(
        .serverAPI, "TENURE_APPSTORE_API_URL", "TENURE_APPSTORE_SANDBOX_API_URL", source)
    }
    // An unreadable key is one fault, not one more per write-back.
    let hasKey = readServerAPIKey == nil || serverAPIKey != nil
    set(&writeBackKinds) { try Self.writeBackKinds(source, hasKey: hasKey) }
    set(&sandboxAccess) { try Self.sandboxAccess(source) }
    // At most as long as submissions are retried.
    set(&provisionalAccess) {
      try source.duration(
        "TENURE_PROVISIONAL_ACCESS", in: .hours, atMost: RetrySchedule.patienceWithApple,
        or: "off", example: "24h")
    }
    set(&eventRetention) {
      try source.duration(
        "TENURE_EVENT_RETENTION", in: .days, .hours, atMost: .days(36_500), example: "30d or 36h")
    }
    set(&rawRetention) { try Self.rawRetention(source) }
    set(&orderExpiry) {
      try source.duration(
        "TENURE_ORDER_EXPIRY", in: .days, .hours, atMost: .days(3650), example: "7d or 12h")
    }
    set(&webhook) { try Self.webhook(source) }
    set(&adminProxy) { try Self.adminProxy(source) }
    set(&checkpoints) { try Self.checkpoints(source) }
    set(&traces) { try Self.traces(source) }
    set(&pollsPerHour) { try source.integer("TENURE_POLLS_PER_HOUR", in: 0...1_000_000_000) }
    set(&logLevel) { try source.choice("TENURE_LOG_LEVEL") }
    set(&logFormat) { try source.choice("TENURE_LOG_FORMAT") }
    if let file = read({ try source.string("TENURE_CLOCK_FILE").map(ClockFile.init(path:)) }) {
      clock = .jumping { file.now }
      isClockSet = true
    }
    let misspelled = source.unread.map { name, nearest in
      (text: name + (nearest.map { " (did you mean \($0)?)" } ?? ""), isNear: nearest != nil)
    }
    unread = misspelled.map(\.text)
    if needs.contains(.apiKeys), readKeys != nil { _ = read { try apiKeys() } }
    if needs.contains(.apps), readApps != nil { _ = read { try appStoreApps() } }
    // A fault is often a misspelled name: without it, the setting looks missing.
    if !faults.isEmpty {
      faults += misspelled.filter(\.isNear).map {
        SettingError($0.text, "unknown setting")
      }
    }
    if let first = faults.first { throw faults.count == 1 ? first : SettingErrors(all: faults) }
  }

  /// Reads the API keys, each time anew if they are in a file.
  package func apiKeys() throws -> APIKeys {
    let name = "TENURE_API_KEYS"
    guard let text = try source?.secret(name) else {
      throw SettingError(
        name,
        "required: no API keys are configured (name:role:secret, comma separated, role app, "
          + "support or admin)")
    }
    return try SettingError.naming(name) { try APIKeys(parsing: text) }
  }

  package func appStoreApps() throws -> AppStoreApps {
    guard !apps.isEmpty else {
      throw SettingError(
        "TENURE_BUNDLE_IDS",
        "required, unless TENURE_APPS is set: the bundle IDs of the apps to serve")
    }
    return try SettingError.naming(appsSetting) { try AppStoreApps(apps) }
  }

  package func receiptVerifier(for apps: AppStoreApps) -> LocalReceiptVerifier {
    LocalReceiptVerifier(roots: trustedReceiptRoots, apps: apps, acceptsXcode: acceptsXcode)
  }

  // MARK: Reading

  /// Rejects other texts, which libpq would take for the name of a database.
  private static func databaseURL(_ name: String, _ source: SettingSource) throws -> Secret<String>?
  {
    guard let text = try source.string(name) else { return nil }
    guard ["postgresql://", "postgres://"].contains(where: text.hasPrefix) || text.contains("=")
    else {
      throw SettingError(name, "not a valid connection URI (postgresql://USER@HOST/DATABASE)")
    }
    return Secret(text)
  }

  private static func apps(_ source: SettingSource) throws -> [AppStoreApp] {
    let secret = try sharedSecret(source)
    let appleID = try source.integer("TENURE_APP_APPLE_ID", in: 1...Int.max)
    if let text = try source.string("TENURE_APPS") {
      if try source.string("TENURE_BUNDLE_IDS") != nil {
        throw SettingError("TENURE_APPS", "TENURE_BUNDLE_IDS is set too: set only one of them")
      }
      return try text.split(separator: ",").enumerated().map { index, entry in
        // Errors don't repeat the entry: a secret may be in the wrong place.
        let number = index + 1
        let parts = entry.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
          .map { String($0).trimmingCharacters(in: .whitespaces) }
        guard parts.count == 3 else {
          throw SettingError(
            "TENURE_APPS",
            "entry \(number) has \(parts.count) parts: must be "
              + "bundle_id:apple_id:shared_secret, of which the last two may be empty")
        }
        guard parts[1].isEmpty || Int64(parts[1]) != nil else {
          throw SettingError(
            "TENURE_APPS",
            "entry \(number): the Apple ID is not a number: must be the app's number in the "
              + "App Store, or empty")
        }
        return try app(
          "TENURE_APPS", entry: number, bundleID: parts[0], appleID: Int64(parts[1]),
          secret: parts[2].isEmpty ? secret : Secret(parts[2]))
      }
    }
    return try (source.list("TENURE_BUNDLE_IDS") ?? []).enumerated().map { index, id in
      try app(
        "TENURE_BUNDLE_IDS", entry: index + 1, bundleID: id, appleID: appleID.map(Int64.init),
        secret: secret)
    }
  }

  private static func sharedSecret(_ source: SettingSource) throws -> Secret<String>? {
    let name = "TENURE_APPSTORE_SHARED_SECRET"
    let secret = try source.secret(name)
    try SettingError.naming(name) { try AppStoreApp.check(secret) }
    return secret
  }

  private static func app(
    _ name: String, entry: Int, bundleID: String, appleID: Int64?, secret: Secret<String>?
  ) throws -> AppStoreApp {
    try SettingError.naming(name, "entry \(entry): ") {
      try AppStoreApp(bundleID: bundleID, appleID: appleID, sharedSecret: secret)
    }
  }

  private static func trustedRoots(_ source: SettingSource) throws -> TrustedRoots? {
    let name = "TENURE_APPSTORE_ROOT_CERTIFICATES"
    guard let path = try source.string(name) else { return nil }
    let pem = try SettingSource.contents(of: path, for: name, "a file of PEM certificates")
    return try SettingError.naming(name, "\(path): ") { try TrustedRoots(pem: pem) }
  }

  private static func sandboxAccess(_ source: SettingSource) throws -> SandboxAccess {
    let name = "TENURE_SANDBOX_ACCESS"
    let words = try source.list(name)
    switch words?.map({ $0.lowercased() }) {
    case nil, ["all"]: return .all
    case ["none"]: return .none
    case let lowercased? where lowercased.contains("all") || lowercased.contains("none"):
      throw SettingError(name, "must be all, none, or account IDs")
    default: return .accounts(Set((words ?? []).map(AccountID.init(_:))))
    }
  }

  private static func rawRetention(_ source: SettingSource) throws -> RawRetention {
    func days(_ name: String) throws -> Duration? {
      try source.duration(name, in: .days, atMost: .days(36_500), or: "forever", example: "400d")
    }
    return RawRetention(
      submissions: try days("TENURE_RAW_RETENTION"),
      notifications: try days("TENURE_NOTIFICATION_RETENTION"))
  }
}
