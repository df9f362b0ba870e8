import Foundation
import Logging
import Postgres
import PrivatePostgres
import Reports
import Testing

@testable import Bootstrap
@testable import Development
@testable import LedgerStorage
@testable import tenure

/// `tenure serve` with answers in memory, frozen while the database changes, forgets the changes,
/// or crashes.
@Suite("A server that is frozen or cut off")
struct FrozenServerTests {
  private static let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })

  @Test("never answers from before")
  func neverAnswersFromBefore() async throws {
    try await withTemporaryDirectory { directory in
      let postgres = try await PrivatePostgres.start(
        in: directory.appending(path: "postgres"), options: .temporary)
      do {
        let uri = await postgres.uri()
        try await ServerPair.withPool(uri) {
          _ = try await SchemaMigrator(
            database: $0, reports: ReportSQL(Report.sql), logger: Self.quiet
          ).migrate()
        }
        try await ServeProcess.run(
          try TenureProgram.executable, databaseURL: uri, in: directory
        ) { server in
          try await freeze(server, postgres, uri)
        }
        await postgres.stop()
      } catch {
        await postgres.stop()
        throw error
      }
    }
  }

  private func freeze(_ server: ServeProcess, _ postgres: PrivatePostgres, _ uri: String)
    async throws
  {
    try await write("first", uri)
    for change in ["changed", "trimmed", "crashed", "restarted"] {
      try await warmUp(server)
      kill(server.process.processID, SIGSTOP)
      do {
        try await write(change, uri)
        switch change {
        case "trimmed":
          _ = try await ServerPair.withPool(uri) { database in
            for _ in 0..<2 { try await database.batch(Maintenance.trimAccountChanges) }
          }
        case "crashed":
          try await postgres.kill()
          try await postgres.startAgain()
        case "restarted": try await postgres.restart()
        default: break
        }
      } catch {
        kill(server.process.processID, SIGCONT)
        throw error
      }
      kill(server.process.processID, SIGCONT)
      #expect(try await read(server).contains("\"\(change)\""), "\(change)")
    }
  }

  /// Reads until answers come from memory.
  private func warmUp(_ server: ServeProcess) async throws {
    func hits() async throws -> Substring? {
      try await server.get("/metrics").body.split(separator: "\n").first {
        $0.hasPrefix("tenure_read_cache_reads_total{outcome=\"hit\"}")
      }
    }
    for _ in 0..<100 {
      let before = try await hits()
      _ = try await read(server)
      if try await hits() != before { return }
    }
    Issue.record("No answer comes from memory.")
  }

  /// Reads, as soon as the server has found the database again.
  private func read(_ server: ServeProcess) async throws -> String {
    for _ in 0..<300 {
      let answer = try await server.get("/v1/accounts/anna/entitlements")
      if answer.status == 200 { return answer.body }
      try await Task.sleep(for: .milliseconds(100))
    }
    Issue.record("The server doesn't find the database again.")
    return ""
  }

  private func write(_ entitlement: String, _ uri: String) async throws {
    _ = try await ServerPair.withPool(uri) { database in
      // By default the private PostgreSQL loses commits made just before a crash.
      try await database.batch([
        "SET LOCAL synchronous_commit = on",
        """
        INSERT INTO tenure.account_grant (account_id, grant_id, entitlement, source, starts_at,
          reason)
        VALUES ('anna', 'a0000000-0000-4000-8000-000000000000', \(entitlement), 'grant', now(), 'r')
        ON CONFLICT (account_id, grant_id) DO UPDATE SET entitlement = excluded.entitlement
        """,
      ])
    }
  }
}
