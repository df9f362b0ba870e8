import AppStoreSimulator
import ArgumentParser
import Logging
import ServiceLifecycle
import UnixSignals
import Subscriptions

/// `tenure simulate-app-store`: an Apple of one's own.
struct SimulateAppStoreCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "simulate-app-store",
    abstract: "Runs a simulated App Store: verifyReceipt in production and sandbox, and controls.",
    discussion: """
      Point TENURE_APPSTORE_VERIFY_RECEIPT_URL at http://HOST:PORT/verifyReceipt and \
      TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL at http://HOST:PORT/sandbox/verifyReceipt. \
      GET /simulator tells how to make customers buy, renew, cancel and ask for refunds.
      """)

  @Option(help: "The address to listen on.")
  var host = "127.0.0.1"

  @Option(help: "The port to listen on, 0 for a free one.")
  var port = 8090

  @Option(help: "The same seed and the same calls give the same answers.")
  var seed: UInt64 = 1

  @Option(help: "How many times faster than the real clock time passes; 0: only when told.")
  var speed: Double = 1

  @Option(help: "Log level.")
  var logLevel: String = "info"

  func validate() throws {
    guard (0...65_535).contains(port) else {
      throw ValidationError("--port is from 0 to 65535.")
    }
    guard speed >= 0, speed <= 10_000_000 else {
      throw ValidationError("--speed is from 0 to 10000000.")
    }
    guard Logger.Level(rawValue: logLevel) != nil else {
      throw ValidationError("--log-level is one of trace, debug, info, notice, warning, error.")
    }
  }

  func run() async throws {
    let logger = Logger.bootstrapTenure(level: Logger.Level(rawValue: logLevel) ?? .info)
    let simulation = try AppStoreSimulation(
      configuration: .init(seed: seed, start: .now, speed: speed))
    let server = AppStoreSimulatorServer(
      simulation: simulation, configuration: .init(host: host, port: port), logger: logger)
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
