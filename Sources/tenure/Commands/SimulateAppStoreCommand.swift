import AppStore
import AppStoreSimulator
import ArgumentParser
import Foundation
import Logging
import ServiceLifecycle
import UnixSignals
import Subscriptions

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
