import AsyncHTTPClient
import Foundation
import Logging
import NIOCore
import NIOHTTP1

/// How many entitlements a second `tenure serve` answers over HTTP, beside what PostgreSQL answers
/// to the same question asked directly.
struct ReadBenchmark: Sendable {
  private static let name = "entitlement reads over HTTP"
  private static let routerName = "entitlement reads through the router"
  private static let limitName =
    "pgbench, 8 clients, the prepared select of one account's holdings on the same table"
  private static let goal = 1.0
  private static let routerGoal = 0.45
  /// Few connections saturate PostgreSQL; more are slower.
  private static let clients = 8

  let database: BenchDatabase
  let accounts: SampleAccounts
  let seconds: Int
  let rounds: Int
  let directory: URL
  let logger: Logger
  /// How long wrk and pgbench run before it counts, in seconds and queries of each client.
  var warmUp = (seconds: 2, queries: 10_000)
  /// The program `tenure`.
  var executable = Bundle.main.executableURL

  func run() async throws -> [BenchResult] {
    let pgbench = try Pgbench(databaseURL: database.url, directory: directory)
    return try await EntitlementReads.run(
      of: accounts, in: database, by: executable, warmUp: warmUp.seconds, in: directory
    ) { try await run(pgbench, $0) }
  }

  private func run(_ pgbench: Pgbench, _ reads: EntitlementReads) async throws -> [BenchResult] {
    let first = try await limit(pgbench, times: warmUp.queries)
    let times = max(1, Int(first.rate * Double(seconds)) / Self.clients)
    var figures: [(measured: Measurement, limit: Measurement)] = []
    var routerFigures: [(measured: Measurement, limit: Measurement)] = []
    for round in 1...rounds {
      logger.notice("Reads", metadata: ["round": "\(round) of \(rounds)"])
      let limit = try await limit(pgbench, times: times)
      figures.append((try await reads.measure(seconds: seconds), limit))
      let query = EntitlementReads.routerQuery
      routerFigures.append((try await reads.measure(query: query, seconds: seconds), limit))
    }
    return [
      BenchResult(
        name: Self.name, limitName: Self.limitName, goal: Self.goal, rounds: figures,
        memory: reads.server.peakMemory),
      BenchResult(
        name: Self.routerName, limitName: Self.limitName, goal: Self.routerGoal,
        rounds: routerFigures),
    ]
  }

  private func limit(_ pgbench: Pgbench, times: Int) async throws -> Measurement {
    try await pgbench.run(
      """
      \\set account random(\(accounts.numbers.lowerBound), \(accounts.numbers.upperBound))
      SELECT account_id, environment, original_transaction_id, transaction_id, product_id, \
      family_id, product_type, period_type, starts_at, ends_at, revoked_at, superseded_at, \
      auto_renews, phase, grace_ends_at FROM tenure.holding WHERE account_id = :account;
      """, clients: Self.clients, times: times)
  }
}

/// What it costs to have many accounts: entitlement reads where there are many, beside the same
/// reads where there is a hundredth of them, each with a database and a server of its own.
struct GrowthBenchmark: Sendable {
  /// A database with its accounts.
  struct Population: Sendable {
    let database: BenchDatabase
    let accounts: SampleAccounts
  }

  /// How many accounts there are, unless told otherwise.
  static let accounts = 10_000_000
  /// Of so many there is one where there are few.
  static let growth = 100
  private static let goal = 0.85

  let many: Population
  let few: Population
  let seconds: Int
  let rounds: Int
  let directory: URL
  let logger: Logger
  /// How long wrk runs before it counts, in seconds.
  var warmUp = 2
  /// The program `tenure`.
  var executable = Bundle.main.executableURL

  func run() async throws -> [BenchResult] {
    try await withReads(of: many) { many in
      try await withReads(of: few) { few in
        try await run(many, few)
      }
    }
  }

  private func withReads<Value>(
    of population: Population, _ body: (EntitlementReads) async throws -> Value
  ) async throws -> Value {
    try await population.accounts.fill(population.database, logger: logger)
    return try await EntitlementReads.run(
      of: population.accounts, in: population.database, by: executable, warmUp: warmUp,
      in: directory, body)
  }

  private func run(_ many: EntitlementReads, _ few: EntitlementReads) async throws
    -> [BenchResult]
  {
    var figures: [(measured: Measurement, limit: Measurement)] = []
    var routerFigures: [(measured: Measurement, limit: Measurement)] = []
    for round in 1...rounds {
      logger.notice("Reads", metadata: ["round": "\(round) of \(rounds)"])
      let limit = try await few.measure(seconds: seconds)
      figures.append((try await many.measure(seconds: seconds), limit))
      let query = EntitlementReads.routerQuery
      let routerLimit = try await few.measure(query: query, seconds: seconds)
      routerFigures.append(
        (try await many.measure(query: query, seconds: seconds), routerLimit))
    }
    let accounts = "\(self.many.accounts.count) accounts"
    let limitName = "the same reads where there are \(self.few.accounts.count)"
    return [
      BenchResult(
        name: "entitlement reads, \(accounts)", limitName: limitName, goal: Self.goal,
        rounds: figures, memory: many.server.peakMemory),
      BenchResult(
        name: "entitlement reads through the router, \(accounts)", limitName: limitName,
        goal: Self.goal, rounds: routerFigures),
    ]
  }
}

/// Random accounts' entitlements, read from a server as fast as it answers.
struct EntitlementReads: Sendable {
  /// Asks for the same answer in a way that only the router understands.
  static let routerQuery = "?active=false"
  /// Keep-alive connections, each with one request under way.
  private static let connections = 64

  let server: ServeProcess
  private let accounts: ClosedRange<Int>
  private let wrk: Wrk

  /// Reads from a server of its own, when nothing is done for the first time any more.
  ///
  /// - Parameters:
  ///   - accounts: With which the database is filled.
  ///   - database: Which is served.
  ///   - executable: The program `tenure`; nil: it is not known where it is.
  ///   - warmUp: How many seconds the server is asked each way before it counts, until caches are
  ///     warm and statements prepared.
  ///   - directory: For what the programs write.
  ///   - body: Reads.
  /// - Returns: What the body does.
  /// - Throws: ``BenchError``, or what the body throws.
  static func run<Value>(
    of accounts: SampleAccounts, in database: BenchDatabase, by executable: URL?, warmUp: Int,
    in directory: URL, _ body: (EntitlementReads) async throws -> Value
  ) async throws -> Value {
    try await ServeProcess.run(executable, databaseURL: database.url, in: directory) { server in
      let reads = try EntitlementReads(of: accounts.numbers, from: server, in: directory)
      try await reads.warmUp(seconds: warmUp)
      return try await body(reads)
    }
  }

  /// - Parameters:
  ///   - accounts: The numbers of the accounts there are.
  ///   - server: Which is asked.
  ///   - directory: For the load generator's script.
  /// - Throws: ``BenchError/missingTool(name:package:)``.
  init(of accounts: ClosedRange<Int>, from server: ServeProcess, in directory: URL) throws {
    self.accounts = accounts
    self.server = server
    wrk = try Wrk(directory: directory)
  }

  /// Reads for a while.
  ///
  /// - Parameters:
  ///   - query: What follows the path: nothing, or a query with its question mark.
  ///   - seconds: How long.
  /// - Returns: The answers a second, and how long they took.
  /// - Throws: ``BenchError``, also when a request failed.
  func measure(query: String = "", seconds: Int) async throws -> Measurement {
    try await wrk.readEntitlements(
      from: server, accounts: accounts, query: query, connections: Self.connections,
      seconds: seconds)
  }

  /// Reads both ways for a while, having made sure that what will be counted are answers, and the
  /// right ones.
  private func warmUp(seconds: Int) async throws {
    let (status, body) = try await server.get("/v1/accounts/\(accounts.upperBound)/entitlements")
    guard status == 200, body.contains("\"\(SampleAccounts.entitlement)\""),
      body.contains("\"active\":true")
    else { throw BenchError.wrongAnswer("\(status) \(body)") }
    for query in ["", Self.routerQuery] where seconds > 0 {
      _ = try await measure(query: query, seconds: seconds)
    }
  }
}

/// Work that is done so many pieces at a time, and measured.
enum Load {
  /// Does every piece of work once.
  ///
  /// - Parameters:
  ///   - items: The pieces.
  ///   - concurrency: How many are under way at a time.
  ///   - work: Does one; what it throws ends everything.
  /// - Returns: How fast it went, from the first piece's beginning to the last one's end.
  /// - Throws: What `work` throws.
  static func measure<Item: Sendable>(
    _ items: [Item], concurrency: Int, _ work: @escaping @Sendable (Item) async throws -> Void
  ) async throws -> Measurement {
    let clock = ContinuousClock()
    let start = clock.now
    let durations = try await withThrowingTaskGroup(of: [Duration].self) { group in
      for first in 0..<concurrency {
        group.addTask {
          var durations: [Duration] = []
          // The pieces are alike, so each task takes every n-th.
          for index in stride(from: first, to: items.count, by: concurrency) {
            try Task.checkCancellation()
            durations.append(try await clock.measure { try await work(items[index]) })
          }
          return durations
        }
      }
      var all: [Duration] = []
      for try await durations in group { all += durations }
      return all.sorted()
    }
    let elapsed = clock.now - start
    return Measurement(
      rate: Double(items.count) / (elapsed / .seconds(1)),
      p50: percentile(0.5, of: durations), p99: percentile(0.99, of: durations))
  }

  private static func percentile(_ share: Double, of sorted: [Duration]) -> Duration? {
    guard !sorted.isEmpty else { return nil }
    return sorted[min(sorted.count - 1, Int(Double(sorted.count) * share))]
  }
}

/// Somebody who looks at reports and at the administrator's pages of a server, logged in.
struct BenchPages: Sendable {
  /// What the server said, and how long it took.
  struct Answer: Sendable {
    var status: UInt
    var body: String
    var duration: Duration

    /// A page that asks again by itself, or what tells a program to.
    var isWorking: Bool { status == 202 || body.contains("http-equiv=\"refresh\"") }
    /// Whether it is what was asked for, or leads there.
    var isGood: Bool { (200..<400).contains(status) }
  }

  /// Longer than the server asks its database for.
  private static let timeout: TimeAmount = .seconds(90)
  /// Far above the largest page.
  private static let longestAnswer = 32 << 20

  private let client: HTTPClient
  private let server: ServeProcess
  private let cookie: String

  /// Logs in; whoever does so ends it with ``close()``.
  ///
  /// - Throws: ``BenchError/wrongAnswer(_:)``, or what kept an answer from coming.
  init(of server: ServeProcess) async throws {
    self.server = server
    client = HTTPClient(
      eventLoopGroupProvider: .singleton,
      configuration: HTTPClient.Configuration(redirectConfiguration: .disallow))
    do {
      var request = HTTPClientRequest(url: server.url + "/admin/login")
      request.method = .POST
      request.headers.add(name: "Content-Type", value: "application/x-www-form-urlencoded")
      request.body = .bytes(ByteBuffer(string: "key=\(server.secret)"))
      let answer = try await client.execute(request, timeout: Self.timeout)
      guard let set = answer.headers.first(name: "Set-Cookie"), let end = set.firstIndex(of: ";")
      else { throw BenchError.wrongAnswer("logging in: \(answer.status)") }
      cookie = String(set[..<end])
    } catch {
      try? await client.shutdown()
      throw error
    }
  }

  func close() async { try? await client.shutdown() }

  /// Asks for something, as a program with a key where it is no page.
  ///
  /// - Parameter path: From the first slash on.
  /// - Returns: The answer.
  /// - Throws: What kept it from coming.
  func get(_ path: String) async throws -> Answer {
    var request = HTTPClientRequest(url: server.url + path)
    if path.hasPrefix("/admin") {
      request.headers.add(name: "Cookie", value: cookie)
    } else {
      request.headers.add(name: "Authorization", value: "Bearer \(server.secret)")
    }
    let start = ContinuousClock.now
    let answer = try await client.execute(request, timeout: Self.timeout)
    let body = try await answer.body.collect(upTo: Self.longestAnswer)
    return Answer(
      status: answer.status.code, body: String(buffer: body), duration: .now - start)
  }
}

/// How long something that people wait for takes: they are answered in time, or told that it takes
/// longer.
struct AnswerTime: Sendable, Encodable {
  /// Nobody looks at an empty page for longer, and what the network takes is not measured here.
  static let limit: Duration = .seconds(2)
  /// The server says that it works when the limit is over: a moment later that is here.
  private static let tolerance: Duration = .milliseconds(300)

  let name: String
  let cold: Duration
  let warm: Duration
  /// The first time it was only said that it is being worked on.
  let wasWorking: Bool
  /// When it was there at last.
  let answeredAfter: Duration
  /// What was wrong; nil: nothing.
  let fault: String?

  /// Whether somebody who asks for the first time hears something in time.
  var isMet: Bool { fault == nil && cold <= Self.limit + (wasWorking ? Self.tolerance : .zero) }

  /// What came of it, in a word.
  var outcome: String { fault ?? (wasWorking ? "working" : isMet ? "answered" : "too late") }

  enum CodingKeys: String, CodingKey {
    case name, outcome, met
    case cold = "cold_ms"
    case warm = "warm_ms"
    case answeredAfter = "answered_after_ms"
    case limit = "limit_ms"
  }

  func encode(to encoder: any Encoder) throws {
    var answer = encoder.container(keyedBy: CodingKeys.self)
    try answer.encode(name, forKey: .name)
    try answer.encode(cold / .milliseconds(1), forKey: .cold)
    try answer.encode(warm / .milliseconds(1), forKey: .warm)
    try answer.encode(answeredAfter / .milliseconds(1), forKey: .answeredAfter)
    try answer.encode(Self.limit / .milliseconds(1), forKey: .limit)
    try answer.encode(outcome, forKey: .outcome)
    try answer.encode(isMet, forKey: .met)
  }
}
