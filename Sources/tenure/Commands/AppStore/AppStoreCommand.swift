import AppStore
import ArgumentParser
import BackgroundJobs
import Bootstrap
import HTTPAPI
import Logging
import Subscriptions

/// `tenure app-store`: the App Store Server API, by hand.
struct AppStoreCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "app-store",
    abstract: "Asks Apple's App Store Server API, and changes there what can be changed.",
    discussion: """
      Needs TENURE_APPSTORE_ISSUER_ID, TENURE_APPSTORE_KEY_ID and TENURE_APPSTORE_PRIVATE_KEY, and \
      no database. Whatever Apple signs in an answer is verified before it is shown.
      """,
    subcommands: [
      TransactionCommand.self, HistoryCommand.self, StatusesCommand.self, RefundsCommand.self,
      AppTransactionCommand.self, OrderCommand.self, NotificationsCommand.self,
      TestNotificationCommand.self, SetAppAccountTokenCommand.self, ExtendCommand.self,
      ExtendAllCommand.self, ExtensionStatusCommand.self, ConsumptionCommand.self,
    ])
}

/// The flags of the commands that ask the App Store Server API.
struct AppStoreOptions: ParsableArguments {
  @Option(name: .customLong("config"), help: "A file of settings: NAME=value lines.")
  var file: String?

  @Option(help: "Log level; instead of TENURE_LOG_LEVEL.")
  var logLevel: String?

  @Option(help: "The app; needed where several are configured.")
  var bundleID: String?

  @Option(help: "Which of Apple's environments to ask: production or sandbox.")
  var environment: Environment?

  @Option(help: "How to show the answer: text or json.")
  var format = AppStoreReport.Format.text

  /// Asks Apple and shows what came of it.
  ///
  /// - Parameter body: Asks, and makes a report of the answer.
  /// - Throws: What is wrong with the settings or the answer, in words.
  func report(_ body: (AppStoreDesk) async throws -> AppStoreReport) async throws {
    var settings = try Settings(
      await SettingSource(
        flags: ["TENURE_LOG_LEVEL": logLevel].compactMapValues(\.self), file: file))
    if settings.apps.isEmpty, let bundleID {
      settings.apps = [try AppStoreApp(bundleID: bundleID)]
    }
    let apps = try settings.appStoreApps()
    let key = try settings.neededServerAPIKey()
    let logger = Logger.bootstrapTenure(
      level: settings.logLevel, format: settings.logFormat)
    let app = try app(apps)
    let now = settings.clock.now
    let report = try await withHTTPClient { [settings] client in
      let verifier = SignedDataVerifier(
        roots: settings.trustedRoots, apps: apps, acceptsXcode: settings.acceptsXcode,
        now: now)
      let api = AppStoreServerAPI(
        transport: HTTPClientTransport(client: client), addresses: settings.serverAPIAddresses,
        key: key, verifier: verifier, timeout: settings.appStoreTimeout, logger: logger,
        now: now)
      return try await body(
        AppStoreDesk(api: api, bundleID: app.bundleID, environment: environment))
    }
    print(report.text(format))
    try report.check()
  }

  private func app(_ apps: AppStoreApps) throws -> AppStoreApp {
    guard let bundleID else {
      guard apps.all.count == 1 else {
        throw SettingError(
          name: "--bundle-id", fault: "several apps are configured: name the one to ask about")
      }
      return apps.all[0]
    }
    guard let app = apps[bundleID] else {
      throw SettingError(
        name: "--bundle-id", fault: "\(bundleID) is none of the apps that are configured")
    }
    return app
  }
}

/// What a command asks with: the way to Apple, the app, and the environment if one is named.
struct AppStoreDesk: Sendable {
  let api: AppStoreServerAPI
  let bundleID: String
  let environment: Environment?

  /// For what each environment has of its own.
  var environmentOrProduction: Environment { environment ?? .production }
}

extension Environment: ExpressibleByArgument {}

/// A moment as an argument: RFC 3339, or a day alone, which begins at midnight UTC.
struct Moment: ExpressibleByArgument {
  let timestamp: Timestamp

  init?(argument: String) {
    guard
      let timestamp = Timestamp(rfc3339: argument) ?? Timestamp(rfc3339: argument + "T00:00:00Z")
    else { return nil }
    self.timestamp = timestamp
  }
}
