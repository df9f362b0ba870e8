import Bootstrap
import Foundation
import Intake
import LedgerStorage
import Logging
import Postgres
import Reports
import Subscriptions

/// Imported rows a second, compared with COPY of the database rows that the import writes.
struct ImportBenchmark: Sendable {
  private static let name = "lines imported"
  private static let goal = 0.2
  private static let limitName = """
    psql, \\copy from files: the rows that the import wrote, table after table, in one \
    transaction
    """
  /// The tables that an import writes, in order of their foreign keys.
  private static let tables = [
    "account", "account_by_key", "account_by_token", "original_transaction", "ledger_entry",
    "ownership_action", "account_original_transaction", "job",
  ]

  let database: BenchDatabase
  let lines: Int
  let rounds: Int
  let directory: URL
  let logger: Logger

  func run() async throws -> BenchResult {
    let psql = try BenchTool("psql", package: "postgresql-client")
    let file = directory.appending(path: "owners.csv")
    try write(to: file)
    var figures: [(measured: Measurement, limit: Measurement)] = []
    for round in 1...rounds {
      logger.notice("Imports", metadata: ["round": "\(round) of \(rounds)"])
      try await empty()
      let measured = try await importing(file)
      try await psql.run(script("to", columns: true), on: database, in: directory)
      try await empty()
      let start = ContinuousClock.now
      try await psql.run(script("from", columns: false), on: database, in: directory)
      let elapsed = start.duration(to: .now)
      figures.append((measured, Measurement(rate: Double(lines) / (elapsed / .seconds(1)))))
    }
    return BenchResult(
      name: Self.name, limitName: Self.limitName, goal: Self.goal, rounds: figures,
      memory: ProcessMemory.peak(of: ProcessInfo.processInfo.processIdentifier))
  }

  /// Writes a file of rows, each for another account.
  private func write(to file: URL) throws {
    var rows = try RowWriter(
      to: file.path(percentEncoded: false), .csv,
      columns: ["environment", "original_transaction_id", "account_id"])
    for number in 0..<lines {
      try rows.write(["production", "\(2_000_000_000_000 + number)", "customer-\(number)"])
    }
    try rows.finish()
  }

  private func empty() async throws {
    try await database.withPool { pool in
      try await pool.runScript("DROP SCHEMA tenure CASCADE")
      _ = try await SchemaMigrator(
        database: pool, reports: ReportSQL(Report.sql), logger: logger
      ).migrate()
    }
  }

  private func importing(_ file: URL) async throws -> Measurement {
    try await database.withPool { pool in
      let ledger = Ledger(database: pool)
      let taking = OwnerImport(
        ledger: ledger, terms: AccessTerms(catalogue: Catalogue([])), source: "owners.csv",
        asOf: .now, isDryRun: false, now: { .now })
      let start = ContinuousClock.now
      let rows = try RowFile(
        FileBytes(FileHandle(forReadingFrom: file)), columns: OwnerRow.columns)
      let summary = try await taking.run(rows, report: { _ in }, progress: { _ in })
      let elapsed = start.duration(to: .now)
      guard summary.recorded == lines else {
        throw BenchError.wrongAnswer("\(summary.recorded) of \(lines) rows were recorded")
      }
      return Measurement(rate: Double(lines) / (elapsed / .seconds(1)))
    }
  }

  /// The psql commands that copy all tables to or from files.
  private func script(_ direction: String, columns: Bool) -> [String] {
    Self.tables.map { table in
      let file = directory.appending(path: "\(table).copy").path(percentEncoded: false)
      let source = columns ? "(SELECT * FROM tenure.\(table))" : "tenure.\(table)"
      return "\\copy \(source) \(direction) '\(file)'"
    }
  }
}

extension BenchTool {
  fileprivate func run(
    _ commands: [String], on database: BenchDatabase, in directory: URL
  ) async throws {
    _ = try await run(
      ["--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1"]
        + commands.flatMap { ["--command", $0] } + [database.url], in: directory)
  }
}
