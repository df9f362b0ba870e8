import AppStore
import Foundation
import HTTPAPI
import Logging
import Subscriptions

/// What the programs are told from outside, checked.
struct Settings: Sendable {
  /// Nil: a private PostgreSQL under ``dataDirectory``.
  var databaseURL: String?
  /// The schema's owner; nil: the same as ``databaseURL``.
  var migrationDatabaseURL: String?
  var usesPreparedStatements = true
  var dataDirectory: String
  var httpHost = "127.0.0.1"
  var httpPort = 8080
  var apps: [AppStoreApp] = []
  var verifyReceipt = VerifyReceiptEndpoints.apple
  var appStoreTimeout: Duration = .milliseconds(10_000)
  var sandboxAccess = SandboxAccess.all
  var logLevel = Logger.Level.info
  private var apiKeyText: String?

  init(_ source: SettingSource) throws {
    databaseURL = try source.string("DATABASE_URL")
    migrationDatabaseURL = try source.string("TENURE_MIGRATION_DATABASE_URL")
    usesPreparedStatements = try source.flag("TENURE_DATABASE_PREPARED_STATEMENTS") ?? true
    dataDirectory = try source.string("TENURE_DATA_DIR") ?? ".tenure"
    httpHost = try source.string("TENURE_HTTP_HOST") ?? httpHost
    httpPort = try source.integer("TENURE_HTTP_PORT", in: 0...65_535) ?? httpPort
    apiKeyText = try source.string("TENURE_API_KEYS")
    apps = try Self.apps(source)
    verifyReceipt = try Self.endpoints(source)
    if let limit = try source.integer("TENURE_APPSTORE_TIMEOUT_MS", in: 100...600_000) {
      appStoreTimeout = .milliseconds(limit)
    }
    sandboxAccess = try Self.sandboxAccess(source)
    logLevel = try Self.logLevel(source)
  }

  /// The keys of `serve`, which refuses to start without any.
  ///
  /// - Throws: ``SettingError``.
  func apiKeys() throws -> APIKeys {
    let name = "TENURE_API_KEYS"
    guard let apiKeyText else {
      throw SettingError(
        name: name,
        fault: "it is not set, and without keys nobody could call: write name:role:secret, comma "
          + "separated, role app or admin")
    }
    do {
      return try APIKeys(parsing: apiKeyText)
    } catch {
      throw SettingError(name: name, fault: "\(error)")
    }
  }

  /// The apps that are served, of which there must be one.
  ///
  /// - Throws: ``SettingError``.
  func appStoreApps() throws -> AppStoreApps {
    guard !apps.isEmpty else {
      throw SettingError(
        name: "TENURE_BUNDLE_IDS",
        fault: "neither it nor TENURE_APPS is set: name the bundle ids of the apps to serve")
    }
    do {
      return try AppStoreApps(apps)
    } catch {
      throw SettingError(name: "TENURE_APPS", fault: "\(error)")
    }
  }

  // MARK: Reading

  private static func apps(_ source: SettingSource) throws -> [AppStoreApp] {
    let secret = try source.string("TENURE_APPSTORE_SHARED_SECRET")
    let appleID = try source.integer("TENURE_APP_APPLE_ID", in: 1...Int.max)
    if let text = try source.string("TENURE_APPS") {
      if try source.string("TENURE_BUNDLE_IDS") != nil {
        throw SettingError(
          name: "TENURE_APPS", fault: "it and TENURE_BUNDLE_IDS are both set: set one of them")
      }
      return try text.split(separator: ",").map { entry in
        let parts = entry.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
          .map { String($0).trimmingCharacters(in: .whitespaces) }
        guard parts.count == 3 else {
          throw SettingError(
            name: "TENURE_APPS",
            fault: "an entry has \(parts.count) parts: write bundle_id:apple_id:shared_secret, "
              + "the last two may be empty")
        }
        guard parts[1].isEmpty || Int64(parts[1]) != nil else {
          throw SettingError(
            name: "TENURE_APPS", fault: "the Apple ID of \(parts[0]) is no number")
        }
        return try app(
          "TENURE_APPS", bundleID: parts[0], appleID: Int64(parts[1]),
          secret: parts[2].isEmpty ? secret : parts[2])
      }
    }
    let ids = try source.string("TENURE_BUNDLE_IDS") ?? ""
    return try ids.split(separator: ",").map {
      try app(
        "TENURE_BUNDLE_IDS", bundleID: String($0).trimmingCharacters(in: .whitespaces),
        appleID: appleID.map(Int64.init), secret: secret)
    }
  }

  private static func app(
    _ name: String, bundleID: String, appleID: Int64?, secret: String?
  ) throws -> AppStoreApp {
    do {
      return try AppStoreApp(bundleID: bundleID, appleID: appleID, sharedSecret: secret)
    } catch {
      throw SettingError(name: name, fault: "\(error)")
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

  private static func sandboxAccess(_ source: SettingSource) throws -> SandboxAccess {
    switch try source.string("TENURE_SANDBOX_ACCESS") {
    case nil, "all": .all
    case "none": .none
    case let ids?:
      .accounts(
        Set(ids.split(separator: ",").map { String($0).trimmingCharacters(in: .whitespaces) }))
    }
  }

  private static func logLevel(_ source: SettingSource) throws -> Logger.Level {
    let name = "TENURE_LOG_LEVEL"
    guard let text = try source.string(name) else { return .info }
    guard let level = Logger.Level(rawValue: text.lowercased()) else {
      let levels = Logger.Level.allCases.map(\.rawValue).joined(separator: ", ")
      throw SettingError(name: name, fault: "\"\(text)\" is no level: write one of \(levels)")
    }
    return level
  }
}
