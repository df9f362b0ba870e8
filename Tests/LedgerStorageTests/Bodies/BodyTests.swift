import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

/// Bodies that are stored once, and stay as long as something refers to them.
struct BodyTests {
  private static let body = NewBody(Array("receipt".utf8), at: start)

  private static func bodies(_ ledger: Ledger) async throws -> Int {
    try await ledger.database.query("SELECT count(*) FROM tenure.body").decodeOnly(Int.self)
  }

  @Test func `the same receipt and the same answer are stored once`() async throws {
    try await withLedger { ledger in
      for date in 0..<5 {
        let submission = try await ledger.store(by: "anna", on: Double(date))
        let asked = day(Double(date))
        let text = asked.description.prefix(19).replacing("T", with: " ")
        let pacific = (asked - .hours(8)).description.prefix(19).replacing("T", with: " ")
        let answer = """
          {"request_date":"\(text) Etc/GMT","request_date_ms":"\(asked.milliseconds)",\
          "request_date_pst":"\(pacific) America/Los_Angeles","status":0}
          """
        try await ledger.verify(
          submission, [charge("1", on: 0)], claiming: [key("1")], on: Double(date),
          exchanges: [exchange(answer), exchange(#"{"status":21007}"#)])
        let answers = try await ledger.submissions.exchanges(of: submission.id).map(\.answer)
        #expect(answers == [Array(answer.utf8), Array(#"{"status":21007}"#.utf8)])
        #expect(
          try await ledger.submissions.shortAnswers(to: submission.id).map(\.answer) == answers)
        #expect(try await Self.bodies(ledger) == 3)
      }
    }
  }

  @Test func `a duplicate that was signed anew leaves no body`() async throws {
    try await withLedger { ledger in
      func deliver(_ body: String) async throws -> Bool {
        try await ledger.notifications.store(
          NewNotification(id: "n1", version: .two, receivedAt: day(1), body: body), processAt: nil)
      }
      let areNew = [
        try await deliver("a.b.c"), try await deliver("a.b.d"), try await deliver("a.b.c"),
      ]
      #expect(areNew == [true, false, false])
      #expect(try await Self.bodies(ledger) == 1)
      #expect(try await ledger.notifications.notification("n1")?.body == "a.b.c")
    }
  }

  @Test func `signed data lacks the headers that are known, and each of them stands once`()
    async throws
  {
    try await withLedger { ledger in
      let header = Data(String(repeating: "x5c", count: 1000).utf8).base64EncodedString()
      let signed = (0..<20).map { "e" + header + ".e30." + String(repeating: "A", count: $0 * 4) }
      let id = UUID()
      let payload = SubmissionPayload.signedData(
        transactions: Array(signed[..<15]), renewalInfo: Array(signed[15...]))
      _ = try await ledger.submissions.store(
        ledger.submissions.new(
          id: id, accountID: "anna", receivedAt: start, payload: payload, chains: ["e" + header],
          transactionID: nil, orderID: nil, isRestore: false, bundleID: nil, retryAt: start))
      #expect(try await ledger.submissions.payload(of: id) == payload)
      let (sent, stored, chains) = try await ledger.database.query(
        """
        SELECT bytes, length(content), (SELECT count(*) FROM tenure.certificate_chain)
        FROM tenure.body
        """
      ).decodeOnly(Int.self, Int.self, Int.self)
      #expect(sent > 80_000)
      #expect(stored < 1000)
      #expect(chains == 1)
      // A damaged body is reported, not returned.
      _ = try await ledger.database.execute(
        "UPDATE tenure.certificate_chain SET header = header || 'x'")
      await #expect(throws: LedgerError.self) {
        _ = try await ledger.submissions.payload(of: id)
      }
    }
  }

  // MARK: At the same time

  private static func reference(of id: UUID) -> [SQL] {
    [
      body.store,
      """
      INSERT INTO tenure.submission (submission_id, account_key, received_at, restore, status,
        body_sha256)
      VALUES (\(id), \(id), \(start), false, 'pending', \(body.digest))
      """,
    ]
  }

  private func refer(as id: UUID, in ledger: Ledger) async throws {
    // On a separate connection: it may wait for a lock.
    try await ledger.database.withTransaction { transaction in
      _ = try await transaction.batch(Self.reference(of: id))
      try await transaction.commit()
    }
  }

  private func delete(_ id: UUID, in transaction: Transaction) async throws {
    _ = try await transaction.batch([
      "DELETE FROM tenure.submission WHERE submission_id = \(id)",
      "SELECT tenure.delete_bodies(\([Self.body.digest]))",
    ])
  }

  @Test func `who refers while another deletes waits, and stores it again`() async throws {
    try await withLedger { ledger in
      let (old, new) = (UUID(), UUID())
      try await refer(as: old, in: ledger)
      try await ledger.database.withTransaction { transaction in
        try await delete(old, in: transaction)
        async let reference: Void = refer(as: new, in: ledger)
        try await ledger.waitForALock()
        try await transaction.commit()
        try await reference
      }
      #expect(try await ledger.submissions.payload(of: new) == .receipt("receipt"))
    }
  }

  @Test func `who deletes waits for two who refer, and deletes nothing`() async throws {
    try await withLedger { ledger in
      let (old, new, third) = (UUID(), UUID(), UUID())
      try await refer(as: old, in: ledger)
      func deleteOldAndThird() async throws {
        try await ledger.database.withTransaction { transaction in
          _ = try await transaction.execute(
            "DELETE FROM tenure.submission WHERE submission_id = \(third)")
          try await delete(old, in: transaction)
          try await transaction.commit()
        }
      }
      try await ledger.database.withTransaction { transaction in
        _ = try await transaction.batch(Self.reference(of: new))
        // Two who refer don't wait for each other.
        try await refer(as: third, in: ledger)
        async let deletion: Void = deleteOldAndThird()
        try await ledger.waitForALock()
        try await transaction.commit()
        try await deletion
      }
      #expect(try await ledger.submissions.payload(of: new) == .receipt("receipt"))
      try await ledger.database.withTransaction { transaction in
        try await delete(new, in: transaction)
        try await transaction.commit()
      }
      #expect(try await Self.bodies(ledger) == 0)
    }
  }

  @Test func `many who store, erase and prune two bodies lose none that is referred to`()
    async throws
  {
    try await withLedger { ledger in
      try await withThrowingTaskGroup { group in
        for worker in 0..<6 {
          group.addTask {
            for round in 0..<12 {
              let account = "account \(worker) \(round)"
              let submission = try await ledger.store(
                round.isMultiple(of: 2) ? "receipt" : "other", by: account, on: Double(round))
              try await ledger.submissions.postpone(
                submission, until: day(90), because: SubmissionProblem(code: "x", detail: "x"),
                exchanges: [exchange("other"), exchange("receipt"), exchange(account)],
                worker: nil, terms: .everything, at: day(Double(round)))
              #expect(try await ledger.submissions.payload(of: submission.id) != nil)
              if worker > 0 || round < 10 {
                _ = try await ledger.accounts.erase(account, by: support, at: day(50))
              }
              if worker == 1 {
                _ = try await ledger.database.query(
                  """
                  SELECT tenure.prune_bodies(\([Self.body.digest]), '{}', '{}', \(day(80)),
                    \(day(80)), \(day(90)))
                  """)
              }
            }
          }
        }
        try await group.waitForAll()
      }
      #expect(try await Self.bodies(ledger) == 4)
      let kept = try await ledger.database.query(
        "SELECT submission_id FROM tenure.submission WHERE erased_at IS NULL"
      ).decode(UUID.self)
      #expect(kept.count == 2)
      for submission in kept {
        #expect(try await ledger.submissions.payload(of: submission) != nil)
        let answers = try await ledger.submissions.exchanges(of: submission).map(\.answer)
        #expect(answers.count == 3 && !answers.contains(nil))
      }
    }
  }
}
