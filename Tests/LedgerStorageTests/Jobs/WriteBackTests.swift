import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Write-backs to Apple")
struct WriteBackTests {
  /// A ledger with all write-backs turned on.
  private func withWriteBackLedger(
    _ kinds: Set<WriteBack.Kind> = Set(WriteBack.Kind.allCases),
    _ body: @Sendable (Ledger) async throws -> Void
  ) async throws {
    try await withLedger { ledger in
      try await body(Ledger(database: ledger.database, writeBackKinds: kinds))
    }
  }

  /// The waiting jobs as kind, subject and queue.
  private func waiting(_ ledger: Ledger) async throws -> [String] {
    try await ledger.database.query(
      """
      SELECT kind || ' ' || subject || ' ' || queue FROM tenure.job
      WHERE kind IN ('set_app_account_token', 'send_consumption') ORDER BY kind, subject
      """
    ).decode(String.self)
  }

  private func claim(_ ledger: Ledger, on date: Double) async throws -> Job {
    let jobs = try await ledger.jobs.claimJobs(
      limits: [.writeBack: 1], worker: "w", at: day(date), lease: .seconds(60))
    return try #require(jobs.first)
  }

  private static let written = "set_app_account_token production/1000 write_back"

  @Test func `a binding that moves is written back to Apple, once for each original transaction`()
    async throws
  {
    try await withWriteBackLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0), status(false, on: 10)], claiming: [key("1")], by: "anna", on: 10)
      #expect(try await waiting(ledger) == [Self.written])
      try await ledger.submit([charge("2", on: 40)], claiming: [key("2")], by: "ben", on: 40.1)
      #expect(try await waiting(ledger) == [Self.written])
      let job = try await claim(ledger, on: 40.2)
      try await ledger.jobs.complete(job)

      // The binding does not move.
      try await ledger.receive([charge("3", on: 70)], on: 70.1)
      #expect(try await ledger.owner(of: "3") == "ben")
      #expect(try await waiting(ledger) == [])
      // The binding moves while the job runs, so it runs again.
      try await ledger.ownership.transfer(
        key("3"), to: "anna", by: support, terms: .shop, at: day(71))
      let running = try await claim(ledger, on: 71.1)
      try await ledger.ownership.transfer(
        key("3"), to: "ben", by: support, terms: .shop, at: day(71.2))
      try await ledger.writeBacks.record(
        WriteBack(.ownership, of: originalKey, at: day(71.3), outcome: .skipped(.unowned)),
        ending: running)
      #expect(try await waiting(ledger) == [Self.written])
      // Without an owner there is no token.
      try await ledger.jobs.complete(try await claim(ledger, on: 71.4))
      try await ledger.ownership.transfer(key("3"), to: nil, by: support, terms: .shop, at: day(72))
      #expect(try await waiting(ledger) == [])
    }
  }

  @Test func `nothing is queued where Apple reported the same token first`() async throws {
    try await withWriteBackLedger { ledger in
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start)
      try await ledger.submit(
        [charge("1", on: 0, token: anna.appAccountToken)], claiming: [key("1")], by: "anna",
        on: 0.1)
      #expect(try await waiting(ledger) == [])
      // For a known original transaction Apple's token may be another by now.
      try await ledger.ownership.transfer(key("1"), to: nil, by: support, terms: .shop, at: day(1))
      try await ledger.ownership.transfer(
        key("1"), to: "anna", by: support, terms: .shop, at: day(2))
      #expect(try await waiting(ledger) == [Self.written])
    }
  }

  @Test(arguments: [[], [.consumption]] as [Set<WriteBack.Kind>])
  func `nothing is queued where the setting is off`(kinds: Set<WriteBack.Kind>) async throws {
    try await withWriteBackLedger(kinds) { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      #expect(try await waiting(ledger) == [])
    }
  }

  @Test func `what is recorded is kept, read back, and ends the job`() async throws {
    try await withWriteBackLedger { ledger in
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start)
      let request = WriteBack.Request(transactionID: "7", notificationID: "n")
      let writeBacks =
        [
          WriteBack(
            .ownership, of: originalKey, at: day(1), bundleID: "com.a", account: anna.key,
            outcome: .accepted),
          WriteBack(
            .ownership, of: originalKey, at: day(2), account: anna.key,
            outcome: .refused(httpStatus: 400, code: 4_000_185)),
          WriteBack(
            .ownership, of: originalKey, at: day(3), account: anna.key,
            outcome: .refused(httpStatus: nil, code: nil)),
          WriteBack(
            .consumption, of: originalKey, at: day(4), request: request, account: anna.key,
            outcome: .accepted, deliveryStatus: "DELIVERED"),
        ]
        + WriteBack.Reason.allCases.map {
          WriteBack(
            .consumption, of: originalKey, at: day(5), request: request, account: anna.key,
            outcome: .skipped($0))
        }
      for writeBack in writeBacks {
        try await ledger.jobs.seed([.setAppAccountToken(originalKey)], at: start)
        try await ledger.writeBacks.record(writeBack, ending: try await claim(ledger, on: 1))
        #expect(try await waiting(ledger) == [])
      }
      #expect(
        try await ledger.writeBacks.writeBacks(of: [originalKey], limit: 100)
          == writeBacks.reversed())
      #expect(
        try await ledger.writeBacks.writeBacks(of: [originalKey], limit: 1)
          == Array(writeBacks.suffix(1)))
      let first = try await ledger.writeBacks.writeBacks(of: anna.key, after: nil, limit: 2)
      let rest = try await ledger.writeBacks.writeBacks(
        of: anna.key, after: first.last?.id, limit: 100)
      #expect((first + rest).map(\.writeBack) == writeBacks)
      let published = try await ledger.writeBacks.pendingOwnership(of: originalKey, to: anna.key)
      #expect(published?.lastSent?.at == day(1))
      #expect(published?.lastSent?.account == anna.key)
      #expect(published?.token == anna.appAccountToken)
    }
  }

  @Test func `the programs only append write-backs`() async throws {
    try await withWriteBackLedger { ledger in
      let (inserts, changes) = try await ledger.database.query(
        """
        SELECT has_table_privilege('tenure_program', 'tenure.app_store_write_back', 'INSERT'),
          has_table_privilege('tenure_program', 'tenure.app_store_write_back', 'UPDATE, DELETE')
        """
      ).decodeOnly(Bool.self, Bool.self)
      #expect(inserts)
      #expect(!changes)
    }
  }

  @Test func `a notification that asks is answered once`() async throws {
    try await withWriteBackLedger { ledger in
      let new = NewNotification(
        id: "n", version: .two, receivedAt: day(1), body: "b",
        notificationType: "CONSUMPTION_REQUEST", environment: .production, bundleID: "com.a",
        originalTransactionID: "1000", transactionID: "1", signedAt: day(0.9))
      _ = try await ledger.notifications.store(new, processAt: day(1))
      let verified = NotificationStore.VerifiedNotification(
        id: "n", evidence: [charge("1", on: 0)], asksAbout: originalKey)
      for _ in 1...2 {
        _ = try await ledger.notifications.process(verified, at: day(1), terms: .shop)
      }
      #expect(
        try await waiting(ledger) == ["send_consumption production/n write_back"])
      let question = try #require(try await ledger.writeBacks.consumptionQuestion("n"))
      #expect(question.line == originalKey)
      #expect(question.request.transactionID == "1")
      #expect(question.askedAt == day(0.9))
      #expect(try await ledger.writeBacks.consumptionQuestion("m") == nil)
    }
  }
}
