import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Accounts' names and events")
struct AccountTests {
  @Test func `setting one name leaves the other as it is by then`() async throws {
    try await withLedger { ledger in
      let created = try await ledger.accounts.findOrCreateAccount("anna", at: start)
      let named = try await ledger.accounts.setNames(label: "Anna", email: "a@x", of: created)
      #expect(named.label == "Anna")
      _ = try await ledger.accounts.setNames(email: .some(nil), of: named)
      // Read before the email address was deleted.
      let renamed = try await ledger.accounts.setNames(label: "Anne", of: named)
      #expect(renamed.label == "Anne")
      #expect(renamed.email == nil)
      #expect(try await ledger.accounts.account("anna") == renamed)
    }
  }

  @Test func `the latest events of an account are read without sorting all of them`() async throws {
    try await withLedger { ledger in
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start)
      let plan = try await ledger.database.withTransaction { transaction in
        for method in ["sort", "seqscan", "bitmapscan"] {
          _ = try await transaction.execute("SET LOCAL enable_\(unescaped: method) = off")
        }
        return try await transaction.query(
          "EXPLAIN \(AccountStore.selectEvents(of: anna.key, before: (day(9), 9), limit: 20))"
        ).decode(String.self).map(\.self)
      }
      #expect(plan.contains { $0.contains("event_by_account") }, "\(plan)")
      #expect(!plan.contains { $0.contains("Sort") }, "\(plan)")
    }
  }
}
