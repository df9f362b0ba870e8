import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("The comparison with another policy")
struct WhatIfTests {
  /// Anna buys three subscriptions; the first lapses, and Ben buys it again.
  private func record(in ledger: Ledger) async throws {
    for product in AccessTerms.shop.catalogue.products {
      var product = product
      product.subscriptionGroup = product.id == "coins" ? nil : "plans"
      (product.priceMilliunits, product.currency) = (9_990, "EUR")
      _ = try await ledger.products.describe(product)
    }
    let lines = ["1000", "1001", "1002"].map {
      OriginalTransactionKey(.production, OriginalTransactionID($0))
    }
    let ids = lines.map { TransactionID($0.originalTransactionID.rawValue) }
    try await ledger.submit(
      zip(lines, ids).map { charge($1, on: 0, line: $0) },
      claiming: zip(lines, ids).map { key($1, line: $0) }, by: "anna", on: 0.1)
    try await ledger.submit(
      [charge("2", on: 40)], claiming: [key("2")], by: "ben", on: 40.1)
  }

  private func compare(
    _ policy: OwnershipPolicy, _ scope: WhatIfScope = .all, limit: Int? = nil, in ledger: Ledger
  ) async throws -> (comparison: OwnershipComparison, isComplete: Bool, rows: [[String?]]) {
    var rows: [[String?]] = []
    let (comparison, isComplete) = try await ledger.auditor.compare(
      with: policy, in: scope, limit: limit, at: day(100)
    ) {
      rows += $0.rows
    }
    return (comparison, isComplete, rows)
  }

  @Test("names who gains and who loses, with both reasons, and changes nothing")
  func differences() async throws {
    try await withLedger { ledger in
      try await record(in: ledger)
      let entries = try await ledger.entryCount()
      let same = try await compare(.presentRule(.standard), in: ledger)
      #expect(!same.comparison.hasDifferences && same.rows == [])
      #expect((same.comparison.originalTransactions, same.comparison.charges) == (3, 4))

      let (comparison, isComplete, rows) = try await compare(.firstOwnerKeeps, in: ledger)
      #expect(isComplete)
      #expect(comparison.months.map(\.month) == ["2026-02"])
      #expect(comparison.months.map(\.figures) == [comparison.total])
      #expect((comparison.total.charges, comparison.total.accounts) == (1, 2))
      #expect(comparison.total.days == 30)
      #expect(comparison.total.amounts.map(\.milliunits) == [9_990])
      let explanation =
        "“ben” submitted it first; the period of transaction 1000 had ended, and Apple had not "
        + "reported a billing retry."
      let reason = "“anna” was the first to submit this original transaction."
      #expect(
        rows
          == [("gains", "anna"), ("loses", "ben")].map { change, account in
            [
              change, account, "production", "1000", "2", "monthly", "\(day(40))", "\(day(70))",
              "30", "9990", "EUR", "ben", explanation, reason,
            ]
          })
      #expect(NamedDifference.columns.count == rows.first?.count)

      // Charges without a token would belong to no account.
      let token = try await compare(.tokenDecides, in: ledger)
      #expect(token.rows.map { $0[0] } == Array(repeating: "loses", count: 4))
      #expect(try await compare(.shared, in: ledger).rows.map { $0[1] } == ["ben", "anna"])
      #expect(try await ledger.entryCount() == entries)
    }
  }

  @Test("examines the original transactions in its scope")
  func scopes() async throws {
    try await withLedger { ledger in
      try await record(in: ledger)
      try await ledger.database.execute(
        """
        INSERT INTO tenure.poll_target (environment, original_transaction_id, bundle_id)
        SELECT 'production', '1001', 'com.example.a'
        ON CONFLICT (environment, original_transaction_id) DO UPDATE SET bundle_id = 'com.example.a'
        """)
      let ben = try #require(try await ledger.accounts.account("ben")).key
      let scopes: [(WhatIfScope, Int)] = [
        (.all, 3), (.app(bundleID: "com.example.a"), 1), (.app(bundleID: "com.example.b"), 0),
        (.subscriptionGroup("plans"), 3), (.subscriptionGroup("other"), 0), (.account(ben), 1),
        (.originalTransaction(originalKey), 1),
      ]
      for (scope, count) in scopes {
        let found = try await compare(.shared, scope, in: ledger)
        #expect(found.comparison.originalTransactions == count, "\(scope)")
        #expect(found.isComplete)
      }
      for (limit, isComplete) in [(2, false), (3, true), (4, true)] {
        let found = try await compare(.shared, limit: limit, in: ledger)
        #expect(found.comparison.originalTransactions == min(limit, 3))
        #expect(found.isComplete == isComplete, "\(limit)")
      }
      let anna = try #require(try await ledger.accounts.account("anna")).key
      #expect(try await !compare(.shared, .account(anna), limit: 1, in: ledger).isComplete)
    }
  }

  @Test("reads linked original transactions once, and many pages in order")
  func pages() async throws {
    try await withLedger { ledger in
      let lines = (1000..<1180).map {
        OriginalTransactionKey(.production, OriginalTransactionID("\($0)"))
      }
      let ids = lines.map { TransactionID($0.originalTransactionID.rawValue) }
      try await ledger.submit(
        zip(lines, ids).map { charge($1, on: 0, line: $0) }
          + [.link(line: lines[170], previous: lines[3])],
        claiming: zip(lines, ids).map { key($1, line: $0) }, by: "anna", on: 0.1)
      let found = try await compare(.tokenDecides, in: ledger)
      // Both charges of the linked ones begin and end together, so that they are one.
      #expect(
        (found.comparison.originalTransactions, found.comparison.charges) == (179, 179))
      #expect(found.rows.map { $0[3] } == found.rows.map { $0[3] ?? "" }.sorted())
    }
  }

  @Test("rows in a temporary table come back by original transaction, and are gone afterwards")
  func stagedRows() async throws {
    try await withLedger { ledger in
      let other = OriginalTransactionKey(.sandbox, "999")
      let read = try await ledger.imports.withStagedRows { rows in
        try await rows.add([(originalKey, "1"), (other, "2"), (originalKey, "3")])
        try await rows.add([])
        try await rows.add([(originalKey, "4")])
        var read: [String] = []
        try await rows.forEach { read.append("\($0): \($1.joined(separator: " "))") }
        return read
      }
      #expect(read == ["production/1000: 1 3 4", "sandbox/999: 2"])
      let empty = try await ledger.imports.withStagedRows { rows in
        var count = 0
        try await rows.forEach { _, _ in count += 1 }
        return count
      }
      #expect(empty == 0)
    }
  }
}
