import AppStoreSimulator
import Foundation
import Logging
import Subscriptions

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// A simulated App Store that listens, and the commands that ask it.
struct SimulatedApple: Sendable {
  let simulation: AppStoreSimulation
  /// Settings that point the programs to it.
  let settings: [String: String]
  private let directory: URL

  /// Serves as long as `body` runs, in simulated time; the commands live in the real one.
  static func serving<Value: Sendable>(
    from start: Timestamp, _ body: @Sendable (SimulatedApple) async throws -> Value
  ) async throws -> Value {
    try await withTemporaryDirectory { directory in
      let simulation = try AppStoreSimulation(configuration: .init(seed: 1, start: start))
      let server = AppStoreSimulatorServer(
        simulation: simulation,
        logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
      return try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask { try await server.run() }
        defer { group.cancelAll() }
        return try await body(
          try SimulatedApple(simulation, port: try await server.port, directory: directory))
      }
    }
  }

  private init(_ simulation: AppStoreSimulation, port: Int, directory: URL) throws {
    self.simulation = simulation
    self.directory = directory
    let root = directory.appending(path: "root.cert")
    try simulation.rootCertificatePEM.write(to: root, atomically: true, encoding: .utf8)
    let key = directory.appending(path: "key.p8")
    try simulation.apiKey.privateKeyPEM.write(to: key, atomically: true, encoding: .utf8)
    let url = "http://127.0.0.1:\(port)"
    settings = [
      "TENURE_BUNDLE_IDS": SimulatedApp.sample.bundleID,
      "TENURE_APPSTORE_SHARED_SECRET": SimulatedApp.sample.sharedSecret,
      "TENURE_APPSTORE_VERIFY_RECEIPT_URL": "\(url)/verifyReceipt",
      "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL": "\(url)/sandbox/verifyReceipt",
      "TENURE_APPSTORE_ISSUER_ID": simulation.apiKey.issuerID,
      "TENURE_APPSTORE_KEY_ID": simulation.apiKey.keyID,
      "TENURE_APPSTORE_PRIVATE_KEY": key.path(percentEncoded: false),
      "TENURE_APPSTORE_API_URL": url,
      "TENURE_APPSTORE_SANDBOX_API_URL": "\(url)/sandbox",
      "TENURE_APPSTORE_ROOT_CERTIFICATES": root.path(percentEncoded: false),
      // The simulation shares a busy machine with all other tests.
      "TENURE_APPSTORE_TIMEOUT_MS": "120000",
    ]
  }

  /// Runs a command of `tenure app-store`.
  func run(
    _ arguments: String..., changing settings: [String: String] = [:]
  ) async throws -> ChildProcess.Outcome {
    try await ChildProcess.run(
      try TenureProgram.executable, ["app-store"] + arguments,
      environment: self.settings.merging(settings) { $1 }, in: directory)
  }
}
