import Foundation
import Testing

@testable import Bootstrap
@testable import Development
@testable import HTTPAPI
@testable import Intake
@testable import tenure

/// The clients for app servers, each in the same scenario against a real server.
///
/// Some requests fail once on the way, so a client that does not retry, or retries with something
/// else, does not reach these outcomes.
@Suite("The clients for app servers")
struct ClientTests {
  struct Outcome: Codable, Equatable, CustomStringConvertible {
    var step: String
    var value: String

    init(_ step: String, _ value: String) {
      self.step = step
      self.value = value
    }

    var description: String { "\(step): \(value)" }
  }

  // swift-format-ignore
  private static let outcomes: [Outcome] = [
    Outcome("tokens of one account",         "1"),
    Outcome("order",                         "open"),
    Outcome("submission",                    "verified"),
    Outcome("order after submission",        "fulfilled"),
    Outcome("deliverable",                   "monthly"),
    Outcome("first acknowledgement",         "false"),
    Outcome("warnings",                      "owned_by_another_account"),
    Outcome("deliverable to other account",  "0"),
    Outcome("acknowledged by other account", "409 not_the_owner"),
    Outcome("forged transaction",            "422 invalid_signature"),
    Outcome("while Apple is unavailable",    "pending"),
    Outcome("after retries",                 "verified"),
    Outcome("entitlements of 4711",          "use-of-monthly"),
    Outcome("entitlements of 4712",          ""),
    Outcome("entitlements of unknown/ever",   ""),
    Outcome("events",                        "1"),
    Outcome("cursor",                        "true"),
    Outcome("webhook genuine",               "yes"),
    Outcome("webhook of another body",       "no"),
    Outcome("webhook of another sender",     "no"),
    Outcome("webhook too old",               "no"),
  ]

  /// Runs the scenario with a client behind a faulty proxy.
  private func play(_ client: @Sendable @escaping (ClientStage) async throws -> [Outcome])
    async throws
  {
    try await ClientStage.serving { stage in
      let delivery = "POST /v1/transactions/\(stage.transactionID)/delivery"
      let proxy = FaultyProxy(
        to: stage.url,
        faults: [
          "PUT /v1/accounts/4711": .unavailable, "POST /v1/receipts": .lostAnswer,
          delivery: .lostAnswer, "GET /v1/accounts/4711/entitlements": .silence,
        ])
      try await proxy.run { url in
        var stage = stage
        stage.url = url
        let outcomes = try await client(stage)
        #expect(outcomes == Self.outcomes)
        #expect(proxy.faults.isEmpty, "every fault occurred")
        let ids = Set(proxy.requestIDs)
        #expect(proxy.requestIDs.count >= ids.count + 4, "attempts of a call share an ID")
      }
    }
  }

  @Test("in Swift")
  func swift() async throws {
    try await play { try await Self.scenario($0) }
  }

  @Test("in Python")
  func python() async throws {
    try await play { try await Self.run(["python3", "-B", "scenario.py"], on: $0) }
  }

  @Test("in Node", .enabled("needs Node 18", { try await Self.hasNode() }))
  func node() async throws {
    try await play { try await Self.run(["node", "scenario.mjs"], on: $0) }
  }

  // MARK: Other languages

  private static func hasNode() async throws -> Bool {
    try await withTemporaryDirectory { directory in
      let program = "process.exit(typeof fetch === 'function' ? 0 : 1)"
      let outcome = try await ChildProcess.run(
        URL(filePath: "/usr/bin/env"), ["node", "-e", program], in: directory)
      return outcome.status == 0
    }
  }

  private static func run(_ command: [String], on stage: ClientStage) async throws -> [Outcome] {
    try await withTemporaryDirectory { directory in
      let encoder = JSONEncoder()
      encoder.keyEncodingStrategy = .convertToSnakeCase
      let input = directory.appending(path: "stage.json")
      try encoder.encode(stage).write(to: input)
      let folder = URL(filePath: #filePath).deletingLastPathComponent()
      let outcome = try await ChildProcess.run(
        URL(filePath: "/usr/bin/env"),
        [
          "bash", "-c", #"cd "$1" && exec "${@:3}" < "$2""#, "bash",
          folder.path(percentEncoded: false), input.path(percentEncoded: false),
        ] + command, in: directory)
      #expect(outcome.status == 0, "\(outcome.errors)")
      return try outcome.output.split(separator: "\n").map {
        try JSONDecoder().decode(Outcome.self, from: Data($0.utf8))
      }
    }
  }

  // MARK: Swift

  private static func scenario(_ stage: ClientStage) async throws -> [Outcome] {
    let tenure = TenureAPI(
      url: stage.url, key: stage.key, timeout: .seconds(stage.timeoutSeconds))
    var outcomes: [Outcome] = []
    func report(_ step: String, _ value: some CustomStringConvertible) {
      outcomes.append(Outcome(step, "\(value)"))
    }
    func refused(_ step: String, _ call: () async throws -> Void) async throws {
      do {
        try await call()
      } catch let problem as TenureAPI.Problem {
        report(step, "\(problem.status) \(problem.code)")
      }
    }

    let tokens = [try await tenure.account("4711"), try await tenure.account("4711")]
    report("tokens of one account", Set(tokens.map(\.appAccountToken)).count)
    let order = try await tenure.openOrder(of: "4711", for: "monthly")
    report("order", order.status)

    let bought = try await tenure.submit(
      .init(accountId: "4711", signedTransactions: [stage.signed], orderId: order.orderId))
    report("submission", bought.status)
    report("order after submission", bought.order?.status ?? "")
    let owned = bought.owned(by: "4711")
    report("deliverable", owned.map(\.productId).joined(separator: ","))
    let transaction = try #require(owned.first?.transactionId)
    // The first response is lost, so this is the second acknowledgement.
    report("first acknowledgement", try await tenure.acknowledge(transaction, of: "4711"))

    let other = try await tenure.submit(
      .init(accountId: "4712", signedTransactions: [stage.signed]))
    report("warnings", (other.warnings ?? []).joined(separator: ","))
    report("deliverable to other account", other.owned(by: "4712").count)
    try await refused("acknowledged by other account") {
      _ = try await tenure.acknowledge(transaction, of: "4712")
    }
    try await refused("forged transaction") {
      _ = try await tenure.submit(.init(accountId: "4711", signedTransactions: ["e.e.e"]))
    }

    let pending = try await tenure.submit(.init(accountId: "4711", receiptData: stage.receipt))
    report("while Apple is unavailable", pending.status)
    report("after retries", try await tenure.settled(pending).status)

    for account in ["4711", "4712", "unknown/ever"] {
      let names = try await tenure.entitlements(of: account).map(\.entitlement)
      report("entitlements of \(account)", names.joined(separator: ","))
    }

    var seen: [TenureAPI.Event] = []
    var cursor = ""
    try await tenure.follow(after: nil) { events, next in
      seen += events
      cursor = next
      return !seen.contains { $0.type == "order.fulfilled" }
    }
    report("events", seen.count { $0.type == "transaction.recorded" })
    report("cursor", cursor.split(separator: "-").first.map(String.init) == seen.last?.id)
    for (name, header) in stage.headers.sorted(by: { $0.key < $1.key }) {
      let isGenuine = TenureAPI.isGenuine(
        header, body: Data(stage.body.utf8), secret: stage.secret)
      report("webhook \(name)", isGenuine ? "yes" : "no")
    }
    return outcomes
  }
}
