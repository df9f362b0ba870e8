import Foundation
import LedgerStorage
import Logging
import Postgres
import PrivatePostgres
import Reports
import Secrets

/// The database that the benchmarks fill and measure on; it is gone afterwards.
struct BenchDatabase: Sendable {
  let url: String
  private let server: PrivatePostgres?
  private let logger: Logger

  /// Makes an empty database with Tenure's schema.
  ///
  /// - Parameters:
  ///   - url: An empty database; nil: on a private, durable PostgreSQL with its usual settings.
  ///   - directory: Where a private one keeps its data.
  ///   - isKept: Whether a private one's data stay, and are used where they are there already.
  ///   - settings: Other settings of a private one.
  ///   - logger: For the connections.
  /// - Returns: The database, to be removed after use.
  /// - Throws: ``BenchError/databaseInUse``, or what is wrong with PostgreSQL.
  static func create(
    url: Secret<String>?, in directory: URL, isKept: Bool = false, settings: [String: String] = [:],
    logger: Logger
  ) async throws -> BenchDatabase {
    if let url {
      return try await BenchDatabase(url: url.revealed, server: nil, logger: logger).created()
    }
    var options = PrivatePostgres.Options()
    options.isTemporary = !isKept
    options.settings = settings
    // A checkpoint because of much writing would fall into one round and not into the other.
    options.settings["max_wal_size"] = "8GB"
    options.settings["checkpoint_timeout"] = "1h"
    let server = try await PrivatePostgres.start(
      in: directory.appending(path: "postgres"), options: options, logger: logger)
    do {
      let database = BenchDatabase(url: await server.uri(), server: server, logger: logger)
      return try await database.created(isKept: isKept)
    } catch {
      await server.stop()
      throw error
    }
  }

  private func created(isKept: Bool = false) async throws -> BenchDatabase {
    try await withPool { pool in
      let schema = SchemaMigrator(
        database: pool, reports: ReportSQL(Report.sql), logger: logger)
      let isEmpty = try await schema.version() == nil
      guard isEmpty || isKept else { throw BenchError.databaseInUse }
      _ = try await schema.migrate()
    }
    return self
  }

  /// Opens a pool as the programs do, for the length of a body.
  func withPool<Value>(_ body: (ConnectionPool) async throws -> Value) async throws -> Value {
    let pool = ConnectionPool(configuration: .init(uri: Secret(url)), logger: logger)
    do {
      let value = try await body(pool)
      await pool.close()
      return value
    } catch {
      await pool.close()
      throw error
    }
  }

  /// Starts the server again, if it is ours: what it had at hand is gone.
  ///
  /// - Throws: What is wrong with PostgreSQL.
  func restart() async throws { try await server?.restart() }

  /// Removes everything that is not kept, and stops the server if it is ours.
  func remove() async {
    if let server {
      await server.stop()
    } else {
      try? await withPool {
        try await $0.runScript(
          "DROP SCHEMA IF EXISTS bench CASCADE; DROP SCHEMA tenure CASCADE")
      }
    }
  }
}

/// A program of others that a benchmark needs.
struct BenchTool: Sendable {
  let executable: URL

  /// Looks for a program where it is usually installed.
  ///
  /// - Parameters:
  ///   - name: The program's name.
  ///   - package: What to install where it is missing, on Debian and Ubuntu.
  /// - Throws: ``BenchError/missingTool(name:package:)``.
  init(_ name: String, package: String) throws {
    let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
    // Debian's pgbench on the PATH is a wrapper that wants a cluster of the system's: the program
    // itself comes first.
    let folders = Self.postgresFolders + path.split(separator: ":").map(String.init)
    let file = folders.map { "\($0)/\(name)" }
      .first { FileManager.default.isExecutableFile(atPath: $0) }
    guard let file else { throw BenchError.missingTool(name: name, package: package) }
    executable = URL(filePath: file)
  }

  /// Where Debian keeps PostgreSQL's programs, the newest version first.
  private static var postgresFolders: [String] {
    let folder = "/usr/lib/postgresql"
    let versions = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
    return versions.compactMap(Int.init).sorted(by: >).map { "\(folder)/\($0)/bin" }
  }

  /// Runs the program, which has to succeed, and returns what it printed.
  func run(_ arguments: [String], in directory: URL) async throws -> String {
    let outcome = try await ChildProcess.run(executable, arguments, in: directory)
    guard outcome.status == 0 else {
      throw BenchError.toolFailed(
        name: executable.lastPathComponent, output: outcome.errors + outcome.output)
    }
    return outcome.output
  }
}

/// Why a benchmark could not be run.
enum BenchError: Error, CustomStringConvertible {
  case missingTool(name: String, package: String)
  case toolFailed(name: String, output: String)
  case unreadable(name: String, output: String)
  case databaseInUse
  case serverDidNotStart(log: String)
  case wrongAnswer(String)

  var description: String {
    switch self {
    case .missingTool(let name, let package):
      "\(name) is missing: install the package \(package) (apt-get install \(package))."
    case .toolFailed(let name, let output): "\(name) failed: \(Self.tail(output))"
    case .unreadable(let name, let output):
      "What \(name) printed can't be read: \(Self.tail(output))"
    case .databaseInUse:
      """
      The database has a schema of Tenure's, and the benchmarks fill theirs with invented \
      accounts: \
      name an empty database, or leave --database-url out.
      """
    case .serverDidNotStart(let log): "tenure serve did not start: \(Self.tail(log))"
    case .wrongAnswer(let what): "What was measured is wrong: \(what)"
    }
  }

  /// The last lines of what a program said, in one.
  private static func tail(_ output: String) -> String {
    output.split(separator: "\n").suffix(5).joined(separator: " | ")
  }
}

/// PostgreSQL's own load generator: what the database answers with nothing of ours in between.
struct Pgbench: Sendable {
  private let tool: BenchTool
  private let databaseURL: String
  private let directory: URL

  /// - Parameters:
  ///   - databaseURL: The database that is asked.
  ///   - directory: For its script.
  /// - Throws: ``BenchError/missingTool(name:package:)``.
  init(databaseURL: String, directory: URL) throws {
    tool = try BenchTool("pgbench", package: "postgresql")
    self.databaseURL = databaseURL
    self.directory = directory
  }

  /// Runs a script again and again, its statements prepared.
  ///
  /// - Parameters:
  ///   - script: In pgbench's language.
  ///   - clients: How many connections.
  ///   - times: How often each of them runs it. (Not how long: pgbench's clock is a signal, which
  ///     children of Swift's threads have blocked.)
  /// - Returns: The scripts that were run a second.
  /// - Throws: ``BenchError``.
  func run(_ script: String, clients: Int, times: Int) async throws -> Measurement {
    let file = directory.appending(path: "pgbench.sql")
    try script.write(to: file, atomically: true, encoding: .utf8)
    let output = try await tool.run(
      [
        "--protocol=prepared", "--no-vacuum", "--file=\(file.path(percentEncoded: false))",
        "--client=\(clients)", "--jobs=2", "--transactions=\(times)", databaseURL,
      ], in: directory)
    guard let match = output.firstMatch(of: /tps = ([0-9.]+)/), let rate = Double(match.1) else {
      throw BenchError.unreadable(name: "pgbench", output: output)
    }
    return Measurement(rate: rate)
  }
}

/// The HTTP load generator wrk: keep-alive connections, each with one request under way.
struct Wrk: Sendable {
  /// What the script below prints at the end.
  private struct Summary: Decodable {
    var requests: Double
    var microseconds: Double
    var errors: Int
    var p50: Double
    var p99: Double
  }

  private let tool: BenchTool
  private let directory: URL

  /// - Parameter directory: For its script.
  /// - Throws: ``BenchError/missingTool(name:package:)``.
  init(directory: URL) throws {
    tool = try BenchTool("wrk", package: "wrk")
    self.directory = directory
  }

  /// Asks for the entitlements of random accounts as fast as they are answered.
  ///
  /// - Parameters:
  ///   - server: Which is asked.
  ///   - accounts: The numbers of the accounts there are.
  ///   - query: What follows the path: nothing, or a query with its question mark.
  ///   - connections: How many requests are under way at a time.
  ///   - seconds: How long.
  /// - Returns: The answers a second, and how long they took.
  /// - Throws: ``BenchError``, also when a request failed.
  func readEntitlements(
    from server: ServeProcess, accounts: ClosedRange<Int>, query: String = "", connections: Int,
    seconds: Int
  ) async throws -> Measurement {
    let file = directory.appending(path: "wrk.lua")
    try script(server, accounts, query).write(to: file, atomically: true, encoding: .utf8)
    let output = try await tool.run(
      [
        "--threads", "2", "--connections", "\(connections)", "--duration", "\(seconds)s",
        "--script", file.path(percentEncoded: false), server.url,
      ], in: directory)
    guard let line = output.split(separator: "\n").last(where: { $0.hasPrefix("{") }),
      let summary = try? JSONDecoder().decode(Summary.self, from: Data(line.utf8))
    else { throw BenchError.unreadable(name: "wrk", output: output) }
    guard summary.errors == 0 else {
      throw BenchError.wrongAnswer("\(summary.errors) of \(Int(summary.requests)) reads failed")
    }
    return Measurement(
      rate: summary.requests / (summary.microseconds / 1_000_000),
      p50: .microseconds(summary.p50), p99: .microseconds(summary.p99))
  }

  /// Requests are put together by hand, since wrk takes as long for its own formatting as for all
  /// the rest.
  private func script(_ server: ServeProcess, _ accounts: ClosedRange<Int>, _ query: String)
    -> String
  {
    """
    local threads = 0
    function setup(thread)
      threads = threads + 1
      thread:set("seed", os.time() * 64 + threads)
    end
    function init(arguments)
      math.randomseed(seed)
    end
    local rest = "/entitlements\(query) HTTP/1.1\\r\\nHost: localhost\\r\\n" ..
      "Authorization: Bearer \(server.secret)\\r\\n\\r\\n"
    function request()
      local account = math.random(\(accounts.lowerBound), \(accounts.upperBound))
      return "GET /v1/accounts/" .. account .. rest
    end
    function done(summary, latency, requests)
      local errors = summary.errors
      io.write(string.format(
        '{"requests": %d, "microseconds": %d, "errors": %d, "p50": %d, "p99": %d}\\n',
        summary.requests, summary.duration,
        errors.connect + errors.read + errors.write + errors.status + errors.timeout,
        latency:percentile(50), latency:percentile(99)))
    end
    """
  }
}
