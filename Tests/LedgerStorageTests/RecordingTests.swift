import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Recording")
struct RecordingTests {
  @Test("a first charge is the submitter's, and is held")
  func firstCharge() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database, logger: quietLogger)
      let result = try await ledger.submit(
        [charge("1", on: 0), status(true, on: 0.1)], claiming: [key("1")], by: "anna", on: 0.1)
      #expect(result?.recording.families[lineID]?.changes.map(\.action) == [.claimed])
      #expect(try await ledger.owner(of: "1") == "anna")
      let held = try await ledger.holdings(of: "anna").holdings
      #expect(held.map(\.charge) == [key("1")])
      #expect(held.first?.endsAt == day(30))
      #expect(held.first?.renewal == Holding.Renewal(autoRenews: true, phase: .undisturbed))
    }
  }

  @Test("the renewal goes to who is renewing, whoever submits it (scenario 1)")
  func renewal() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database, logger: quietLogger)
      try await ledger.submit(
        [charge("1", on: 0), status(true, on: 0.1)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit(
        [charge("1", on: 0, asOf: 30), charge("2", on: 30, asOf: 30), status(true, on: 30.1)],
        claiming: [key("2")], by: "ben", on: 30.1)
      #expect(try await ledger.owner(of: "2") == "anna")
      #expect(try await ledger.holdings(of: "ben").holdings.isEmpty)
      // The first month is over and pruned; what is held now is the renewal.
      #expect(try await ledger.holdings(of: "anna").holdings.map(\.charge) == [key("2")])
    }
  }

  @Test("recording the same again appends nothing")
  func repeats() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database, logger: quietLogger)
      let evidence = [charge("1", on: 0), charge("2", on: 30, asOf: 31), status(true, on: 31)]
      try await ledger.submit(evidence, claiming: [key("2")], by: "anna", on: 31)
      let before = try await ledger.entryCount()
      for _ in 1...3 {
        try await ledger.submit(evidence, claiming: [key("2")], by: "anna", on: 32)
      }
      #expect(try await ledger.entryCount() == before)
      #expect(try await ledger.audit().differences == [])
    }
  }

  @Test("a later answer that repeats what is known is one entry, and outdates older answers")
  func confirmation() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database, logger: quietLogger)
      try await ledger.submit(
        [charge("1", on: 0), charge("2", on: 30, asOf: 30)], claiming: [key("2")], by: "anna",
        on: 31)
      let before = try await ledger.entryCount()
      try await ledger.submit(
        [charge("1", on: 0, asOf: 40), charge("2", on: 30, asOf: 40)], claiming: [key("2")],
        by: "anna", on: 40)
      #expect(try await ledger.entryCount() == before + 1)
      // "Refunded" of day 35 arrives after "not refunded" of day 40.
      try await ledger.submit(
        [charge("2", on: 30, asOf: 35, revokedOn: 34)], claiming: [], by: "anna", on: 41)
      let held = try await ledger.holdings(of: "anna").holdings
      #expect(held.map(\.revokedAt) == [nil])
      #expect(try await ledger.audit().differences == [])
    }
  }

  @Test("fifty submissions of one receipt for two accounts at once give one owner")
  func concurrent() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database, logger: quietLogger)
      let order = try await openOrder(ledger, "anna")
      let evidence = [charge("1", on: 0), status(true, on: 0.1)]
      let owners = try await withThrowingTaskGroup(of: Int.self) { group in
        for number in 0..<50 {
          group.addTask {
            let result = try await ledger.submit(
              evidence, claiming: [key("1")], by: number.isMultiple(of: 2) ? "anna" : "ben",
              on: 0.1, order: number.isMultiple(of: 2) ? order : nil)
            let changes = result?.recording.families[lineID]?.changes ?? []
            return changes.filter(\.changesOwner).count
          }
        }
        return try await group.reduce(0, +)
      }
      #expect(owners == 1)
      let owner = try await ledger.owner(of: "1")
      let stored = try await ledger.order(order)
      #expect(stored?.order.status == (owner == "anna" ? .fulfilled : .open))
      let claims = try await database.query("SELECT count(*) FROM tenure.claim").decodeOnly(
        Int.self)
      #expect(claims == 2)
      #expect(try await ledger.audit().differences == [])
    }
  }

  @Test("a transaction that is known under another original id links the lines")
  func linked() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database, logger: quietLogger)
      let other = LineID(.production, "2000")
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
      let audit = try await ledger.audit()
      #expect(audit.differences == [])
    }
  }

  @Test("the same transaction in the other environment is another")
  func environments() async throws {
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database, logger: quietLogger)
      let sandbox = LineID(.sandbox, "1000")
      try await ledger.submit(
        [charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit(
        [charge("1", on: 0, line: sandbox)], claiming: [key("1", line: sandbox)], by: "ben",
        on: 0.2)
      #expect(try await ledger.owner(of: "1") == "anna")
      #expect(try await ledger.owner(of: "1", line: sandbox) == "ben")
    }
  }

  private func openOrder(_ ledger: Ledger, _ account: String) async throws -> UUID {
    _ = try await ledger.describe(
      Product(
        id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
    return try await ledger.openOrder(accountID: account, productID: "monthly", at: start).order.id
  }
}
