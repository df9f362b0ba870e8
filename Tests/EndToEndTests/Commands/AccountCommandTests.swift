import Foundation
import LedgerStorage
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

@Suite("tenure account and tenure charge")
struct AccountCommandTests {
  private static func run(
    _ arguments: [String], _ database: ConnectionPool, in directory: URL,
    settings: [String: String] = [:]
  ) async throws -> ChildProcess.Outcome {
    try await ChildProcess.run(
      try TenureProgram.executable, arguments,
      environment: ["DATABASE_URL": database.uri].merging(settings) { $1 },
      in: directory)
  }

  @Test("what is logged is objects, where the settings say so")
  func logs() async throws {
    try await withScratchDatabase { database in
      _ = try await Ledger(database: database).accounts.findOrCreateAccount("anna", at: .now)
      try await withTemporaryDirectory { directory in
        let settings = ["TENURE_LOG_FORMAT": "json", "TENURE_LOG_LEVEL": "debug"]
        for (arguments, status) in [
          (["account", "grant", "anna", "gold"], Int32(0)), (["charge", "release", "1"], 1),
        ] {
          let outcome = try await Self.run(
            arguments + ["--reason", "asked"], database, in: directory, settings: settings)
          #expect(outcome.status == status, "\(outcome.errors)")
          var lines = outcome.errors.split(separator: "\n")
          // The operator gets the reason in words.
          if status != 0 { lines.removeLast() }
          #expect(!lines.isEmpty)
          for line in lines {
            let object = try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            #expect(object?["message"] != nil, "\(line)")
          }
        }
      }
    }
  }

  @Test("merge says what goes over, and once more that nothing is left to")
  func merges() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      for account in ["guest", "anna"] {
        _ = try await ledger.accounts.findOrCreateAccount(account, at: .now)
      }
      try await withTemporaryDirectory { directory in
        let merge = ["account", "merge", "guest", "--into", "anna", "--reason", "It is she."]
        let outcome = try await Self.run(merge, database, in: directory)
        #expect(outcome.status == 0, "\(outcome.errors)")
        #expect(outcome.output.hasPrefix("merged   guest\ninto     anna\ncharges  0\n"))
        let again = try await Self.run(merge, database, in: directory)
        #expect(again.status == 0, "\(again.errors)")
        #expect(again.output.hasPrefix("merged   guest\ninto     anna\nAlready merged"))
        #expect(
          try await ledger.administration.administratorActions(limit: 10).map(\.action) == [
            "merge_account"
          ])
      }
    }
  }

  @Test("export writes all that is known of an account as JSON, and that is recorded")
  func exports() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      _ = try await ledger.accounts.findOrCreateAccount("..", at: .now)
      try await withTemporaryDirectory { directory in
        func run(_ account: String) async throws -> ChildProcess.Outcome {
          try await Self.run(
            ["account", "export", account, "--reason", "asked"], database, in: directory)
        }
        let outcome = try await run("..")
        #expect(outcome.status == 0, "\(outcome.errors)")
        let document =
          try JSONSerialization.jsonObject(with: Data(outcome.output.utf8)) as? [String: Any]
        #expect((document?["account"] as? [String: Any])?["account_id"] as? String == "..")
        #expect((document?["lines"] as? [Any])?.isEmpty == true)
        let actions = try await ledger.administration.administratorActions(limit: 10)
        #expect(actions.map(\.action) == ["export_account"])
        #expect(actions.map(\.reason) == ["asked"])

        let unknown = try await run("unknown")
        #expect(unknown.status != 0)
        #expect(unknown.output.isEmpty)
        #expect(unknown.errors.contains("Account unknown does not exist"), "\(unknown.errors)")
      }
    }
  }

  @Test("grant gives an entitlement, once, and revoke takes it back")
  func grants() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      _ = try await ledger.accounts.findOrCreateAccount("anna", at: .now)
      try await withTemporaryDirectory { directory in
        let id = UUID().uuidString.lowercased()
        let grant = ["account", "grant", "anna", "gold", "--id", id, "--reason", "She asked."]
        let given = try await Self.run(grant, database, in: directory)
        #expect(given.status == 0, "\(given.errors)")
        #expect(given.output == "grant  \(id)\n")
        let again = try await Self.run(grant, database, in: directory)
        #expect(again.output.contains("already granted"))
        #expect(
          try await ledger.holdings.holdings(of: "anna").grants.map { $0.revokedAt == nil } == [
            true
          ])
        let revoke = ["account", "revoke", id, "--reason", "By mistake."]
        let revoked = try await Self.run(revoke, database, in: directory)
        #expect(revoked.status == 0, "\(revoked.errors)")
        #expect(
          try await ledger.holdings.holdings(of: "anna").grants.map { $0.revokedAt == nil } == [
            false
          ])
        #expect(
          try await ledger.administration.administratorActions(limit: 10).map(\.reason)
            == ["By mistake.", "She asked."])
      }
    }
  }

  @Test("a charge is placed and released, and erase leaves a pseudonym")
  func chargesAndErasure() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let line = OriginalTransactionKey(.production, "1000")
      let now = Timestamp.now
      let record = TransactionRecord(
        key: TransactionKey(line: line, transactionID: "1", productID: "monthly"), asOf: now,
        purchaseDate: now - .days(1), expiresDate: now + .days(29), revocation: .notRevoked)
      let terms = AccessTerms(catalogue: Catalogue([]))
      _ = try await ledger.polls.record(
        [.transaction(record)], polledAs: "p", at: now, terms: terms)
      func owner() async throws -> AccountKey? {
        let columns = ExportTable.charges.columns
        guard let row = try await ledger.exports.page(of: .charges).rows.first,
          let name = columns.firstIndex(of: "account_id").flatMap({ row[$0] })
        else { return nil }
        return try await ledger.accounts.account(name)?.key
      }
      _ = try await ledger.accounts.findOrCreateAccount("anna", at: now)
      let anna = try await ledger.accounts.account("anna")?.key
      try await withTemporaryDirectory { directory in
        let place = ["charge", "place", "1", "--account", "anna", "--reason", "It is hers."]
        let placed = try await Self.run(place, database, in: directory)
        #expect(placed.status == 0, "\(placed.errors)")
        #expect(placed.output == "owner  anna\n")
        #expect(try await owner() == anna)
        let erased = try await Self.run(
          ["account", "erase", "anna", "--reason", "She wants to."], database, in: directory)
        #expect(erased.status == 0, "\(erased.errors)")
        #expect(erased.output.hasPrefix("pseudonym    "))
        #expect(try await ledger.accounts.account("anna") == nil)
        #expect(try await owner() == anna)
        let released = try await Self.run(
          ["charge", "release", "1", "--reason", "Unclaimed now."], database, in: directory)
        #expect(released.status == 0, "\(released.errors)")
        #expect(released.output == "owner  none until an account claims it\n")
        #expect(try await owner() == nil)
        #expect(try await ledger.auditor.audit().differences == [])
      }
    }
  }
}
