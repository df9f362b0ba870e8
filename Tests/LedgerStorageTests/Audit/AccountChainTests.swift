import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

/// What stands in accounts' chains, and what the audit finds by it.
@Suite("The chains of accounts")
struct AccountChainTests {
  private func details(_ ledger: Ledger) async throws -> [String] {
    try await ledger.auditor.audit().differences.map(\.description)
  }

  private func entries(_ ledger: Ledger) async throws -> [String] {
    try await ledger.database.query(
      """
      SELECT kind FROM tenure.account_entry WHERE kind NOT IN ('product', 'account')
      ORDER BY stored_at, account_key, number
      """
    ).decode(String.self).map(\.self)
  }

  @Test func `an account that is renamed with the programs' role is found, also if vouched for`()
    async throws
  {
    for isSealed in [false, true] {
      try await withLedger { ledger in
        try await ledger.submit(
          [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
        let anna = try #require(try await ledger.accounts.account("anna"))
        #expect(try await details(ledger) == [])
        try await ledger.database.withTransaction { transaction in
          _ = try await transaction.execute(
            "SET LOCAL ROLE \(unescaped: ScratchPlace.environment.program)")
          let renaming: [SQL] = [
            """
            INSERT INTO tenure.account (account_id, account_key, app_account_token, created_at,
              published_at)
            SELECT 'thief', account_key, app_account_token, created_at, published_at
            FROM tenure.account WHERE account_id = 'anna'
            """,
            """
            INSERT INTO tenure.holding (account_id, environment, original_transaction_id,
              transaction_id, product_id, period_type, starts_at, ends_at, auto_renews, phase)
            SELECT 'thief', environment, original_transaction_id, transaction_id, product_id,
              period_type, starts_at, ends_at, auto_renews, phase
            FROM tenure.holding WHERE account_id = 'anna'
            """,
            """
            INSERT INTO tenure.published_entitlement
            SELECT 'thief', entitlement, access_ends_at FROM tenure.published_entitlement
            """,
            "DELETE FROM tenure.account WHERE account_id = 'anna'",
            "DELETE FROM tenure.holding WHERE account_id = 'anna'",
            "DELETE FROM tenure.published_entitlement WHERE account_id = 'anna'",
            "UPDATE tenure.account_by_key SET account_id = 'thief'",
          ]
          _ = try await transaction.batch(
            renaming + (isSealed ? ["SELECT tenure.seal(\(anna.key), 'account')"] : []))
        }
        #expect(try await ledger.owner(of: "1") == "thief")
        let key = anna.key.rawValue.uuidString.lowercased()
        #expect(
          try await details(ledger) == [
            "account \(key): "
              + (isSealed
                ? "entry 3 changes account_id of account "
                : "account_id of account is not as entry 1 has it")
          ])
      }
    }
  }

  @Test(
    "a refund that is cut off before there is a checkpoint is found",
    arguments: ["submission", "poll"])
  func cut(source: String) async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      let refund = charge("1", on: 0, asOf: 5, revokedOn: 4)
      if source == "poll" {
        _ = try await ledger.polls.record([refund], polledAs: "p", at: day(5), terms: .shop)
      } else {
        try await ledger.submit([refund], claiming: [], by: "anna", on: 5, terms: .shop)
      }
      try await ledger.database.runScript(
        """
        DELETE FROM tenure.ledger_entry WHERE recorded_at >= '2026-01-06';
        UPDATE tenure.original_transaction AS o SET head_number = e.number, head_hash = e.hash,
          head_recorded_at = e.recorded_at, head_stored_at = e.stored_at
        FROM (SELECT * FROM tenure.ledger_entry ORDER BY number DESC LIMIT 1) AS e;
        """)
      _ = try await ledger.auditor.rebuild()
      let found = try await ledger.auditor.audit().differences
      #expect(found.map(\.kind) == [.head], "\(found)")
      #expect(found.map(\.line) == [originalKey])
    }
  }

  @Test func `a delivery that is cleared and rebuilt is found, and named`() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      #expect(
        try await ledger.acknowledgeDelivery(of: key("1"), by: "anna", on: 1)?.isFirst == true)
      #expect(try await details(ledger) == [])
      try await ledger.database.runScript("UPDATE tenure.store_transaction SET delivered_at = NULL")
      _ = try await ledger.auditor.rebuild()
      let found = try await details(ledger)
      #expect(found.count == 1)
      #expect(
        found.first?.hasSuffix(
          "delivery production/1000/1/monthly is missing, which entry 3 vouches for") == true,
        "\(found)")

      try await ledger.database.runScript(
        "UPDATE tenure.store_transaction SET delivered_at = '2026-01-03'")
      let moved = try await details(ledger)
      #expect(
        moved.contains { $0.contains("delivered_at of delivery production/1000/1/monthly") },
        "\(moved)")
    }
  }

  @Test(
    "a rewritten submission and administrators' actions that are emptied are found",
    arguments: [
      (
        "UPDATE tenure.submission SET received_at = '2025-12-31'",
        "received_at of submission"
      ),
      ("UPDATE tenure.submission SET body_sha256 = sha256('x')", "body_sha256 of submission"),
      ("UPDATE tenure.submission SET outcome = '{}'", "outcome of submission"),
      ("DELETE FROM tenure.submission_exchange; DELETE FROM tenure.submission", "is missing"),
      (
        """
        INSERT INTO tenure.submission (submission_id, account_key, received_at, restore, status,
          environment, decided_at, outcome)
        SELECT gen_random_uuid(), account_key, received_at, restore, status, environment, decided_at,
          outcome FROM tenure.submission
        """, "no entry vouches for submission"
      ),
      ("TRUNCATE tenure.administrator_action", "administrator_action 1 is missing"),
      (
        "UPDATE tenure.administrator_action SET reason = 'Why not?'",
        "reason of administrator_action 1"
      ),
      (
        "UPDATE tenure.administrator_action SET administrator = 'nobody'",
        "administrator of administrator_action 1"
      ),
      ("UPDATE tenure.account_grant SET ends_at = '2099-01-01'", "ends_at of account_grant"),
      ("DELETE FROM tenure.product_entitlement", "entitlements of product monthly"),
    ])
  func rewritten(statement: String, name: String) async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      _ = try await ledger.grants.grant(
        "pro", to: "anna", until: day(9), by: support, terms: .shop, at: day(1))
      #expect(try await details(ledger) == [])
      try await ledger.database.runScript(statement)
      let found = try await details(ledger)
      #expect(found.contains { $0.contains(name) }, "\(found)")
    }
  }

  @Test func `one row for each submission, and none without news`() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1, terms: .shop)
      #expect(try await entries(ledger) == ["submission"])
      _ = try await ledger.polls.record(
        [charge("1", on: 0)], polledAs: "p", at: day(1), terms: .shop)
      #expect(try await entries(ledger) == ["submission"])
      _ = try await ledger.polls.record(
        [charge("2", on: 30)], polledAs: "q", at: day(30), terms: .shop)
      #expect(try await entries(ledger) == ["submission", "recording"])
    }
  }

  @Test(
    "several accounts' chains are locked in the order of their keys",
    arguments: ["merge", "submission"])
  func locks(change: String) async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      var accounts: [Account] = []
      for name in ["anna", "ben"] {
        accounts.append(try await ledger.accounts.findOrCreateAccount(name, at: start))
      }
      accounts.sort { $0.key < $1.key }
      let (first, second) = (accounts[0], accounts[1])
      _ = try await ledger.orders.openOrder(
        accountID: second.id, productID: "monthly", at: start)
      let submission = try await ledger.store(by: first.id, on: 1)
      let running = try await ledger.database.withTransaction { transaction in
        _ = try await transaction.query(Self.lock(first.key))
        let running = Task {
          if change == "merge" {
            _ = try await ledger.accounts.merge(
              first.id, into: second.id, by: support, terms: .shop, at: day(1))
          } else {
            // The second account's purchase, which fulfils its order.
            try await ledger.verify(
              submission, [charge("1", on: 0, token: second.appAccountToken)],
              claiming: [key("1")], on: 1, terms: .shop)
          }
        }
        try await ledger.waitForALock()
        _ = try await ledger.database.withTransaction {
          try await $0.query("\(Self.lock(second.key)) NOWAIT")
        }
        return running
      }
      try await running.value
      let sealed = try await ledger.database.query(
        """
        SELECT count(*) FROM tenure.account_chain
        WHERE account_key = ANY (\([first.key, second.key])) AND head_number > 1
        """
      ).decodeOnly(Int.self)
      #expect(sealed == 2)
      #expect(try await details(ledger) == [])
    }
  }

  private static func lock(_ account: AccountKey) -> SQL {
    "SELECT FROM tenure.account_chain WHERE account_key = \(account) FOR UPDATE"
  }

  @Test func `orders, a merge and an erasure leave entries that fit`() async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      let order = try await ledger.orders.openOrder(
        accountID: "guest", productID: "monthly", at: day(0))
      _ = try await ledger.orders.openOrder(accountID: "guest", productID: "monthly", at: day(0))
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "guest", on: 0.1, order: order.order.id,
        terms: .shop)
      _ = try await ledger.grants.grant(
        "pro", to: "guest", until: nil, by: support, terms: .shop, at: day(1))
      _ = try await ledger.accounts.findOrCreateAccount("member", at: day(1))
      _ = try await ledger.accounts.merge(
        "guest", into: "member", by: support, terms: .shop, at: day(2))
      #expect(try await details(ledger) == [])
      try await ledger.submit(
        [charge("1", on: 0, asOf: 3, revokedOn: 3)], claiming: [], by: "guest", on: 3, terms: .shop)
      #expect(try await details(ledger) == [])
      let before = try await ledger.database.query(
        "SELECT body FROM tenure.account_entry WHERE kind = 'account' ORDER BY account_key, number"
      ).decode(String.self)
      _ = try await ledger.accounts.erase("member", by: support, at: day(4))
      #expect(try await details(ledger) == [])
      // The entries from before are as they were, and nothing tells whose they are.
      let after = try await ledger.database.query(
        "SELECT body FROM tenure.account_entry WHERE kind = 'account' ORDER BY account_key, number"
      ).decode(String.self)
      #expect(Set(before.map(\.self)).isSubset(of: after.map(\.self)))
      let salts = try await ledger.database.query(
        "SELECT count(id_salt) FROM tenure.account_by_key"
      ).decodeOnly(Int.self)
      #expect(salts == 0)
    }
  }
}
