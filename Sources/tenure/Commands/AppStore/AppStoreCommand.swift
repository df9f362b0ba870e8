import AppStore
import ArgumentParser
import BackgroundJobs
import Bootstrap
import HTTPAPI
import Logging
import Subscriptions

struct AppStoreCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "app-store",
    abstract: "Queries the App Store Server API, and makes the changes that it supports.",
    discussion: """
      Needs TENURE_APPSTORE_ISSUER_ID, TENURE_APPSTORE_KEY_ID and TENURE_APPSTORE_PRIVATE_KEY, and \
      no database. Signed data in responses is verified before it is shown.
      """,
    subcommands: [
      TransactionCommand.self, HistoryCommand.self, StatusesCommand.self, RefundsCommand.self,
      AppTransactionCommand.self, OrderCommand.self, NotificationsCommand.self,
      TestNotificationCommand.self, SetAppAccountTokenCommand.self, ExtendCommand.self,
      ExtendAllCommand.self, ExtensionStatusCommand.self, ConsumptionCommand.self,
    ])
}

/// A command that sends requests to the App Store Server API and prints a report of the responses.
protocol AppStoreQuery: AsyncParsableCommand {
  var options: AppStoreOptions { get }

  func report(_ clients: AppStoreClients) async throws -> AppStoreReport
}

extension AppStoreQuery {
  func run() async throws { try await options.report(report) }
}

struct AppStoreOptions: ParsableArguments {
  @Option(name: .customLong("config"), help: "Settings file with NAME=value lines.")
  var file: String?

  @Option(help: "Log level; overrides TENURE_LOG_LEVEL.")
  var logLevel: String?

  @Option(help: "The app; required if several are configured.")
  var bundleID: String?

  @Option(help: "The environment to query: production or sandbox.")
  var environment: Environment?

  @Option(help: "Output format: text or json.")
  var format = OutputFormat.text

  func report(_ body: (AppStoreClients) async throws -> AppStoreReport) async throws {
    var settings = try Settings(
      await SettingSource(
        flags: ["TENURE_LOG_LEVEL": logLevel].compactMapValues(\.self), file: file))
    if settings.apps.isEmpty, let bundleID { settings.apps = [try AppStoreApp(bundleID: bundleID)] }
    let apps = try settings.appStoreApps()
    let key = try settings.neededServerAPIKey()
    let logger = settings.bootstrapLogger()
    let app = try app(apps)
    let now = settings.clock.now
    let report = try await withHTTPClient { [settings] client in
      let verifier = SignedDataVerifier(
        roots: settings.trustedRoots, apps: apps, acceptsXcode: settings.acceptsXcode, now: now)
      let api = AppStoreServerAPI(
        transport: HTTPClientTransport(client: client), addresses: settings.serverAPIAddresses,
        key: key, verifier: verifier, timeout: settings.appStoreTimeout, logger: logger, now: now)
      return try await body(
        AppStoreClients(api: api, bundleID: app.bundleID, environment: environment))
    }
    print(report.text(format))
    try report.check()
  }

  private func app(_ apps: AppStoreApps) throws -> AppStoreApp {
    guard let bundleID else {
      guard apps.all.count == 1 else {
        throw SettingError("--bundle-id", "required: several apps are configured")
      }
      return apps.all[0]
    }
    guard let app = apps[bundleID] else {
      throw SettingError("--bundle-id", "the app \(bundleID) is not configured")
    }
    return app
  }
}

struct AppStoreClients: Sendable {
  let api: AppStoreServerAPI
  let bundleID: String
  let environment: Environment?

  /// For requests without a fallback to the sandbox.
  var environmentOrProduction: Environment { environment ?? .production }
}

extension Environment: ExpressibleByArgument {}
