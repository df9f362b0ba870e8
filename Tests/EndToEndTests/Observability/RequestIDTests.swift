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

/// One id leads through the log from the request to PostgreSQL and to Apple.
@Suite("What is logged on behalf of a request")
struct RequestIDTests {
  private static let roundTrips = [
    "PostgreSQL round trip", "Slow PostgreSQL round trip",
  ]
  private static let askedApple = "Asked Apple about a receipt"
  private static let waits = "Submission pending, will be retried"
  private static let verified = "Submission verified"

  /// The lines of a log of objects.
  private static func lines(_ log: String) -> [[String: String]] {
    // The last line may be half written.
    log.split(separator: "\n").compactMap {
      try? JSONDecoder().decode([String: String].self, from: Data($0.utf8))
    }
  }

  private static func submit(
    _ receipt: String, to server: ServeProcess, as id: String
  ) async throws -> HTTPClientResponse {
    var request = HTTPClientRequest(url: server.url + "/v1/receipts")
    request.method = .POST
    request.headers.add(name: "Authorization", value: "Bearer \(server.secret)")
    request.headers.add(name: "Content-Type", value: "application/json")
    request.headers.add(name: "X-Request-ID", value: id)
    request.body = .bytes(Array(#"{"account_id":"customer","receipt_data":"\#(receipt)"}"#.utf8))
    return try await HTTPClient.shared.execute(request, timeout: .seconds(120))
  }

  /// Runs a test with a simulated App Store, one of its receipts and the settings of programs
  /// that log everything.
  private static func withReceipt(
    _ test:
      @Sendable (SimulatedApple, _ receipt: String, _ settings: [String: String], URL) async throws
      -> Void
  ) async throws {
    try await withScratchDatabase { database in
      try await SimulatedApple.serving(from: .now) { apple in
        try apple.simulation.addAppleID("customer")
        try apple.simulation.addDevice("phone", appleID: "customer")
        try apple.simulation.buy("monthly", on: "phone")
        let receipt = try apple.simulation.receipt(on: "phone")
        let settings = apple.settings.merging([
          "DATABASE_URL": database.uri, "TENURE_LOG_FORMAT": "json",
          "TENURE_LOG_LEVEL": "trace",
        ]) { $1 }
        try await withTemporaryDirectory { try await test(apple, receipt, settings, $0) }
      }
    }
  }

  /// Submits once while Apple answers, as `first`, and once while it does not, as `second`.
  ///
  /// - Returns: The server's log.
  private static func submitTwice(
    _ receipt: String, _ apple: SimulatedApple, _ settings: [String: String], in directory: URL
  ) async throws -> String {
    let server = try await ServeProcess.start(
      try TenureProgram.executable, databaseURL: settings["DATABASE_URL"] ?? "",
      environment: settings, in: directory)
    let answer = try await submit(receipt, to: server, as: "first")
    #expect(answer.status == .ok)
    #expect(answer.headers.first(name: "X-Request-ID") == "first")
    apple.simulation.setFaults { ($0.rate, $0.kinds) = (1, [.unavailable]) }
    #expect(try await submit(receipt, to: server, as: "second").status == .accepted)
    apple.simulation.setFaults { $0.rate = 0 }
    await server.stop()
    return server.log
  }

  /// Runs a worker until it has verified a submission.
  ///
  /// - Returns: The worker's log.
  private static func work(
    until submission: String, _ settings: [String: String], in directory: URL
  ) async throws -> [[String: String]] {
    let worker = try ChildProcess(
      try TenureProgram.executable, ["work"], environment: settings, in: directory)
    let end = ContinuousClock.now + .seconds(120)
    while line(of: submission, verified, in: lines(worker.errors)) == nil,
      ContinuousClock.now < end
    {
      try await Task.sleep(for: .milliseconds(50))
    }
    await worker.stop()
    return lines(worker.errors)
  }

  private static func line(
    of submission: String, _ message: String, in log: [[String: String]]
  ) -> [String: String]? {
    log.first { $0["submission.id"] == submission && $0["message"] == message }
  }

  @Test("has its id, down to PostgreSQL and Apple, and what a worker does later leads back to it")
  func request() async throws {
    try await Self.withReceipt { apple, receipt, settings, directory in
      let text = try await Self.submitTwice(receipt, apple, settings, in: directory)
      // At any log level.
      #expect(!text.contains(receipt))
      let log = Self.lines(text)
      for id in ["first", "second"] {
        let own = log.filter { $0["request.id"] == id }
        #expect(own.contains { $0["message"] == Self.askedApple }, "\(id)")
        #expect(own.count { $0["message"] == "Request answered" } == 1, "\(id)")
        let statements = own.filter { Self.roundTrips.contains($0["message"] ?? "") }
          .compactMap { $0["postgres.last_statement"] }
        // The last statement that stores a submission, and the commit that records it.
        #expect(statements.contains { $0.hasPrefix("INSERT INTO tenure.job") }, "\(statements)")
        #expect(statements.contains("COMMIT"), "\(statements)")
      }
      #expect(log.allSatisfy { $0["message"] != Self.askedApple || $0["request.id"] != nil })

      let waiting = try #require(log.first { $0["message"] == Self.waits })
      #expect(waiting["request.id"] == "second")
      let submission = try #require(waiting["submission.id"])
      let worked = try await Self.work(until: submission, settings, in: directory)
      let done = try #require(Self.line(of: submission, Self.verified, in: worked))
      #expect(done["job.kind"] == "verify_submission")
      let own = worked.filter { $0["job.id"] != nil && $0["job.id"] == done["job.id"] }
      #expect(own.contains { $0["message"] == Self.askedApple })
      #expect(own.contains { Self.roundTrips.contains($0["message"] ?? "") })
    }
  }
}
