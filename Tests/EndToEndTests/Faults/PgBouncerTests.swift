import AppStore
import AppStoreSimulator
import Foundation
import Logging
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite(
  "Through a PgBouncer that pools transactions",
  .enabled(if: PgBouncer.isToBeHad, "needs the package pgbouncer"),
  .disabled(if: ScratchPlace.environment.isDistributed, "It reaches its server by a socket."))
struct PgBouncerTests {
  private static let customers = 12
  private static let patience: Duration = .seconds(120)

  private static func withPgBouncer(
    _ body: @Sendable (PgBouncer, ConnectionPool, URL) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        let bouncer = try await PgBouncer(
          before: database.uri, in: directory.appending(path: "p"))
        do {
          try await body(bouncer, database, directory)
          await bouncer.stop()
        } catch {
          await bouncer.stop()
          throw error
        }
      }
    }
  }

  @Test("a server and a worker do all that they do, without prepared statements")
  func everything() async throws {
    try await Self.withPgBouncer { bouncer, database, directory in
      let simulation = try AppStoreSimulation(
        configuration: .init(seed: 1, start: .now - .hours(1)))
      let roots = directory.appending(path: "roots.pem")
      try simulation.rootCertificatePEM.write(to: roots, atomically: true, encoding: .utf8)
      let settings = [
        "DATABASE_URL": bouncer.uri, "TENURE_DATABASE_PREPARED_STATEMENTS": "off",
        "TENURE_LISTEN_DATABASE_URL": database.uri,
        "TENURE_BUNDLE_IDS": SimulatedApp.sample.bundleID, "TENURE_LOG_LEVEL": "error",
        "TENURE_APPSTORE_ROOT_CERTIFICATES": roots.path(percentEncoded: false),
      ]
      let server = try await ServeProcess.start(
        try TenureProgram.executable, databaseURL: bouncer.uri, environment: settings,
        in: directory)
      let worker = try ChildProcess(
        try TenureProgram.executable, ["work"], environment: settings, in: directory)
      do {
        #expect(try await Self.isListening(in: database), "the worker, past the pooler")
        try await Self.live(simulation, server)
        await worker.stop()
        await server.stop()
      } catch {
        await worker.stop()
        await server.stop()
        throw error
      }
      let audit = try await TenureProgram.run("audit", environment: settings)
      #expect(audit.status == 0, "\(audit.output) \(audit.errors)")
    }
  }

  /// Whether a session begins to listen soon.
  ///
  /// Later the connection is asked whether it lives, and LISTEN is not its last statement any more.
  private static func isListening(in database: ConnectionPool) async throws -> Bool {
    for _ in 0..<1200 {
      let listeners = try await database.query(
        """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND query LIKE 'LISTEN%'
        """
      ).decodeOnly(Int.self)
      if listeners > 0 { return true }
      try await Task.sleep(for: .milliseconds(50))
    }
    return false
  }

  /// Customers buy, and the first gets the money back.
  private static func live(_ simulation: AppStoreSimulation, _ server: ServeProcess) async throws {
    try await withHTTPClient { client in
      let tenure = TenureClient(client: client, baseURL: server.url, key: server.secret)
      try await DemoCatalogue.describe(to: tenure)
      try simulation.setNotificationTargets([NotificationTarget(.v2, url: tenure.notificationURL)])
      let bought = try await withThrowingTaskGroup(of: TransactionID.self) { group in
        for number in 0..<customers {
          let id = "customer-\(number)"
          try simulation.addAppleID(AppleID(id))
          try simulation.addDevice(DeviceID(id), appleID: AppleID(id))
          let transaction = try simulation.buy("monthly", on: DeviceID(id)).transactionID
          let signed = try simulation.signedTransaction(of: transaction)
          group.addTask {
            let answer = try await tenure.submit(
              TenureClient.SignedSubmission(accountID: id, signedTransactions: [signed]))
            #expect(answer.newlyOwned.count == 1, "\(id)")
            #expect(try await tenure.entitlements(of: id).map(\.name) == ["pro"], "\(id)")
            return transaction
          }
        }
        return try await group.reduce(into: []) { $0.append($1) }
      }
      let refunded = try #require(bought.first)
      let buyer = try simulation.truth(of: refunded).appleID.rawValue
      try simulation.refund(refunded)
      try await NotificationSender(
        simulation: simulation, transport: HTTPClientTransport(client: client)
      ).deliverDueNotifications()
      let end = ContinuousClock.now + patience
      while try await !tenure.entitlements(of: buyer).isEmpty, ContinuousClock.now < end {
        try await Task.sleep(for: .milliseconds(20))
      }
      #expect(try await tenure.entitlements(of: buyer).isEmpty)
      let events = try await tenure.events(after: nil).events.map(\.type)
      #expect(events.count { $0 == "entitlement.granted" } == customers)
      #expect(events.contains("entitlement.revoked"))
    }
  }

  @Test("with prepared statements no program starts, and the doctor says why")
  func prepared() async throws {
    try await Self.withPgBouncer { bouncer, _, _ in
      let settings = [
        "DATABASE_URL": bouncer.uri, "TENURE_BUNDLE_IDS": "com.example.app",
        "TENURE_API_KEYS": "shop:app:secret-for-trying",
      ]
      for command in ["serve", "work", "migrate", "audit"] {
        let outcome = try await TenureProgram.run(command, environment: settings)
        #expect(outcome.status == 1, "\(command)")
        #expect(
          outcome.errors.hasPrefix("Error: TENURE_DATABASE_PREPARED_STATEMENTS: "),
          "\(command): \(outcome.errors)")
      }
      let doctor = try await TenureProgram.run("doctor", environment: settings)
      #expect(doctor.output.contains("FAULT    database.prepared_statements"), "\(doctor.output)")
      let unprepared = try await TenureProgram.run(
        "doctor",
        environment: settings.merging(["TENURE_DATABASE_PREPARED_STATEMENTS": "off"]) { $1 })
      #expect(unprepared.output.contains("ok       database.prepared_statements"))
      #expect(unprepared.output.contains("WARNING  database.listen"), "\(unprepared.output)")
    }
  }

  @Test("no client runs a statement that another client has prepared")
  func othersStatements() async throws {
    try await Self.withPgBouncer { bouncer, _, _ in
      try await withThrowingTaskGroup(of: Void.self) { group in
        for client in 0..<6 {
          group.addTask {
            try await ServerPair.withPool(bouncer.uri, connections: 2) { pool in
              for round in 0..<50 {
                // All clients number their statements alike: only the texts differ.
                let answer = try await pool.query("SELECT \(unescaped: "\(client)"), \(round)")
                  .decodeOnly(Int32.self, Int.self)
                #expect(answer == (Int32(client), round))
              }
            }
          }
        }
        try await group.waitForAll()
      }
    }
  }
}
