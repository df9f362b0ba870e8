import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Provisional grants")
struct ProvisionalGrantTests {
  private let waiting = SubmissionProblem(code: "apple_unavailable", detail: "No answer came.")

  private func grant(
    _ entitlement: String, until end: Double, line: OriginalTransactionKey = originalKey
  ) -> ProvisionalGrant {
    ProvisionalGrant(entitlement: entitlement, endsAt: day(end), line: line)
  }

  private func postpone(
    _ submission: Submission, _ grants: [ProvisionalGrant], on date: Double, in ledger: Ledger
  ) async throws {
    try await ledger.submissions.postpone(
      submission, until: day(date + 0.1), because: waiting, exchanges: [], provisional: grants,
      worker: nil, terms: .everything, at: day(date))
  }

  /// The entitlements that are granted to an account, with their ends.
  private func granted(_ account: String, in ledger: Ledger) async throws -> [String: Timestamp] {
    let grants = try await ledger.holdings.holdings(of: account).grants
    #expect(grants.allSatisfy { $0.source == .provisional && $0.startsAt == day(1) })
    return Dictionary(uniqueKeysWithValues: grants.map { ($0.entitlement, $0.endsAt ?? start) })
  }

  @Test("are replaced at each attempt, and gone with the decision")
  func lifetime() async throws {
    try await withLedger { ledger in
      let submission = try await ledger.store(by: "anna", on: 1)
      try await postpone(
        submission, [grant("pro", until: 2), grant("news", until: 2)], on: 1, in: ledger)
      #expect(try await granted("anna", in: ledger) == ["pro": day(2), "news": day(2)])
      let line = try await ledger.holdings.holdings(of: "anna").grants.map(\.line)
      #expect(line == [originalKey, originalKey])
      try await postpone(submission, [grant("pro", until: 1.5)], on: 1.2, in: ledger)
      #expect(try await granted("anna", in: ledger) == ["pro": day(1.5)])
      try await ledger.verify(submission, [charge("1", on: 0)], claiming: [key("1")], on: 1.3)
      #expect(try await granted("anna", in: ledger) == [:])
      // An attempt that comes late finds the decision, and grants nothing.
      try await postpone(submission, [grant("pro", until: 2)], on: 1.4, in: ledger)
      #expect(try await granted("anna", in: ledger) == [:])
      #expect(try await ledger.auditor.audit().isClean)
    }
  }

  @Test("are gone with a rejection")
  func rejection() async throws {
    try await withLedger { ledger in
      let submission = try await ledger.store(by: "anna", on: 1)
      try await postpone(submission, [grant("pro", until: 2)], on: 1, in: ledger)
      try await ledger.submissions.reject(
        submission, because: SubmissionProblem(code: "receipt_rejected", detail: "21003"),
        exchanges: [], terms: .everything, at: day(1.1))
      #expect(try await granted("anna", in: ledger) == [:])
    }
  }

  @Test("of one line are one account's, until they end")
  func rivals() async throws {
    try await withLedger { ledger in
      let other = OriginalTransactionKey(.sandbox, originalKey.originalTransactionID)
      let (anna, ben) = (
        try await ledger.store(by: "anna", on: 1), try await ledger.store(by: "ben", on: 1)
      )
      try await postpone(anna, [grant("pro", until: 2)], on: 1, in: ledger)
      // The same number in the sandbox is another line.
      try await postpone(
        ben, [grant("pro", until: 2), grant("news", until: 2, line: other)], on: 1.1, in: ledger)
      #expect(try await granted("ben", in: ledger) == ["news": day(2)])
      try await postpone(ben, [grant("pro", until: 3)], on: 2.1, in: ledger)
      #expect(try await granted("ben", in: ledger) == ["pro": day(3)])
    }
  }

  @Test("that two ask for at once are one account's")
  func race() async throws {
    try await withLedger { ledger in
      var submissions: [Submission] = []
      for number in 0..<8 {
        submissions.append(try await ledger.store(by: "account \(number)", on: 1))
      }
      try await withThrowingTaskGroup(of: Void.self) { group in
        for submission in submissions {
          group.addTask { [self] in
            try await postpone(submission, [grant("pro", until: 2)], on: 1, in: ledger)
          }
        }
        try await group.waitForAll()
      }
      let grants = try await ledger.database.query("SELECT count(*) FROM tenure.account_grant")
      #expect(try grants.decodeOnly(Int.self) == 1)
    }
  }

  @Test("are what an audit looks at")
  func audit() async throws {
    try await withLedger { ledger in
      let submission = try await ledger.store(by: "anna", on: 1)
      try await postpone(submission, [grant("pro", until: 2)], on: 1, in: ledger)
      #expect(try await ledger.auditor.audit().isClean)
      _ = try await ledger.database.execute(
        "UPDATE tenure.submission SET status = 'rejected', decided_at = now(), problem = 'x'")
      // Nor does an entry vouch for the decision.
      #expect(try await ledger.auditor.audit().differences.map(\.kind) == [.grant, .account])
    }
  }

  // MARK: Rehearsals

  private func arrival(
    _ evidence: [Evidence], claiming keys: [TransactionKey], by account: String, in ledger: Ledger
  ) async throws -> EvidenceBatch {
    let account = try await ledger.accounts.findOrCreateAccount(account, at: start)
    return EvidenceBatch(
      evidence: evidence,
      claim: (account: account.key, transactions: keys, receivedAt: day(40)),
      source: EntrySource(.receipt, id: "rehearsal"))
  }

  @Test("a rehearsal says what recording would, and leaves no trace")
  func rehearsal() async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 1)
      let evidence = [
        charge("1", on: 0), charge("2", on: 30),
        charge("9", on: 0, line: OriginalTransactionKey(.production, "2000"), lineItem: "77"),
      ]
      let before = try await traces(ledger)
      let renewed = try await ledger.submissions.rehearse(
        arrival(evidence, claiming: [key("2")], by: "ben", in: ledger), at: day(31))
      #expect(try await traces(ledger) == before)
      let decision = renewed.original(of: key("2"))?.charge(of: key("2"))?.recorded.decision
      #expect(decision?.rule == .activelyAutoRenewing)
      let recorded = try await ledger.submit(
        evidence, claiming: [key("2")], by: "ben", on: 31)
      #expect(
        recorded?.recording.original(of: key("2"))?.charge(of: key("2"))?.recorded.decision
          == decision)
      #expect(try await ledger.auditor.audit().isClean)
    }
  }

  @Test("a rehearsal finds the charge that is known under another original id")
  func rehearsedLink() async throws {
    try await withLedger { ledger in
      try await ledger.submit(
        [charge("1", on: 0, lineItem: "77")], claiming: [key("1")], by: "anna", on: 1)
      let line = OriginalTransactionKey(.production, "2000")
      let rehearsed = try await ledger.submissions.rehearse(
        arrival(
          [charge("8", on: 0, line: line, lineItem: "77")], claiming: [key("8", line: line)],
          by: "ben", in: ledger), at: day(2))
      let original = try #require(rehearsed.original(of: key("8", line: line)))
      let owner = original.charge(of: key("8", line: line))?.recorded.decision.owner
      #expect(owner.flatMap { original.names[$0] } == "anna")
    }
  }

  private func traces(_ ledger: Ledger) async throws -> [Int] {
    var counts: [Int] = []
    for table in [
      "ledger_entry", "original_transaction", "charge_lookup", "ownership_action",
      "holding", "store_transaction",
    ] {
      counts.append(
        try await ledger.database.query("SELECT count(*) FROM tenure.\(unescaped: table)")
          .decodeOnly(Int.self))
    }
    return counts
  }
}
