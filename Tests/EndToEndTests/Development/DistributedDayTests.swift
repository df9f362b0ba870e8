import AsyncHTTPClient
import Foundation
import LedgerStorage
import Logging
import NIOCore
import NIOHTTP1
import Postgres
import Reports
import ScratchDatabases
import Secrets
import Subscriptions
import Synchronization
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// Everything that Tenure does, on a Citus whose nodes crash and whose shards move, while programs
/// are killed.
///
/// Alone, with `TENURE_TEST_CITUS_CRASHES`: a node that crashes does so for all its databases.
@Suite(
  "A day on a Citus",
  .enabled(
    if: ScratchPlace.environment.isDistributed
      && ProcessInfo.processInfo.environment["TENURE_TEST_CITUS_CRASHES"] != nil))
struct DistributedDayTests {
  @Test("loses nothing, and leaves no difference")
  func losesNothing() async throws {
    let seed = Seed.chosen()
    print("A day on a Citus: TENURE_TEST_SEED=\(seed)")
    let plan = YearPlan(
      seed: seed, customers: 12, length: CalendarPeriod(months: 2), opensOrders: false)
    let comparison = try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        let nodes = Nodes(of: database)
        var day = KilledYear(plan: plan, kills: 4)
        // Data older than a day is pruned while the day runs.
        day.settings = ["TENURE_RAW_RETENTION": "1d", "TENURE_NOTIFICATION_RETENTION": "1d"]
        day.disturb = { try await nodes.disturb() }
        day.afterwards = { programs in
          try await Self.administer(programs, database, directory)
        }
        let comparison = try await day.live(in: database, directory)
        #expect(nodes.moved > 0 && nodes.crashed > 0)
        return comparison
      }
    }
    #expect(comparison.differences == [], "TENURE_TEST_SEED=\(seed)")
    #expect(comparison.audit.isClean, "TENURE_TEST_SEED=\(seed)")
  }

  /// Moves shards to other nodes, and crashes nodes.
  private final class Nodes: Sendable {
    private let database: ConnectionPool
    private let calls = Mutex(0)
    private let moves = Mutex(0)
    private let crashes = Mutex(0)

    init(of database: ConnectionPool) { self.database = database }

    var moved: Int { moves.withLock { $0 } }
    var crashed: Int { crashes.withLock { $0 } }

    func disturb() async throws {
      let call = calls.withLock { calls in
        calls += 1
        return calls
      }
      switch call % 8 {
      case 1: try await crash(call / 8)
      case 3, 7: try await moveShards()
      default: break
      }
    }

    /// Kills a process of a node, whose other processes end then; it recovers from its log.
    private func crash(_ number: Int) async throws {
      let citus = try await ScratchCitus(coordinator: ScratchPlace.environment.server ?? "")
      let workers = citus.nodes.dropFirst().map(\.self)
      await #expect(throws: PostgresError.self) {
        try await database.runAsSuperuser(
          "COPY (SELECT) TO PROGRAM 'kill -9 $PPID'", onNode: workers[number % workers.count])
      }
      crashes.withLock { $0 += 1 }
    }

    /// Moves a shard of original transactions, with those of all tables that it is colocated with.
    private func moveShards() async throws {
      try await database.runAsSuperuser(
        """
        SELECT citus_move_shard_placement(shard.shardid, shard.nodename, shard.nodeport,
          other.nodename, other.nodeport, 'block_writes')
        FROM (
          SELECT shardid, nodename, nodeport FROM citus_shards
          WHERE table_name = 'tenure.original_transaction'::regclass ORDER BY shardid LIMIT 1
        ) AS shard
        JOIN pg_dist_node AS other ON other.groupid > 0 AND other.nodeport <> shard.nodeport
        LIMIT 1
        """)
      moves.withLock { $0 += 1 }
    }
  }

  /// Administrators' actions on accounts, an import during traffic, and every command that reads.
  private static func administer(
    _ programs: MortalPrograms, _ database: ConnectionPool, _ directory: URL
  ) async throws {
    let owned = try await database.query(
      """
      SELECT t.owner_account_key, min(t.transaction_id) FROM tenure.store_transaction AS t
      WHERE t.owner_account_key IS NOT NULL GROUP BY 1 ORDER BY 1 LIMIT 3
      """
    ).decode(UUID.self, String.self).map { $0 }
    var accounts: [String] = []
    for (key, _) in owned {
      accounts.append(
        try await database.query(
          "SELECT account_id FROM tenure.account_by_key WHERE account_key = \(key)"
        ).decodeOnly(String.self))
    }
    try #require(accounts.count == 3)
    let (first, second, third) = (accounts[0], accounts[1], accounts[2])

    try await call(
      programs, .POST, "/v1/grants", ["account_id": first, "entitlement": "gold"], 201)
    try await call(
      programs, .POST, "/v1/transactions/\(owned[0].1)/owner", ["account_id": second])
    try await call(programs, .POST, "/v1/accounts/\(second)/merge", ["into": third])
    try await call(programs, .GET, "/v1/accounts/\(third)/export")
    try await call(programs, .DELETE, "/v1/accounts/\(first)?reason=A%20day")

    // An import, while others open orders.
    let file = directory.appending(path: "owners.csv")
    let lines = (1...200).map { "imported-\($0),production,77000000\($0 + 1000)" }
    try (["account_id,environment,original_transaction_id"] + lines).joined(separator: "\n")
      .write(to: file, atomically: true, encoding: .utf8)
    async let imported = tenure(
      programs, "import", file.path(percentEncoded: false))
    for number in 1...20 {
      try await call(
        programs, .POST, "/v1/orders",
        ["account_id": "buyer-\(number)", "product_id": "monthly"], 201)
    }
    try await imported

    for report in Report.all {
      try await tenure(programs, "report", report.name)
      try await tenure(programs, "report", report.name, "--items", "--format", "csv")
      guard report.name != "intake" else { continue }
      try await tenure(programs, "report", report.name, "--known-at", "2026-01-20T00:00:00Z")
    }
    for subject in ExportCommand.Subject.allCases {
      try await tenure(programs, "export", subject.rawValue)
    }
    try await DemoVisit.logIn(to: programs.url + "/admin", with: programs.secret)
    try await tenure(programs, "audit")
    try await tenure(programs, "rebuild")
    try await tenure(programs, "audit")
    let (erased, merged) = try await database.query(
      """
      SELECT count(*) FILTER (WHERE erased_at IS NOT NULL),
        count(*) FILTER (WHERE merged_into_key IS NOT NULL)
      FROM tenure.account_by_key
      """
    ).decodeOnly(Int.self, Int.self)
    #expect((erased, merged) == (1, 1))
    let aged = try await database.query(
      "SELECT count(*) FROM tenure.body WHERE pruned_at IS NOT NULL"
    ).decodeOnly(Int.self)
    #expect(aged > 0)
  }

  private static func tenure(_ programs: MortalPrograms, _ arguments: String...) async throws {
    let outcome = try await TenureProgram.run(
      arguments: arguments, environment: programs.environment)
    #expect(outcome.status == 0, "\(arguments): \(outcome.errors)")
  }

  private static func call(
    _ programs: MortalPrograms, _ method: HTTPMethod, _ path: String,
    _ body: [String: String]? = nil, _ status: UInt = 200
  ) async throws {
    var request = HTTPClientRequest(url: programs.url + path)
    request.method = method
    request.headers.add(name: "Authorization", value: "Bearer \(programs.secret)")
    if var body {
      if path != "/v1/orders" { body["reason"] = "A day on a Citus." }
      request.headers.add(name: "Content-Type", value: "application/json")
      request.body = .bytes(ByteBuffer(bytes: try JSONEncoder().encode(body)))
    }
    let answer = try await HTTPClient.shared.execute(request, timeout: .seconds(60))
    let text = String(buffer: try await answer.body.collect(upTo: 1 << 22))
    #expect(answer.status.code == status, "\(method) \(path): \(text)")
  }
}
