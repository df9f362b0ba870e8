import AppStoreSimulator
import AsyncHTTPClient
import Foundation
import NIOCore
import NIOHTTP1
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// An app's server, which calls `tenure serve` and repeats whatever got no answer.
struct Shop: Sendable {
  /// How many submissions are under way at a time.
  private static let concurrency = 8
  /// How long a call is repeated: the server needs a moment to start again.
  private static let patience: Duration = .seconds(300)
  private static let pause: Duration = .milliseconds(20)
  /// The worker's time limit for unfinished submissions.
  private static let workLimit: Duration = .seconds(300)

  /// A submission that was answered.
  struct Answered: Sendable {
    var id: UUID
    var account: String
    /// The receipt or the signed transaction.
    var sent: String
    var httpStatus: UInt
  }

  let simulation: AppStoreSimulation
  private let crowd: Crowd
  private let server: RestartedServer
  private let settings: [String: String]
  private let database: ConnectionPool
  private let directory: URL
  private let seed: UInt64

  static func open(
    seed: UInt64, crowd: Crowd, appStorePort: Int, database: ConnectionPool, directory: URL
  ) async throws -> Shop {
    let appStore = "http://127.0.0.1:\(appStorePort)"
    let roots = directory.appending(path: "roots.pem")
    try crowd.simulation.rootCertificatePEM.write(to: roots, atomically: true, encoding: .utf8)
    let settings = [
      "TENURE_BUNDLE_IDS": Crowd.app.bundleID,
      "TENURE_APPSTORE_SHARED_SECRET": Crowd.app.sharedSecret,
      "TENURE_APPSTORE_VERIFY_RECEIPT_URL": "\(appStore)/verifyReceipt",
      "TENURE_APPSTORE_SANDBOX_VERIFY_RECEIPT_URL": "\(appStore)/sandbox/verifyReceipt",
      "TENURE_APPSTORE_ROOT_CERTIFICATES": roots.path(percentEncoded: false),
      "TENURE_LOG_LEVEL": "error",
    ]
    let server = try await RestartedServer(
      databaseURL: database.uri, settings: settings, directory: directory)
    return Shop(
      simulation: crowd.simulation, crowd: crowd, server: server, settings: settings,
      database: database, directory: directory, seed: seed)
  }

  func close() async { await server.stop() }

  // MARK: Submitting

  /// Makes the crowd's submissions, while the server is killed and started again.
  ///
  /// - Parameters:
  ///   - submissions: How many.
  ///   - kills: How often the server is killed, at random moments.
  /// - Returns: An answer for each submission.
  /// - Throws: The error of an unanswered submission.
  func liveThroughKills(submissions: Int, kills: Int) async throws -> [Answered] {
    let moments = killingMoments(submissions: submissions, kills: kills)
    let (beginnings, beginning) = AsyncStream.makeStream(of: Int.self)
    return try await withThrowingTaskGroup(of: [Answered].self) { group in
      group.addTask {
        for await number in beginnings {
          guard let delay = moments[number] else { continue }
          try await Task.sleep(for: delay)
          try await server.killAndStartAgain()
        }
        return []
      }
      for worker in 1...Self.concurrency {
        group.addTask {
          var answers: [Answered] = []
          var random = SplitMix64(seed: seed &+ UInt64(worker))
          while true {
            guard let (number, next) = await crowd.next(), number <= submissions else {
              return answers
            }
            beginning.yield(number)
            answers.append(
              try await submit(next, withOrder: random.chance(0.5), signed: random.chance(0.5)))
          }
        }
      }
      var answers: [Answered] = []
      for _ in 1...Self.concurrency { answers += try await group.next() ?? [] }
      beginning.finish()
      try await group.waitForAll()
      #expect(await server.kills == kills)
      return answers
    }
  }

  /// How long after the beginning of which submissions the server is killed.
  private func killingMoments(submissions: Int, kills: Int) -> [Int: Duration] {
    var random = SplitMix64(seed: seed)
    var moments: [Int: Duration] = [:]
    while moments.count < kills {
      moments[random.number(in: 1...submissions - 1)] = .milliseconds(random.number(in: 0...40))
    }
    return moments
  }

  private struct OrderAnswer: Decodable {
    var orderID: UUID

    enum CodingKeys: String, CodingKey {
      case orderID = "order_id"
    }
  }

  private struct ReceiptResponse: Decodable {
    var submissionID: UUID

    enum CodingKeys: String, CodingKey {
      case submissionID = "submission_id"
    }
  }

  /// Sends the receipt; or if a purchase is named, perhaps what StoreKit 2 has signed of it.
  private func submit(
    _ submission: SimulatedSubmission, withOrder: Bool, signed: Bool
  ) async throws -> Answered {
    var body: [String: any Sendable] = ["account_id": submission.account.rawValue]
    var sent = submission.receiptData
    if signed, let transaction = submission.transactionID {
      sent = try simulation.signedTransaction(of: transaction)
      body["signed_transactions"] = [sent]
    } else {
      body["receipt_data"] = sent
    }
    if let transaction = submission.transactionID {
      if !signed { body["transaction_id"] = transaction.rawValue }
      if withOrder {
        let product = try simulation.truth(of: transaction).productID
        let (_, order) = try await post(
          ["account_id": submission.account.rawValue, "product_id": product.rawValue],
          to: "/v1/orders", expecting: [201])
        body["order_id"] = try JSONDecoder().decode(OrderAnswer.self, from: order).orderID
          .uuidString
      }
    }
    if submission.restores { body["restore"] = true }
    let (status, answer) = try await post(body, to: "/v1/receipts", expecting: [200, 202, 422])
    return Answered(
      id: try JSONDecoder().decode(ReceiptResponse.self, from: answer).submissionID,
      account: submission.account.rawValue, sent: sent, httpStatus: status)
  }

  /// Sends a request until it is answered.
  private func post(
    _ members: [String: any Sendable], to path: String, expecting statuses: Set<UInt>
  ) async throws -> (status: UInt, body: Data) {
    let body = try JSONSerialization.data(withJSONObject: members)
    let end = ContinuousClock.now + Self.patience
    while true {
      do {
        let answer = try await send(body, to: path)
        #expect(
          statuses.contains(answer.status),
          "\(path): \(answer.status) \(String(decoding: answer.body, as: UTF8.self))")
        return answer
      } catch {
        // The server is gone, or went while it worked: whether it did is not known.
        guard ContinuousClock.now < end else { throw error }
        try await Task.sleep(for: Self.pause)
      }
    }
  }

  private func send(_ body: Data, to path: String) async throws -> (status: UInt, body: Data) {
    var request = HTTPClientRequest(url: server.url + path)
    request.method = .POST
    request.headers.add(name: "Authorization", value: "Bearer \(server.secret)")
    request.headers.add(name: "Content-Type", value: "application/json")
    request.body = .bytes(ByteBuffer(bytes: body))
    let answer = try await HTTPClient.shared.execute(request, timeout: .seconds(120))
    let content = try await answer.body.collect(upTo: 1 << 24)
    return (answer.status.code, Data(content.readableBytesView))
  }

  // MARK: Catching up

  /// Lets the worker finish the server's undecided submissions; Apple answers everything
  /// now.
  func catchUp() async throws {
    simulation.setFaults { $0.rate = 0 }
    let worker = try ChildProcess(
      try TenureProgram.executable, ["work"],
      environment: settings.merging(["DATABASE_URL": database.uri]) { $1 },
      in: directory)
    let end = ContinuousClock.now + Self.workLimit
    while try await pending() > 0, ContinuousClock.now < end {
      // Not after a minute, when it would take over, nor when Apple would be asked again: now.
      try await database.execute(
        "UPDATE tenure.job SET run_at = now() WHERE locked_until IS NULL AND run_at > now()")
      try await Task.sleep(for: .milliseconds(100))
    }
    await worker.stop()
  }

  private func pending() async throws -> Int {
    try await database.query(
      "SELECT count(*) FROM tenure.submission WHERE status = 'pending'"
    ).decodeOnly(Int.self)
  }
}
