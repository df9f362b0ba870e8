import Foundation
import LedgerStorage
import Postgres
import ScratchDatabases
import Testing

@testable import tenure

@Suite("tenure account")
struct AccountCommandTests {
  @Test("export writes all that is known of an account as JSON, and that is recorded")
  func exports() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      _ = try await ledger.findOrCreateAccount("..", at: .now)
      try await withTemporaryDirectory { directory in
        func run(_ account: String) async throws -> ChildProcess.Outcome {
          try await ChildProcess.run(
            try TenureProgram.executable, ["account", "export", account, "--reason", "asked"],
            environment: ["DATABASE_URL": database.configuration.uri], in: directory)
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
