import Bootstrap
import Foundation
import LedgerStorage
import Logging
import Postgres
import PrivatePostgres
import Reports
import Secrets

struct BenchDatabase: Sendable {
  let url: String
  private let server: PrivatePostgres?
  private let logger: Logger

  /// Creates a database with an empty schema: at a URL or, if that is nil, on a private PostgreSQL.
  ///
  /// A private one is durable. If it is kept, `directory` may contain one from an earlier run.
  ///
  /// - Throws: ``BenchError/databaseInUse``, or a PostgreSQL error.
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
    // Checkpoints caused by heavy writing would slow down some rounds and not others.
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

  func withPool<Value>(_ body: (ConnectionPool) async throws -> Value) async throws -> Value {
    let pool = ConnectionPool(configuration: .init(uri: Secret(url)), logger: logger)
    return try await Database(pool: pool, server: nil).use(body)
  }

  /// Restarts a private server, so that its caches are cold.
  func restart() async throws { try await server?.restart() }

  /// Drops the schemas, or stops a private server.
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

/// An external program that a benchmark needs.
struct BenchTool: Sendable {
  let executable: URL

  /// Searches PostgreSQL's directories and the PATH for a program.
  ///
  /// - Throws: ``BenchError/missingTool(name:package:)`` with the Debian package to install.
  init(_ name: String, package: String) throws {
    let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin"
    // Searched first because Debian's pgbench on the PATH is a wrapper that needs a system cluster.
    let folders = Self.postgresFolders + path.split(separator: ":").map(String.init)
    let file = folders.map { "\($0)/\(name)" }
      .first { FileManager.default.isExecutableFile(atPath: $0) }
    guard let file else { throw BenchError.missingTool(name: name, package: package) }
    executable = URL(filePath: file)
  }

  /// Debian's directories of PostgreSQL's programs, newest version first.
  private static var postgresFolders: [String] {
    let folder = "/usr/lib/postgresql"
    let versions = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
    return versions.compactMap(Int.init).sorted(by: >).map { "\(folder)/\($0)/bin" }
  }

  /// Runs the program to success and returns its output.
  func run(_ arguments: [String], in directory: URL) async throws -> String {
    let outcome = try await ChildProcess.run(executable, arguments, in: directory)
    guard outcome.status == 0 else {
      throw BenchError.toolFailed(
        name: executable.lastPathComponent, output: outcome.errors + outcome.output)
    }
    return outcome.output
  }
}

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
      "The output of \(name) can't be parsed: \(Self.tail(output))"
    case .databaseInUse:
      """
      The database already has a Tenure schema, and the benchmarks fill theirs with generated \
      accounts: name an empty database, or omit --database-url.
      """
    case .serverDidNotStart(let log): "tenure serve did not start: \(Self.tail(log))"
    case .wrongAnswer(let what): "The measured work was wrong: \(what)"
    }
  }

  private static func tail(_ output: String) -> String {
    output.split(separator: "\n").suffix(5).joined(separator: " | ")
  }
}

/// PostgreSQL's load generator pgbench, which shows the database's own speed.
struct Pgbench: Sendable {
  private let tool: BenchTool
  private let databaseURL: String
  private let directory: URL

  /// - Throws: ``BenchError/missingTool(name:package:)``.
  init(databaseURL: String, directory: URL) throws {
    tool = try BenchTool("pgbench", package: "postgresql")
    self.databaseURL = databaseURL
    self.directory = directory
  }

  /// Runs a pgbench script repeatedly with prepared statements.
  ///
  /// The run is limited by repetitions, not by time: pgbench's timer is a signal that children of
  /// Swift threads have blocked.
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

/// The HTTP load generator wrk, with keep-alive connections and one request at a time on each.
struct Wrk: Sendable {
  private struct Summary: Decodable {
    var requests: Double
    var microseconds: Double
    var errors: Int
    var p50: Double
    var p99: Double
  }

  private let tool: BenchTool
  private let directory: URL

  /// - Throws: ``BenchError/missingTool(name:package:)``.
  init(directory: URL) throws {
    tool = try BenchTool("wrk", package: "wrk")
    self.directory = directory
  }

  /// Reads the entitlements of random accounts as fast as they are answered.
  ///
  /// `query` is empty or begins with a question mark.
  ///
  /// - Throws: ``BenchError``, also when a request failed.
  ///
  /// - Parameter first: Where to begin, if all accounts are to be read in turn.
  /// - Returns: The measurement and the number of reads.
  func readEntitlements(
    from url: String, secret: String, accounts: ClosedRange<Int>, from first: Int? = nil,
    query: String = "", connections: Int, seconds: Int
  ) async throws -> (Measurement, reads: Int) {
    let file = directory.appending(path: "wrk.lua")
    try script(secret, accounts, first, query).write(
      to: file, atomically: true, encoding: .utf8)
    let output = try await tool.run(
      [
        "--threads", "2", "--connections", "\(connections)", "--duration", "\(seconds)s",
        "--script", file.path(percentEncoded: false), url,
      ], in: directory)
    guard let line = output.split(separator: "\n").last(where: { $0.hasPrefix("{") }),
      let summary = try? JSONDecoder().decode(Summary.self, from: Data(line.utf8))
    else { throw BenchError.unreadable(name: "wrk", output: output) }
    guard summary.errors == 0 else {
      throw BenchError.wrongAnswer("\(summary.errors) of \(Int(summary.requests)) reads failed")
    }
    let measurement = Measurement(
      rate: summary.requests / (summary.microseconds / 1_000_000),
      p50: .microseconds(summary.p50), p99: .microseconds(summary.p99))
    return (measurement, Int(summary.requests))
  }

  /// Formats requests itself because wrk's formatting takes as long as all the rest.
  private func script(
    _ secret: String, _ accounts: ClosedRange<Int>, _ first: Int?, _ query: String
  ) -> String {
    let choice =
      first.map {
        """
        turn = (turn or \($0) + number) + 2
          local account = \(accounts.lowerBound) + turn % \(accounts.count)
        """
      } ?? "local account = math.random(\(accounts.lowerBound), \(accounts.upperBound))"
    return """
      local threads = 0
      function setup(thread)
        threads = threads + 1
        thread:set("seed", os.time() * 64 + threads)
        thread:set("number", threads)
      end
      function init(arguments)
        math.randomseed(seed)
      end
      local rest = "/entitlements\(query) HTTP/1.1\\r\\nHost: localhost\\r\\n" ..
        "Authorization: Bearer \(secret)\\r\\n\\r\\n"
      function request()
        \(choice)
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
