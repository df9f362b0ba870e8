import Foundation
import Postgres
import ScratchDatabases
import Secrets
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Recording")
struct RecordingTests {
  @Test("a first charge is the submitter's, and is held")
  func firstCharge() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let result = try await ledger.submit(
        [charge("1", on: 0), status(true, on: 0.1)], claiming: [key("1")], by: "anna", on: 0.1)
      #expect(result?.recording.originals[originalKey]?.changes.map(\.action) == [.claimed])
      #expect(try await ledger.owner(of: "1") == "anna")
      let held = try await ledger.holdings.holdings(of: "anna").holdings
      #expect(held.map(\.charge) == [key("1")])
      #expect(held.first?.endsAt == day(30))
      #expect(held.first?.renewal == Holding.Renewal(autoRenews: true, phase: .undisturbed))
    }
  }

  @Test("the renewal goes to the renewing account, whichever account submits it (scenario 1)")
  func renewal() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      try await ledger.submit(
        [charge("1", on: 0), status(true, on: 0.1)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit(
        [charge("1", on: 0, asOf: 32), charge("2", on: 30, asOf: 32), status(true, on: 32.1)],
        claiming: [key("2")], by: "ben", on: 32.1)
      #expect(try await ledger.owner(of: "2") == "anna")
      #expect(try await ledger.holdings.holdings(of: "ben").holdings.isEmpty)
      // The first month has ended and was pruned; the renewal is held now.
      #expect(try await ledger.holdings.holdings(of: "anna").holdings.map(\.charge) == [key("2")])
    }
  }

  @Test("recording the same again appends nothing")
  func repeats() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let evidence = [charge("1", on: 0), charge("2", on: 30, asOf: 31), status(true, on: 31)]
      try await ledger.submit(evidence, claiming: [key("2")], by: "anna", on: 31)
      let before = try await ledger.entryCount()
      for _ in 1...3 {
        try await ledger.submit(evidence, claiming: [key("2")], by: "anna", on: 32)
      }
      #expect(try await ledger.entryCount() == before)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a later answer that repeats what is known has no entry, and outdates older answers")
  func repetition() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      try await ledger.submit(
        [charge("1", on: 0), charge("2", on: 30, asOf: 30)], claiming: [key("2")], by: "anna",
        on: 31)
      let before = try await ledger.entryCount()
      try await ledger.submit(
        [charge("1", on: 0, asOf: 40), charge("2", on: 30, asOf: 40)], claiming: [key("2")],
        by: "anna", on: 40)
      #expect(try await ledger.entryCount() == before)
      let (asOf, source) = try await database.query(
        "SELECT repeated_as_of, repeated_by FROM tenure.original_transaction"
      ).decodeOnly(Timestamp.self, String.self)
      #expect(asOf == day(40))
      #expect(source == "receipt")
      // "Refunded" of day 35 arrives after "not refunded" of day 40.
      try await ledger.submit(
        [charge("2", on: 30, asOf: 35, revokedOn: 34)], claiming: [], by: "anna", on: 41)
      let held = try await ledger.holdings.holdings(of: "anna").holdings
      #expect(held.map(\.revokedAt) == [nil])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("fifty submissions of one receipt for two accounts at once give one owner")
  func concurrent() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let order = try await openOrder(ledger, "anna")
      let evidence = [charge("1", on: 0), status(true, on: 0.1)]
      let owners = try await withThrowingTaskGroup(of: Int.self) { group in
        for number in 0..<50 {
          group.addTask {
            let result = try await ledger.submit(
              evidence, claiming: [key("1")], by: number.isMultiple(of: 2) ? "anna" : "ben",
              on: 0.1, order: number.isMultiple(of: 2) ? order : nil)
            let changes = result?.recording.originals[originalKey]?.changes ?? []
            return changes.filter(\.changesOwner).count
          }
        }
        return try await group.reduce(0, +)
      }
      #expect(owners == 1)
      let owner = try await ledger.owner(of: "1")
      let stored = try await ledger.orders.order(order)
      #expect(stored?.order.status == (owner == "anna" ? .fulfilled : .open))
      let claims = try await database.query("SELECT count(*) FROM tenure.ownership_action")
        .decodeOnly(
          Int.self)
      #expect(claims == 2)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a transaction that is known under another original id links the lines")
  func linked() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let other = OriginalTransactionKey(.production, "2000")
      try await ledger.submit(
        [charge("1", on: 0, lineItem: "w1"), status(true, on: 0.1)], claiming: [key("1")],
        by: "anna", on: 0.1)
      try await ledger.submit(
        [charge("9", on: 0, line: other, lineItem: "w1")], claiming: [key("9", line: other)],
        by: "ben", on: 5)
      // The same charge, under another id and another line: an alias, owned once.
      #expect(try await ledger.owner(of: "9", line: other) == "anna")
      try await ledger.submit(
        [charge("10", on: 30, line: other, lineItem: "w2")], claiming: [key("10", line: other)],
        by: "ben", on: 30.1)
      #expect(try await ledger.owner(of: "10", line: other) == "anna")
      let audit = try await ledger.auditor.audit()
      #expect(audit.differences == [])
    }
  }

  @Test("claims on linked lines count in one order, live and read again")
  func claimsOnLinkedLines() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let other = OriginalTransactionKey(.production, "900")
      // Many entries on the one line, so that the numbers of the other are smaller.
      try await ledger.submit(
        (1...8).map { status(true, on: Double($0)) }, claiming: [], by: "anna", on: 8)
      try await ledger.submit(
        [
          .link(line: other, previous: originalKey), charge("1", on: 0, asOf: 31),
          charge("2", on: 30, line: other, asOf: 31), charge("3", on: 90, asOf: 91),
          charge("4", on: 120, line: other, asOf: 121),
        ], claiming: [], by: "anna", on: 31)
      // One submission: the first month is ben's, and so is its renewal on the other line.
      try await ledger.submit(
        [status(true, on: 31)], claiming: [key("1"), key("2", line: other)], by: "ben", on: 31)
      #expect(try await ledger.rule(of: "2", line: other) == .activelyAutoRenewing)
      // Two submissions of one moment: carl's was first, though the charge is the later one.
      try await ledger.submit(
        [status(true, on: 121)], claiming: [key("4", line: other)], by: "carl", on: 121)
      try await ledger.submit([status(true, on: 121.1)], claiming: [key("3")], by: "anna", on: 121)
      #expect(try await ledger.owner(of: "4", line: other) == "carl")
      // Late evidence causes a replay of the history, which is read again.
      let late = try await ledger.submit([status(true, on: 9.5)], claiming: [], by: "anna", on: 122)
      let changes = late?.recording.originals[originalKey]?.changes
      #expect(changes?.filter(\.changesOwner) == [])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a link that arrives late makes one entitlement of what two lines hold")
  func lateLink() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let other = OriginalTransactionKey(.production, "900")
      let catalogue = Catalogue([
        Product(
          id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"])
      ])
      func premium() async throws -> Entitlement? {
        Entitlement.entitlements(
          holdings: try await ledger.holdings.holdings(of: "anna").holdings, catalogue: catalogue,
          at: day(29.5)
        ).first
      }
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit(
        [charge("2", on: 30, line: other, asOf: 29.2), status(true, on: 29.2, line: other)],
        claiming: [key("2", line: other)], by: "anna", on: 29.2)
      #expect(try await premium()?.expiresAt == day(30))
      try await ledger.submit(
        [.link(line: originalKey, previous: other)], claiming: [], by: "anna", on: 29.3)
      let linked = try await premium()
      #expect(linked?.expiresAt == day(60))
      #expect(linked?.willRenew == true)
      #expect(
        Set(try await ledger.holdings.holdings(of: "anna").holdings.map(\.linkedTo)) == [
          nil, "900",
        ])
      let audit = try await ledger.auditor.audit()
      #expect(audit.differences == [], "\(audit.differences)")
      #expect(try await ledger.auditor.rebuild().rewritten == 0)
    }
  }

  @Test("a repetition outdates nothing that is learned after it")
  func factsAfterARepetition() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let ben = try await ledger.accounts.findOrCreateAccount("ben", at: start).appAccountToken
      let carl = try await ledger.accounts.findOrCreateAccount("carl", at: start).appAccountToken
      func receive(_ evidence: [Evidence], on date: Double) async throws {
        try await ledger.submit(evidence, claiming: [], by: "anna", on: date)
        let audit = try await ledger.auditor.audit()
        #expect(audit.differences == [], "\(audit.differences)")
      }
      try await receive([charge("1", on: 0), charge("2", on: 40)], on: 41)
      try await receive([charge("1", on: 0, asOf: 50), charge("2", on: 40, asOf: 50)], on: 50)
      try await receive([charge("2", on: 40, asOf: 45, token: ben)], on: 51)
      #expect(try await ledger.owner(of: "2") == "ben")
      try await receive([charge("2", on: 40, asOf: 48, token: carl)], on: 52)
      #expect(try await ledger.owner(of: "2") == "carl")
      // The other facts of the repetition still hold.
      try await receive([charge("1", on: 0, asOf: 49, revokedOn: 5)], on: 53)
      let original = try await ledger.ownership.original(of: originalKey)
      #expect(original?.charge(of: key("1"))?.charge.revocation == nil)
      #expect(try await ledger.auditor.rebuild().rewritten == 0)
    }
  }

  @Test("a preview knows the buyer's orders and who was erased")
  func previewContext() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let ben = try await ledger.accounts.findOrCreateAccount("ben", at: start).key
      func previewed() async throws -> Decision? {
        let original = try await ledger.ownership.original(of: originalKey, claimant: ben)
        return original.map {
          OwnershipPreview(of: $0.line, account: ben, id: originalKey, at: day(20)).purchase
        }
      }
      try await ledger.submit(
        [charge("1", on: 0), status(false, on: 10), status(true, on: 12)], claiming: [key("1")],
        by: "anna", on: 12)
      #expect(try await previewed()?.rule == .activelyAutoRenewing)
      _ = try await ledger.products.describe(
        Product(
          id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      _ = try await ledger.orders.openOrder(accountID: "ben", productID: "monthly", at: day(11))
      #expect(try await previewed()?.renewal.reason == .orderedByAnotherAccount)
      _ = try await database.execute(
        "UPDATE tenure.account_by_key SET erased_at = \(day(15)) WHERE account_id = 'anna'")
      #expect(try await previewed()?.renewal.reason == .accountErased)
    }
  }

  @Test("the same transaction in the other environment is another")
  func environments() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      let sandbox = OriginalTransactionKey(.sandbox, "1000")
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit(
        [charge("1", on: 0, line: sandbox)], claiming: [key("1", line: sandbox)], by: "ben",
        on: 0.2)
      #expect(try await ledger.owner(of: "1") == "anna")
      #expect(try await ledger.owner(of: "1", line: sandbox) == "ben")
    }
  }

  @Test(
    "concurrent submissions are all recorded, whatever the database's default isolation level",
    arguments: ["repeatable read", "serializable"])
  func defaultIsolation(level: String) async throws {
    let value = level.replacingOccurrences(of: " ", with: "%5C%20")
    try await withScratchDatabase {
      let uri = $0.uri.revealed
      $0.uri = Secret(
        uri + (uri.contains("?") ? "&" : "?")
          + "options=-c%20default_transaction_isolation%3D\(value)")
    } _: { database in
      let ledger = Ledger(database: database)
      try await withThrowingTaskGroup(of: Void.self) { group in
        for number in 0..<40 {
          group.addTask {
            try await ledger.submit(
              [charge("1", on: 0)], claiming: [key("1")], by: "account-\(number % 10)", on: 0.1)
          }
        }
        try await group.waitForAll()
      }
      #expect(try await ledger.owner(of: "1")?.hasPrefix("account-") == true)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  private func openOrder(_ ledger: Ledger, _ account: String) async throws -> UUID {
    _ = try await ledger.products.describe(
      Product(
        id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
    return try await ledger.orders.openOrder(accountID: account, productID: "monthly", at: start)
      .order.id
  }
}
