import AsyncHTTPClient
import Foundation
import Logging
import NIOCore
import NIOHTTP1

/// Entitlement reads a second that `tenure serve` answers over HTTP, compared with a bare NIO server
/// that answers the same bytes, and with the same query sent to PostgreSQL directly.
struct ReadBenchmark: Sendable {
  private static let name = "entitlement reads over HTTP"
  private static let bareName = "a bare NIO server that answers the same bytes"
  private static let pgbenchName =
    "pgbench, 8 clients, the prepared select of one account's holdings on the same table"
  /// The goal for the 99th percentile.
  private static let longest: Duration = .milliseconds(4)
  /// PostgreSQL is saturated by few connections; more are slower.
  private static let clients = 8

  let database: BenchDatabase
  let accounts: SampleAccounts
  let seconds: Int
  let rounds: Int
  let directory: URL
  let logger: Logger
  /// The warm-up of wrk in seconds, and of pgbench in queries of each client.
  var warmUp = (seconds: 2, queries: 10_000)
  var executable = Bundle.main.executableURL
  /// `TENURE_READ_CACHE` of the measured server; nil: that of the environment.
  var cache: String?

  private typealias Rounds = [(measured: Measurement, limit: Measurement)]

  func run() async throws -> [BenchResult] {
    let pgbench = try Pgbench(databaseURL: database.url, directory: directory)
    return try await withReads(cache: cache) { reads in
      try await reads.fillCache(seconds: warmUp.seconds)
      return try await withReads(cache: EntitlementReads.noCache) { uncached in
        try await BareServer.run(answering: try await reads.answer()) { bare in
          try await run(pgbench, bare, reads, uncached: uncached)
        }
      }
    }
  }

  private func withReads<Value>(
    cache: String?, _ body: (EntitlementReads) async throws -> Value
  ) async throws -> Value {
    try await EntitlementReads.run(
      of: accounts, in: database, by: executable, cache: cache, warmUp: warmUp.seconds,
      in: directory, body)
  }

  private func run(
    _ pgbench: Pgbench, _ bare: BareServer, _ reads: EntitlementReads, uncached: EntitlementReads
  ) async throws -> [BenchResult] {
    let first = try await limit(pgbench, times: warmUp.queries)
    let times = max(1, Int(first.rate * Double(seconds)) / Self.clients)
    var (overHTTP, cached, without, routed): (Rounds, Rounds, Rounds, Rounds) = ([], [], [], [])
    for round in 1...rounds {
      logger.notice("Reads", metadata: ["round": "\(round) of \(rounds)"])
      let limit = try await limit(pgbench, times: times)
      let bareLimit = try await reads.measure(at: bare, seconds: seconds)
      let measured = try await reads.measure(seconds: seconds)
      overHTTP.append((measured, bareLimit))
      cached.append((measured, limit))
      without.append((try await uncached.measure(seconds: seconds), limit))
      let query = EntitlementReads.routerQuery
      routed.append((try await reads.measure(query: query, seconds: seconds), limit))
    }
    return [
      BenchResult(
        name: Self.name, limitName: Self.bareName, goal: 0.8, longest: Self.longest,
        rounds: overHTTP, memory: reads.server.peakMemory),
      BenchResult(
        name: "the same beside PostgreSQL", limitName: Self.pgbenchName, goal: 1, rounds: cached),
      BenchResult(
        name: "the same without a cache", limitName: Self.pgbenchName, goal: 0.6, rounds: without,
        memory: uncached.server.peakMemory),
      BenchResult(
        name: "entitlement reads through the router", limitName: Self.pgbenchName, goal: 0.45,
        rounds: routed),
    ]
  }

  private func limit(_ pgbench: Pgbench, times: Int) async throws -> Measurement {
    try await pgbench.run(
      """
      \\set account random(\(accounts.numbers.lowerBound), \(accounts.numbers.upperBound))
      SELECT account_id, environment, original_transaction_id, transaction_id, product_id, \
      linked_to, product_type, period_type, starts_at, ends_at, revoked_at, superseded_at, \
      moved_at, auto_renews, phase, grace_ends_at, is_sharing_ended FROM tenure.holding \
      WHERE account_id = :account;
      """, clients: Self.clients, times: times)
  }
}

/// The effect of many accounts: entitlement reads compared with those from a hundredth of the
/// accounts, each with its own database and server.
struct GrowthBenchmark: Sendable {
  struct Population: Sendable {
    let database: BenchDatabase
    let accounts: SampleAccounts
  }

  static let accounts = 10_000_000
  /// The ratio of the two numbers of accounts.
  static let growth = 100
  private static let goal = 0.85

  let many: Population
  let few: Population
  let seconds: Int
  let rounds: Int
  let directory: URL
  let logger: Logger
  /// The warm-up of wrk in seconds.
  var warmUp = 2
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
    // Without a cache, which would hold all of the few accounts.
    return try await EntitlementReads.run(
      of: population.accounts, in: population.database, by: executable,
      cache: EntitlementReads.noCache, warmUp: warmUp, in: directory, body)
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
    let limitName = "the same reads of \(self.few.accounts.count) accounts"
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

/// Reads of random accounts' entitlements from a server.
struct EntitlementReads: Sendable {
  /// Requests the same response in a form that only the router handles.
  static let routerQuery = "?active=false"
  /// The setting of a server without a cache.
  static let noCache = "0"
  private static let connections = 64

  let server: ServeProcess
  private let accounts: ClosedRange<Int>
  private let wrk: Wrk

  /// Starts a server, warms it up, and runs a body.
  ///
  /// - Parameters:
  ///   - cache: `TENURE_READ_CACHE`; nil: that of the environment.
  ///   - warmUp: The seconds of reads in each way that are not counted, until caches are warm and
  ///     statements prepared.
  /// - Throws: ``BenchError``, or an error of the body.
  static func run<Value>(
    of accounts: SampleAccounts, in database: BenchDatabase, by executable: URL?,
    cache: String?, warmUp: Int, in directory: URL,
    _ body: (EntitlementReads) async throws -> Value
  ) async throws -> Value {
    let environment = cache.map { ["TENURE_READ_CACHE": $0] } ?? [:]
    return try await ServeProcess.run(
      executable, databaseURL: database.url, environment: environment, in: directory
    ) { server in
      let reads = try EntitlementReads(of: accounts.numbers, from: server, in: directory)
      try await reads.warmUp(seconds: warmUp)
      return try await body(reads)
    }
  }

  /// - Throws: ``BenchError/missingTool(name:package:)``.
  init(of accounts: ClosedRange<Int>, from server: ServeProcess, in directory: URL) throws {
    self.accounts = accounts
    self.server = server
    wrk = try Wrk(directory: directory)
  }

  /// Reads for some seconds; `query` is empty or begins with a question mark.
  ///
  /// - Throws: ``BenchError``, also when a request failed.
  func measure(
    at bare: BareServer? = nil, query: String = "", seconds: Int
  ) async throws -> Measurement {
    try await wrk.readEntitlements(
      from: bare?.url ?? server.url, secret: server.secret, accounts: accounts, query: query,
      connections: Self.connections, seconds: seconds
    ).0
  }

  /// Reads every account once, some seconds at a time.
  func fillCache(seconds: Int) async throws {
    var read = 0
    while seconds > 0, read < accounts.count {
      read += try await wrk.readEntitlements(
        from: server.url, secret: server.secret, accounts: accounts, from: read,
        connections: Self.connections, seconds: seconds
      ).reads
    }
  }

  /// The answer about one account.
  func answer() async throws -> BenchAnswer {
    try await server.get("/v1/accounts/\(accounts.upperBound)/entitlements")
  }

  /// Checks a response, then reads in both ways.
  private func warmUp(seconds: Int) async throws {
    let answer = try await answer()
    guard answer.status == 200, answer.body.contains("\"\(SampleAccounts.entitlement)\""),
      answer.body.contains("\"active\":true")
    else { throw BenchError.wrongAnswer("\(answer.status) \(answer.body)") }
    for query in ["", Self.routerQuery] where seconds > 0 {
      _ = try await measure(query: query, seconds: seconds)
    }
  }
}

enum Load {
  /// Performs work for each item, and measures from the first start to the last end.
  static func measure<Item: Sendable>(
    _ items: [Item], concurrency: Int, _ work: @escaping @Sendable (Item) async throws -> Void
  ) async throws -> Measurement {
    let clock = ContinuousClock()
    let start = clock.now
    let durations = try await withThrowingTaskGroup(of: [Duration].self) { group in
      for first in 0..<concurrency {
        group.addTask {
          var durations: [Duration] = []
          // Items cost about the same, so each task takes every n-th.
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

/// A client of a server's reports and admin pages, logged in as an administrator.
struct BenchPages: Sendable {
  struct Answer: Sendable {
    var status: UInt
    var body: String
    var duration: Duration

    /// Whether the result is still being computed.
    var isWorking: Bool { status == 202 || body.contains("http-equiv=\"refresh\"") }
    /// Whether the response is a success or a redirect.
    var isGood: Bool { (200..<400).contains(status) }
  }

  /// Longer than the server's own statement timeout.
  private static let timeout: TimeAmount = .seconds(90)
  private static let longestAnswer = 32 << 20

  private let client: HTTPClient
  private let server: ServeProcess
  private let cookie: String

  /// Logs in; must be closed with ``close()``.
  ///
  /// - Throws: ``BenchError/wrongAnswer(_:)``, or a transport error.
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

  /// Requests a page with the session cookie, or anything else with the API key.
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

/// The response times of a page or a report, and whether it was answered in time.
struct AnswerTime: Sendable, Encodable {
  /// The limit for a first request, without the network.
  static let limit: Duration = .seconds(2)
  /// Added for "in progress" responses, which the server sends when the limit is reached.
  private static let tolerance: Duration = .milliseconds(300)

  let name: String
  let cold: Duration
  let warm: Duration
  /// Whether the first response was "in progress".
  let wasWorking: Bool
  let answeredAfter: Duration
  let fault: String?

  /// Whether the first request was answered in time.
  var isMet: Bool { fault == nil && cold <= Self.limit + (wasWorking ? Self.tolerance : .zero) }

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
