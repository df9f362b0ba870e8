package import AppStore
package import BackgroundJobs
import Foundation
package import HTTPAPI
import Intake
package import LedgerStorage
package import Logging
package import Secrets
package import Subscriptions

/// The validated settings of a program.
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
  package var usesPreparedStatements = true
  package var dataDirectory = ".tenure"
  package var httpHost = "127.0.0.1"
  package var httpPort = 8080
  /// The maximum number of open connections of `serve`.
  package var httpMaxConnections = 10_000
  /// The address of a worker's `/metrics`.
  package var metricsHost = "127.0.0.1"
  /// Nil if workers serve no metrics.
  package var metricsPort: Int?
  package var apps: [AppStoreApp] = []
  package var verifyReceipt = VerifyReceiptEndpoints.apple
  package var appStoreTimeout: Duration = .milliseconds(10_000)
  /// Nil if the App Store Server API is not used.
  package var serverAPIKey: ServerAPIKey?
  /// The key's file; nil if the setting is the key itself.
  package var serverAPIKeyPath: String?
  package var serverAPIAddresses = ServerAPIAddresses.apple
  /// The enabled write-backs to Apple.
  package var tellings: Set<WriteBack.Kind> = []
  /// The roots of Apple's signed data.
  package var trustedRoots = TrustedRoots.apple
  /// The roots of app receipts.
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
  /// Nil if tracing is off.
  package var traces: TraceSettings?
  /// The maximum number of polls per hour, by default four fifths of Apple's rate limit.
  ///
  /// With 0, neither subscriptions nor Apple's notification history are queried.
  package var pollsPerHour = 144_000
  package var logLevel = Logger.Level.info
  package var logFormat = LogFormat.text
  package var clock = WorkerClock { .now }
  /// Whether a file sets ``clock``; for development only.
  package var isClockSet = false
  /// Names that look like settings but aren't.
  package var unread: [String] = []
  private var apiKeyText: Secret<String>?
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
    databaseURL = read { try Self.databaseURL("DATABASE_URL", source) }
    migrationDatabaseURL = read { try Self.databaseURL("TENURE_MIGRATION_DATABASE_URL", source) }
    listenDatabaseURL = read { try Self.databaseURL("TENURE_LISTEN_DATABASE_URL", source) }
    readDatabaseURL = read { try Self.databaseURL("TENURE_READ_DATABASE_URL", source) }
    readMaxStaleness = read { try Self.readMaxStaleness(source) } ?? readMaxStaleness
    usesPreparedStatements =
      read { try source.flag("TENURE_DATABASE_PREPARED_STATEMENTS") } ?? true
    dataDirectory = read { try source.string("TENURE_DATA_DIR") } ?? dataDirectory
    httpHost = read { try source.string("TENURE_HTTP_HOST") } ?? httpHost
    httpPort = read { try source.integer("TENURE_HTTP_PORT", in: 0...65_535) } ?? httpPort
    httpMaxConnections =
      read { try source.integer("TENURE_HTTP_MAX_CONNECTIONS", in: 1...1_000_000) }
      ?? httpMaxConnections
    metricsHost = read { try source.string("TENURE_METRICS_HOST") } ?? metricsHost
    metricsPort = read { try source.integer("TENURE_METRICS_PORT", in: 0...65_535) }
    let readKeys = read { try source.secret("TENURE_API_KEYS") as Secret<String>?? }
    apiKeyText = readKeys ?? nil
    if read({ try source.string("TENURE_APPS") }) != nil { appsSetting = "TENURE_APPS" }
    let readApps = read { try Self.apps(source) }
    apps = readApps ?? apps
    verifyReceipt = read { try Self.endpoints(source) } ?? verifyReceipt
    if let limit = read({ try source.integer("TENURE_APPSTORE_TIMEOUT_MS", in: 100...600_000) }) {
      appStoreTimeout = .milliseconds(limit)
    }
    if let roots = read({ try Self.trustedRoots(source) }) {
      (trustedRoots, trustedReceiptRoots) = (roots, roots)
    }
    acceptsXcode = read { try source.flag("TENURE_APPSTORE_ACCEPT_XCODE") } ?? acceptsXcode
    let readServerAPIKey = read { try Self.serverAPIKey(source) as ServerAPIKey?? }
    serverAPIKey = readServerAPIKey ?? nil
    serverAPIKeyPath = read { try Self.serverAPIKeyPath(source) }
    serverAPIAddresses = read { try Self.serverAPIAddresses(source) } ?? serverAPIAddresses
    // An unreadable key is one fault, not one more per write-back.
    let hasKey = readServerAPIKey == nil || serverAPIKey != nil
    tellings = read { try Self.tellings(source, hasKey: hasKey) } ?? tellings
    sandboxAccess = read { try Self.sandboxAccess(source) } ?? sandboxAccess
    provisionalAccess = read { try Self.provisionalAccess(source) }
    eventRetention = read { try Self.eventRetention(source) } ?? eventRetention
    rawRetention = read { try Self.rawRetention(source) } ?? rawRetention
    orderExpiry = read { try Self.orderExpiry(source) } ?? orderExpiry
    webhook = read { try Self.webhook(source) }
    traces = read { try Self.traces(source) }
    pollsPerHour =
      read { try source.integer("TENURE_POLLS_PER_HOUR", in: 0...1_000_000_000) } ?? pollsPerHour
    logLevel = read { try Self.logLevel(source) } ?? logLevel
    logFormat = read { try Self.logFormat(source) } ?? logFormat
    if let file = read({ try source.string("TENURE_CLOCK_FILE").map(ClockFile.init(path:)) }) {
      clock = .jumping { file.now }
      isClockSet = true
    }
    unread = source.unread
    if needs.contains(.apiKeys), readKeys != nil { _ = read { try apiKeys() } }
    if needs.contains(.apps), readApps != nil { _ = read { try appStoreApps() } }
    if let first = faults.first { throw faults.count == 1 ? first : SettingErrors(all: faults) }
  }

  /// - Throws: ``SettingError`` if there are no keys.
  package func apiKeys() throws -> APIKeys {
    let name = "TENURE_API_KEYS"
    guard let apiKeyText else {
      throw SettingError(
        name: name,
        fault: "required: no API keys are configured (name:role:secret, comma separated, role app "
          + "or admin)")
    }
    do {
      return try APIKeys(parsing: apiKeyText)
    } catch {
      throw SettingError(name: name, fault: "\(error)")
    }
  }

  /// - Throws: ``SettingError`` if there are no apps.
  package func appStoreApps() throws -> AppStoreApps {
    guard !apps.isEmpty else {
      throw SettingError(
        name: "TENURE_BUNDLE_IDS",
        fault: "required, unless TENURE_APPS is set: the bundle IDs of the apps to serve")
    }
    do {
      return try AppStoreApps(apps)
    } catch {
      throw SettingError(name: appsSetting, fault: "\(error)")
    }
  }

  // MARK: Reading

  /// Rejects other texts, which libpq would take for the name of a database.
  private static func databaseURL(_ name: String, _ source: SettingSource) throws
    -> Secret<String>?
  {
    guard let text = try source.string(name) else { return nil }
    guard ["postgresql://", "postgres://"].contains(where: text.hasPrefix) || text.contains("=")
    else {
      throw SettingError(
        name: name, fault: "not a valid connection URI (postgresql://USER@HOST/DATABASE)")
    }
    return Secret(text)
  }

  private static func apps(_ source: SettingSource) throws -> [AppStoreApp] {
    let secret = try sharedSecret(source)
    let appleID = try source.integer("TENURE_APP_APPLE_ID", in: 1...Int.max)
    if let text = try source.string("TENURE_APPS") {
      if try source.string("TENURE_BUNDLE_IDS") != nil {
        throw SettingError(
          name: "TENURE_APPS", fault: "TENURE_BUNDLE_IDS is set too: set only one of them")
      }
      return try text.split(separator: ",").enumerated().map { index, entry in
        // Errors don't repeat the entry: a secret may be in the wrong place.
        let number = index + 1
        let parts = entry.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
          .map { String($0).trimmingCharacters(in: .whitespaces) }
        guard parts.count == 3 else {
          throw SettingError(
            name: "TENURE_APPS",
            fault: "entry \(number) has \(parts.count) parts: must be "
              + "bundle_id:apple_id:shared_secret, of which the last two may be empty")
        }
        guard parts[1].isEmpty || Int64(parts[1]) != nil else {
          throw SettingError(
            name: "TENURE_APPS",
            fault: "entry \(number): the Apple ID is not a number: must be the app's number in the "
              + "App Store, or empty")
        }
        return try app(
          "TENURE_APPS", entry: number, bundleID: parts[0], appleID: Int64(parts[1]),
          secret: parts[2].isEmpty ? secret : Secret(parts[2]))
      }
    }
    let ids = try source.string("TENURE_BUNDLE_IDS") ?? ""
    return try ids.split(separator: ",").enumerated().map { index, id in
      try app(
        "TENURE_BUNDLE_IDS", entry: index + 1,
        bundleID: String(id).trimmingCharacters(in: .whitespaces),
        appleID: appleID.map(Int64.init), secret: secret)
    }
  }

  /// The secret of apps without their own.
  private static func sharedSecret(_ source: SettingSource) throws -> Secret<String>? {
    let name = "TENURE_APPSTORE_SHARED_SECRET"
    let secret = try source.secret(name)
    do {
      try AppStoreApp.check(secret)
    } catch {
      throw SettingError(name: name, fault: "\(error)")
    }
    return secret
  }

  private static func app(
    _ name: String, entry: Int, bundleID: String, appleID: Int64?, secret: Secret<String>?
  ) throws -> AppStoreApp {
    do {
      return try AppStoreApp(bundleID: bundleID, appleID: appleID, sharedSecret: secret)
    } catch {
      throw SettingError(name: name, fault: "entry \(entry): \(error)")
    }
  }

  private static func endpoints(_ source: SettingSource) throws -> VerifyReceiptEndpoints {
    let names = [
      "TENURE_APPSTORE_VERIFY_RECEIPT_URL", "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL",
    ]
    let apple = VerifyReceiptEndpoints.apple
    do {
      return try VerifyReceiptEndpoints(
        production: try source.string(names[0]) ?? apple.production,
        sandbox: try source.string(names[1]) ?? apple.sandbox)
    } catch let error as AppStoreSettingError {
      throw SettingError(name: names.joined(separator: " or "), fault: "\(error)")
    }
  }

  /// The roots that replace Apple's.
  private static func trustedRoots(_ source: SettingSource) throws -> TrustedRoots? {
    let name = "TENURE_APPSTORE_ROOT_CERTIFICATES"
    guard let path = try source.string(name) else { return nil }
    guard let data = FileManager.default.contents(atPath: path) else {
      throw SettingError(
        name: name, fault: "\(path) can't be read: must be a file of PEM certificates")
    }
    do {
      return try TrustedRoots(pem: String(decoding: data, as: UTF8.self))
    } catch {
      throw SettingError(name: name, fault: "\(path): \(error)")
    }
  }

  private static func sandboxAccess(_ source: SettingSource) throws -> SandboxAccess {
    let name = "TENURE_SANDBOX_ACCESS"
    let words = try source.string(name)?.split(separator: ",").map {
      String($0).trimmingCharacters(in: .whitespaces)
    }
    switch words?.map({ $0.lowercased() }) {
    case nil, ["all"]: return .all
    case ["none"]: return .none
    case let lowercased? where lowercased.contains("all") || lowercased.contains("none"):
      throw SettingError(name: name, fault: "must be all, none, or account IDs")
    default: return .accounts(Set((words ?? []).map(AccountID.init(_:))))
    }
  }

  /// At most as long as submissions are retried.
  private static func provisionalAccess(_ source: SettingSource) throws -> Duration? {
    try source.duration(
      "TENURE_PROVISIONAL_ACCESS", in: .hours, atMost: RetrySchedule.patienceWithApple, or: "off",
      example: "24h")
  }

  private static func logLevel(_ source: SettingSource) throws -> Logger.Level {
    let name = "TENURE_LOG_LEVEL"
    guard let text = try source.string(name) else { return .info }
    guard let level = Logger.Level(rawValue: text.lowercased()) else {
      let levels = Logger.Level.allCases.map(\.rawValue).joined(separator: ", ")
      throw SettingError(name: name, fault: "must be one of \(levels) (got \"\(text)\")")
    }
    return level
  }

  private static func logFormat(_ source: SettingSource) throws -> LogFormat {
    let name = "TENURE_LOG_FORMAT"
    guard let text = try source.string(name) else { return .text }
    guard let format = LogFormat(rawValue: text.lowercased()) else {
      throw SettingError(name: name, fault: "must be text or json (got \"\(text)\")")
    }
    return format
  }
}
