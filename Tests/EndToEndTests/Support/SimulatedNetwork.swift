import AppStore
import AppStoreSimulator
import BackgroundJobs
import Foundation
import Logging
import Postgres
import ScratchDatabases
import ServiceLifecycle
import Subscriptions

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// The network to a simulated App Store Server API.
struct SimulatedNetwork: AppStoreTransport {
  let simulation: AppStoreSimulation

  func send(_ request: AppStoreRequest) async throws -> AppStoreResponse {
    guard let range = request.url.firstRange(of: "/inApps/"),
      let parts = URLComponents(string: String(request.url[range.lowerBound...]))
    else { throw AppStoreTransportError(.invalidURL, detail: request.url) }
    let answer = simulation.serverAPI(
      ServerAPIRequest(
        method: request.method, path: parts.path,
        query: (parts.queryItems ?? []).map {
          ServerAPIRequest.QueryItem($0.name, $0.value ?? "")
        },
        authorization: request.headers.first { $0.name == "Authorization" }?.value,
        body: request.body),
      at: request.url.contains("sandbox") ? .sandbox : .production)
    return AppStoreResponse(status: answer.httpStatus, body: answer.body)
  }

  /// Runs a worker on a separate ledger and the simulation's clock.
  ///
  /// - Parameters:
  ///   - hasKey: Whether it has a key for the App Store Server API.
  ///   - settings: Further settings.
  ///   - test: Runs at the same time.
  /// - Throws: Errors of the test and of the worker.
  static func withWorker(
    hasKey: Bool = true, settings: [String: String] = [:],
    _ test: @Sendable (Assembly, AppStoreSimulation, ConnectionPool) async throws -> Void
  ) async throws {
    let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    let simulation = try AppStoreSimulation(configuration: .init(seed: 1, start: .now))
    try simulation.setNotificationTargets([
      NotificationTarget(.v2, url: "http://127.0.0.1/v1/appstore/notifications")
    ])
    try await withTemporaryDirectory { directory in
      let (root, key) = (directory.appending(path: "r"), directory.appending(path: "k"))
      try simulation.rootCertificatePEM.write(to: root, atomically: true, encoding: .utf8)
      try simulation.apiKey.privateKeyPEM.write(to: key, atomically: true, encoding: .utf8)
      var flags = settings
      flags["TENURE_BUNDLE_IDS"] = SimulatedApp.sample.bundleID
      flags["TENURE_APPSTORE_ROOT_CERTIFICATES"] = root.path(percentEncoded: false)
      if hasKey {
        flags["TENURE_APPSTORE_ISSUER_ID"] = simulation.apiKey.issuerID
        flags["TENURE_APPSTORE_KEY_ID"] = simulation.apiKey.keyID
        flags["TENURE_APPSTORE_PRIVATE_KEY"] = key.path(percentEncoded: false)
      }
      let settings = try Settings(await SettingSource(flags: flags, environment: [:]))
      try await withScratchDatabase { database in
        let assembly = try await Assembly(
          database: database, settings: settings,
          transport: SimulatedNetwork(simulation: simulation), logger: quiet,
          clock: .jumping { simulation.now })
        let group = ServiceGroup(services: assembly.worker(), logger: quiet)
        try await withThrowingTaskGroup(of: Void.self) { tasks in
          tasks.addTask { try await group.run() }
          do {
            try await test(assembly, simulation, database)
          } catch {
            await group.triggerGracefulShutdown()
            throw error
          }
          await group.triggerGracefulShutdown()
          try await tasks.waitForAll()
        }
      }
    }
  }
}
