import Foundation
import LedgerStorage
import Postgres
import ScratchDatabases
import Testing

@testable import tenure

@Suite("tenure account")
struct AccountCommandTests {
  private static func run(
    _ arguments: [String], _ database: ConnectionPool, in directory: URL
  ) async throws -> ChildProcess.Outcome {
    try await ChildProcess.run(
      try TenureProgram.executable, ["account"] + arguments,
      environment: ["DATABASE_URL": database.configuration.uri], in: directory)
  }

  @Test("merge says what goes over, and once more that nothing is left to")
  func merges() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      for account in ["guest", "anna"] {
        _ = try await ledger.findOrCreateAccount(account, at: .now)
      }
      try await withTemporaryDirectory { directory in
        let merge = ["merge", "guest", "--into", "anna", "--reason", "It is she."]
        let outcome = try await Self.run(merge, database, in: directory)
        #expect(outcome.status == 0, "\(outcome.errors)")
        #expect(outcome.output.hasPrefix("merged   guest\ninto     anna\ncharges  0\n"))
        let again = try await Self.run(merge, database, in: directory)
        #expect(again.status == 0, "\(again.errors)")
        #expect(again.output.hasPrefix("merged   guest\ninto     anna\nIt was merged before"))
        #expect(try await ledger.administratorActs(limit: 10).map(\.action) == ["merge_account"])
      }
    }
  }

  @Test("export writes all that is known of an account as JSON, and that is recorded")
  func exports() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      _ = try await ledger.findOrCreateAccount("..", at: .now)
      try await withTemporaryDirectory { directory in
        func run(_ account: String) async throws -> ChildProcess.Outcome {
          try await Self.run(["export", account, "--reason", "asked"], database, in: directory)
        }
        let outcome = try await run("..")
        #expect(outcome.status == 0, "\(outcome.errors)")
        let document =
          try JSONSerialization.jsonObject(with: Data(outcome.output.utf8)) as? [String: Any]
        #expect((document?["account"] as? [String: Any])?["account_id"] as? String == "..")
        #expect((document?["lines"] as? [Any])?.isEmpty == true)
        let acts = try await ledger.administratorActs(limit: 10)
        #expect(acts.map(\.action) == ["export_account"])
        #expect(acts.map(\.reason) == ["asked"])

        let unknown = try await run("nobody")
        #expect(unknown.status != 0)
        #expect(unknown.output.isEmpty)
        #expect(unknown.errors.contains("nobody was never seen"), "\(unknown.errors)")
      }
    }
  }
}
