import AppStoreSimulator
import Foundation
import Postgres
import Subscriptions
import Synchronization
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// Two servers, of which the first is lost while customers buy and apps are launched.
@Suite("A failover", .serialized)
struct FailoverTests {
  enum Mishap: CaseIterable, Sendable {
    case killed
    /// It keeps its connections and accepts new ones, but does not answer.
    case frozen
  }

  /// How many customers buy before, and again after.
  private static let purchases = 20
  /// The statement deadline: the delay if programs did not look for the new primary.
  private static let recoveryLimit: Duration = .seconds(30)

  @Test(
    "loses no acknowledged purchase, doubles none, and needs no operator",
    arguments: Mishap.allCases)
  func losesNothing(mishap: Mishap) async throws {
    try await withTemporaryDirectory { directory in
      let pair = try await ServerPair.start(in: directory)
      do {
        let checkout = try await survive(mishap, pair, directory)
        try await prove(checkout, on: pair.standbyURI)
        await pair.stop()
      } catch {
        await pair.stop()
        throw error
      }
    }
  }

  /// Lets customers buy from a server before, during and after.
  private func survive(_ mishap: Mishap, _ pair: ServerPair, _ directory: URL) async throws
    -> Checkout
  {
    let simulation = try AppStoreSimulation(
      configuration: .init(seed: 1, start: .now - .hours(1)))
    let roots = directory.appending(path: "roots.pem")
    try simulation.rootCertificatePEM.write(to: roots, atomically: true, encoding: .utf8)
    let server = try await ServeProcess.start(
      try TenureProgram.executable, databaseURL: pair.uri,
      environment: [
        "TENURE_BUNDLE_IDS": SimulatedApp.sample.bundleID, "TENURE_LOG_LEVEL": "error",
        "TENURE_APPSTORE_ROOT_CERTIFICATES": roots.path(percentEncoded: false),
      ],
      in: directory)
    do {
      let checkout = try await withHTTPClient { client in
        let tenure = TenureClient(client: client, baseURL: server.url, key: server.secret)
        try await DemoCatalogue.describe(to: tenure)
        let checkout = Checkout(simulation: simulation, tenure: tenure)
        try await checkout.open(for: Self.purchases) {
          switch mishap {
          case .killed: await pair.killPrimary()
          case .frozen: try await pair.freezePrimary()
          }
          checkout.noteMishap()
          try await pair.promoteStandby()
        }
        return checkout
      }
      await server.stop()
      return checkout
    } catch {
      await server.stop()
      throw error
    }
  }

  private func prove(_ checkout: Checkout, on uri: String) async throws {
    let (writes, reads) = try #require(checkout.recovery)
    print("A primary that is lost: purchases again after \(writes), reads after \(reads)")
    #expect(writes < Self.recoveryLimit)
    #expect(reads < Self.recoveryLimit)
    let sold = checkout.sold
    #expect(sold.count >= 2 * Self.purchases)
    try await ServerPair.withPool(uri) { database in
      let stored = try await database.query(
        """
        SELECT t.transaction_id, k.account_id FROM tenure.store_transaction AS t
        LEFT JOIN tenure.account_by_key AS k ON k.account_key = t.owner_account_key
        """
      ).decode(TransactionID.self, String?.self)
      #expect(stored.count == sold.count, "each once")
      #expect(
        Dictionary(stored.map { ($0.0, $0.1) }) { first, _ in first }
          == sold.mapValues { $0.accountID })
      let submissions = try await database.query(
        "SELECT submission_id::text FROM tenure.submission WHERE status = 'verified'"
      ).decode(String.self)
      #expect(Set(sold.values.map { $0.submissionID.lowercased() }).isSubset(of: submissions))
    }
    let audit = try await TenureProgram.run("audit", environment: ["DATABASE_URL": uri])
    #expect(audit.status == 0, "\(audit.output)")
  }
}

/// An app's server: customers buy, and each purchase is submitted until it is acknowledged.
private final class Checkout: Sendable {
  struct Sale: Sendable {
    var accountID: String
    var submissionID: String
  }

  /// How many buy at a time: more than a pool has connections.
  private static let concurrency = 6
  private static let pause: Duration = .milliseconds(20)
  private static let patience: Duration = .seconds(240)

  private struct State {
    var customers = 0
    var sold: [TransactionID: Sale] = [:]
    /// The number of sales since the mishap.
    var soldSince = 0
    var mishap: ContinuousClock.Instant?
    var firstWrite: ContinuousClock.Instant?
    var firstRead: ContinuousClock.Instant?
  }

  private let simulation: AppStoreSimulation
  private let tenure: TenureClient
  private let state = Mutex(State())

  init(simulation: AppStoreSimulation, tenure: TenureClient) {
    self.simulation = simulation
    self.tenure = tenure
  }

  var sold: [TransactionID: Sale] { state.withLock { $0.sold } }

  /// From the mishap to the first purchase, and the first read, that began after it.
  var recovery: (writes: Duration, reads: Duration)? {
    state.withLock { state in
      guard let mishap = state.mishap, let write = state.firstWrite, let read = state.firstRead
      else { return nil }
      return (write - mishap, read - mishap)
    }
  }

  /// From here on the first primary answers nothing.
  func noteMishap() { state.withLock { $0.mishap = .now } }

  /// Sells until so many have bought, lets a mishap happen, and goes on until as many again have.
  ///
  /// - Parameters:
  ///   - count: How many.
  ///   - mishap: Notes it, and repairs it.
  /// - Throws: The last error if customers are not served in time.
  func open(for count: Int, mishap: @escaping @Sendable () async throws -> Void) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<Self.concurrency {
        group.addTask {
          while self.state.withLock({ $0.soldSince < count || $0.firstRead == nil }) {
            try await self.serveCustomer()
          }
        }
      }
      group.addTask {
        while self.state.withLock({ $0.sold.count < count }) {
          try await Task.sleep(for: Self.pause)
        }
        try await mishap()
      }
      try await group.waitForAll()
    }
  }

  private func serveCustomer() async throws {
    let number = state.withLock { state in
      state.customers += 1
      return state.customers
    }
    let id = "customer-\(number)"
    try simulation.addAppleID(AppleID(id))
    try simulation.addDevice(DeviceID(id), appleID: AppleID(id))
    let transaction = try simulation.buy("monthly", on: DeviceID(id)).transactionID
    let signed = try simulation.signedTransaction(of: transaction)
    let (answer, submittedAt) = try await repeated {
      try await self.tenure.submit(
        TenureClient.SignedSubmission(accountID: id, signedTransactions: [signed]))
    }
    state.withLock { state in
      state.sold[transaction] = Sale(accountID: id, submissionID: answer.id)
      guard let mishap = state.mishap, submittedAt > mishap else { return }
      state.soldSince += 1
      if state.firstWrite == nil { state.firstWrite = .now }
    }
    // Everything that was acknowledged is there, on any primary.
    let (entitlements, askedAt) = try await repeated {
      try await self.tenure.entitlements(of: id)
    }
    #expect(entitlements.map(\.name) == ["pro"], "\(id)")
    state.withLock { state in
      guard let mishap = state.mishap, askedAt > mishap, state.firstRead == nil else { return }
      state.firstRead = .now
    }
  }

  /// Repeats a call until it is answered well; says when that last attempt began.
  private func repeated<Answer>(_ call: () async throws -> Answer) async throws
    -> (Answer, ContinuousClock.Instant)
  {
    let end = ContinuousClock.now + Self.patience
    while true {
      let start = ContinuousClock.now
      do {
        return (try await call(), start)
      } catch {
        guard start < end else { throw error }
        try await Task.sleep(for: Self.pause)
      }
    }
  }
}
