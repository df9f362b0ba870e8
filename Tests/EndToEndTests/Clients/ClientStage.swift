import AppStore
import AppStoreSimulator
import AsyncHTTPClient
import Foundation
import LedgerStorage
import Logging
import ScratchDatabases
import Secrets
import ServiceLifecycle
import Subscriptions

@testable import BackgroundJobs
@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// The input of a client: a server with a worker, a customer's purchase, and some webhooks.
struct ClientStage: Encodable, Sendable {
  var url: String
  var key: String
  var adminKey: String
  var timeoutSeconds = 3
  /// The purchase as StoreKit 2 signs it, and as a receipt of the original StoreKit.
  var signed: String
  var receipt: String
  /// A webhook, its secret, and genuine and other signatures by name.
  var body = #"{"id":"81241","type":"entitlement.granted"}"#
  var secret = "the receiver's own secret"
  var headers: [String: String]
  var transactionID: String
  /// A notification of version 2, signed.
  var notification: String?

  private static let key = "app-secret-for-trying"
  private static let adminKey = "admin-secret-for-trying"

  /// Runs a server for `body`, while Apple does not respond to the first requests.
  static func serving(
    _ body: @Sendable @escaping (ClientStage) async throws -> Void
  ) async throws {
    let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    try await SimulatedApple.serving(from: .now) { apple in
      try await withScratchDatabase { database in
        try await withHTTPClient { client in
          let keys = "shop:app:\(key),ops:admin:\(adminKey)"
          let flags = apple.settings.merging(["TENURE_API_KEYS": keys]) { $1 }
          let settings = try Settings(await SettingSource(flags: flags, environment: [:]))
          let assembly = try await Assembly(
            database: database, settings: settings,
            transport: HTTPClientTransport(client: client), logger: quiet)
          try await Crowd.describeProducts(to: assembly.ledger)
          let server = DemoServer(api: assembly.api(keys: try settings.apiKeys()), port: 0)
          let group = ServiceGroup(
            services: [server, assembly.catalogueRefresh]
              + assembly.worker(), logger: quiet)
          try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            do {
              let port = try await server.port
              try await body(try ClientStage(apple.simulation, port: port))
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

  private init(_ simulation: AppStoreSimulation, port: Int) throws {
    let (appleID, phone) = (AppleID("petra@example.com"), DeviceID("phone"))
    try simulation.addAppleID(appleID)
    try simulation.addDevice(phone, appleID: appleID)
    let charge = try simulation.buy("monthly", on: phone)
    simulation.setFaults { $0.next = [.unavailable, .unavailable] }
    url = "http://127.0.0.1:\(port)"
    (key, adminKey) = (Self.key, Self.adminKey)
    transactionID = charge.transactionID.rawValue
    signed = try simulation.signedTransaction(of: charge.transactionID)
    receipt = try simulation.receipt(on: phone)
    try simulation.setNotificationTargets(
      [NotificationTarget(.v2, url: "\(url)/v1/appstore/notifications")])
    notification = try simulation.sendTestNotification().signedPayload
    let bytes = Array(body.utf8)
    let old = Timestamp.now - .minutes(6)
    let secrets = [Secret(secret)]
    headers = [
      "genuine": WebhookSignature.value(of: bytes, secrets: secrets, at: .now),
      "too old": WebhookSignature.value(of: bytes, secrets: secrets, at: old),
      "of another body": WebhookSignature.value(of: bytes + [32], secrets: secrets, at: .now),
      "of another sender": WebhookSignature.value(of: bytes, secrets: ["guessed"], at: .now),
    ]
  }
}
