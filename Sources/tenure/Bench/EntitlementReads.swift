import Foundation

/// Random accounts' entitlements, read from a server as fast as it answers.
struct EntitlementReads: Sendable {
  /// Asks for the same answer in a way that only the router understands.
  static let routerQuery = "?active=false"
  /// Keep-alive connections, each with one request under way.
  private static let connections = 64
  /// How long the server runs before it counts, until caches are warm and statements prepared.
  private static let warmUpSeconds = 2

  let server: ServeProcess
  private let accounts: ClosedRange<Int>
  private let wrk: Wrk

  /// Reads from a server of its own, when nothing is done for the first time any more.
  ///
  /// - Parameters:
  ///   - accounts: With which the database is filled.
  ///   - database: Which is served.
  ///   - executable: The program `tenure`; nil: it is not known where it is.
  ///   - directory: For what the programs write.
  ///   - body: Reads.
  /// - Returns: What the body does.
  /// - Throws: ``BenchError``, or what the body throws.
  static func run<Value>(
    of accounts: SampleAccounts, in database: BenchDatabase, by executable: URL?,
    in directory: URL, _ body: (EntitlementReads) async throws -> Value
  ) async throws -> Value {
    try await ServeProcess.run(executable, databaseURL: database.url, in: directory) { server in
      let reads = try EntitlementReads(of: accounts.numbers, from: server, in: directory)
      try await reads.warmUp()
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
  private func warmUp() async throws {
    let (status, body) = try await server.get("/v1/accounts/\(accounts.upperBound)/entitlements")
    guard status == 200, body.contains("\"\(SampleAccounts.entitlement)\""),
      body.contains("\"active\":true")
    else { throw BenchError.wrongAnswer("\(status) \(body)") }
    for query in ["", Self.routerQuery] {
      _ = try await measure(query: query, seconds: Self.warmUpSeconds)
    }
  }
}
