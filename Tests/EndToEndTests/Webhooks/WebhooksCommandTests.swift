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

@Suite("tenure webhooks")
struct WebhooksCommandTests {
  private func run(_ arguments: [String], _ database: ConnectionPool) async throws
    -> ChildProcess.Outcome
  {
    try await withTemporaryDirectory { directory in
      try await ChildProcess.run(
        try TenureProgram.executable, ["webhooks"] + arguments,
        environment: ["DATABASE_URL": database.uri, "TENURE_LOG_LEVEL": "error"],
        in: directory)
    }
  }

  @Test("shows what was given up and why, and pushes it again")
  func parked() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let off = try await run([], database)
      #expect(off.status == 0)
      #expect(off.output.contains("set TENURE_WEBHOOK_URL"))
      _ = try await ledger.webhooks.pushEvents(at: .now)
      let key = try await ledger.accounts.findOrCreateAccount("anna", at: .now).key
      var ids: [Int64] = []
      for _ in 0..<2 {
        ids.append(
          try await database.query(
            """
            INSERT INTO tenure.event (type, occurred_at, account_key, data)
            VALUES ('order.expired', now(), \(key), '{}') RETURNING event_id
            """
          ).decodeOnly(Int64.self))
      }
      _ = try await ledger.webhooks.pushEvents(at: .now)
      try await database.execute(
        """
        UPDATE tenure.webhook_delivery
        SET parked_at = now(), attempts = 90, last_error = 'HTTP 500.'
        """
      )

      let list = try await run([], database)
      #expect(list.status == 0)
      #expect(list.output.contains("parked    2\n"))
      for id in ids { #expect(list.output.contains("  \(id) order.expired of anna, parked at ")) }
      #expect(list.output.contains(" after 90 attempts: HTTP 500.\n"))

      let one = try await run(
        ["redeliver", "\(ids[0])", "--reason", "anna's app lost it.", "--by", "ops"], database)
      #expect(one.status == 0)
      #expect(one.output == "\(ids[0]) will be redelivered.\n")
      #expect(try await ledger.webhooks.webhookStatus().parked == 1)
      let unknown = try await run(["redeliver", "\(ids[1] + 1)"], database)
      #expect(unknown.status == 1)
      let rest = try await run(["redeliver", "--parked"], database)
      #expect(rest.output == "Parked events to be redelivered: 1\n")
      #expect(try await ledger.webhooks.webhookStatus().parked == 0)
      let actions = try await ledger.administration.administratorActions(limit: 10)
      #expect(actions.map(\.action) == ["redeliver_parked_events", "redeliver_event"])
      #expect(actions.first?.administrator.hasPrefix("cli") == true)
      #expect(actions.last?.administrator == "cli:ops")
      #expect(actions.map(\.reason) == [nil, "anna's app lost it."])
      #expect(actions.last?.accountID == "anna")
      // Stored by key, so that erasing her erases the name here, too.
      let kept = try await database.query(
        "SELECT reason FROM tenure.administrator_action WHERE reason IS NOT NULL"
      ).decodeOnly(String.self)
      #expect(kept == "{account:\(key.rawValue.uuidString.lowercased())}'s app lost it.")
      for arguments in [["redeliver"], ["redeliver", "--parked", "1"], ["redeliver", "x"]] {
        #expect(try await run(arguments, database).status != 0, "\(arguments)")
      }
    }
  }
}
