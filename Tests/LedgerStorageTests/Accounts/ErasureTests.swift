import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("Persons who are erased")
struct ErasureTests {
  private let name = "anna@example.com"

  /// A ledger with all that an account can leave behind.
  private func withAnna(_ body: @Sendable (Ledger) async throws -> Void) async throws {
    try await withLedger { [name] ledger in
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      _ = try await ledger.webhooks.pushEvents(at: start)
      _ = try await ledger.orders.openOrder(accountID: name, productID: "monthly", at: start)
      let submission = try await ledger.store(by: name, on: 0.1)
      try await ledger.verify(
        submission, [charge("1", on: 0)], claiming: [key("1")], on: 0.1,
        exchanges: [exchange("about \(name)")], terms: .shop)
      _ = try await ledger.grants.grant(
        "gold", to: name, until: nil,
        by: Administrator(name: "ops", reason: "\(name) is a friend of the house."), terms: .shop,
        at: day(1))
      _ = try await ledger.webhooks.pushEvents(at: day(1))
      try await body(ledger)
    }
  }

  /// The tables and columns in which a text stands.
  private func places(of text: String, in ledger: Ledger) async throws -> [String] {
    let columns = try await ledger.database.query(
      """
      SELECT table_name::text, column_name::text, data_type = 'bytea'
      FROM information_schema.columns
      JOIN information_schema.tables USING (table_schema, table_name)
      WHERE table_schema = 'tenure' AND table_type = 'BASE TABLE'
      """
    ).decode(String.self, String.self, Bool.self)
    var places: [String] = []
    for (table, column, isBytes) in columns {
      let value: SQL =
        isBytes ? "encode(\"\(unescaped: column)\", 'escape')" : "\"\(unescaped: column)\"::text"
      let count = try await ledger.database.query(
        "SELECT count(*) FROM tenure.\(unescaped: table) WHERE position(\(text) IN \(value)) > 0"
      ).decodeOnly(Int.self)
      if count > 0 { places.append("\(table).\(column)") }
    }
    return places
  }

  private func chain(_ ledger: Ledger) async throws -> [[UInt8]] {
    try await ledger.database.query(
      "SELECT hash FROM tenure.ledger_entry ORDER BY original_transaction_id, number"
    ).decode([UInt8].self)
  }

  @Test func `nothing has the name any more, and every chain is as it was`() async throws {
    try await withAnna { ledger in
      let account = try #require(try await ledger.accounts.account(name))
      _ = try await ledger.accounts.setNames(label: "Ms \(name)", email: "\(name)@x", of: account)
      let before = try await places(of: name, in: ledger)
      for column in ["account_id", "label", "email"] {
        #expect(before.contains("account.\(column)"))
      }
      #expect(before.contains("holding.account_id"))
      #expect(before.contains("published_entitlement.account_id"))
      let hashes = try await chain(ledger)
      let key = try #require(try await ledger.accounts.account(name)).key

      let erasure = try await ledger.accounts.erase(
        name, by: Administrator(name: "ops", reason: "\(name) asked for it."), at: day(5))
      #expect(try await places(of: name, in: ledger) == [])
      #expect(try await chain(ledger) == hashes)
      #expect(erasure.pseudonym == "erased-\(key.rawValue.uuidString.lowercased())")
      #expect(erasure.erasedAt == day(5))
      var expected = Erasure.Removed()
      (expected.holdings, expected.grants, expected.publishedEntitlements) = (1, 1, 2)
      (expected.submissions, expected.payloads, expected.exchanges) = (1, 1, 1)
      expected.jobs = 1
      expected.deliveries = erasure.removed.deliveries
      #expect(erasure.removed == expected)
      #expect(erasure.removed.deliveries > 0)
      #expect(try await ledger.auditor.audit().differences == [])
      #expect(try await ledger.owner(of: "1") == erasure.pseudonym)
      let reasons = try await ledger.administration.administratorActions(limit: 10).compactMap(
        \.reason)
      #expect(
        reasons == [
          "\(erasure.pseudonym) asked for it.", "\(erasure.pseudonym) is a friend of the house.",
        ])
    }
  }

  @Test func `nothing is published about it afterwards, and it owns no renewal`() async throws {
    try await withAnna { ledger in
      let erasure = try await ledger.accounts.erase(name, by: support, at: day(5))
      let count = try await ledger.publishedEvents().count
      try await ledger.work(until: 40)
      try await ledger.receive([charge("2", on: 30)], on: 40.1)
      #expect(try await ledger.publishedEvents().dropFirst(count).allSatisfy { $0.account == nil })
      #expect(try await ledger.owner(of: "2") == nil)
      #expect(
        try await ledger.publishedKinds(erasure.pseudonym).filter { $0.hasPrefix("entitlement.") }
          == ["entitlement.granted", "entitlement.granted"])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `its erasure is published last, once, by its token and not by its name`() async throws
  {
    try await withAnna { ledger in
      _ = try await ledger.accounts.findOrCreateAccount("guest", at: start)
      _ = try await ledger.accounts.merge(
        "guest", into: name, by: support, terms: .shop, at: day(4))
      var tokens: [String] = []
      for account in ["guest", name] {
        let token = try #require(try await ledger.accounts.account(account)).appAccountToken
        tokens.append(token.uuidString.lowercased())
      }
      let count = try await ledger.publishedEvents().count
      let erasure = try await ledger.accounts.erase(name, by: support, at: day(5))
      _ = try await ledger.accounts.erase(erasure.pseudonym, by: support, at: day(6))
      let published = try await ledger.publishedEvents().dropFirst(count)
      #expect(published.map(\.kind) == [.accountErased, .accountErased])
      #expect(published.map(\.text) == tokens.map { #"{"app_account_token":"\#($0)"}"# })
      #expect(published.map(\.at) == [day(5), day(5)])
      #expect(published.last?.account == erasure.pseudonym)
      #expect(try await places(of: name, in: ledger) == [])

      // Pending events are no longer sent; this one is, under the pseudonym.
      _ = try await ledger.webhooks.pushEvents(at: day(6))
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.webhooks: 10], worker: "w", at: day(6), lease: .seconds(60))
      var pushed: [String] = []
      for job in jobs {
        var delivery = try await ledger.webhooks.nextDelivery(job, at: day(6))
        while let current = delivery {
          pushed.append(current.body)
          delivery = try await ledger.webhooks.nextDelivery(job, after: current, at: day(6))
        }
      }
      #expect(pushed.count == 2)
      #expect(pushed.allSatisfy { $0.contains(#""type":"account.erased""#) })
      #expect(pushed.contains { $0.contains(#""account_id":"\#(erasure.pseudonym)""#) })
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `the name is free: who uses it next is a new account`() async throws {
    try await withAnna { ledger in
      let old = try #require(try await ledger.accounts.account(name))
      _ = try await ledger.accounts.erase(name, by: support, at: day(5))
      #expect(try await ledger.accounts.account(name) == nil)
      try await ledger.submit(
        [charge("1", on: 0), charge("2", on: 30)], claiming: [key("1"), key("2")], by: name,
        on: 30.1, terms: .shop)
      let new = try #require(try await ledger.accounts.account(name))
      #expect(new.key != old.key)
      #expect(new.appAccountToken != old.appAccountToken)
      #expect(try await ledger.owner(of: "2") == name)
      #expect(try await ledger.owner(of: "1") == Account.pseudonym(of: old.key))
      #expect(try await ledger.usable(by: name, on: 31) == ["premium": day(60)])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `a renewal that was reported a day early stays decided as it was`() async throws {
    try await withAnna { ledger in
      try await ledger.receive([charge("2", on: 30)], on: 29.2)
      #expect(try await ledger.owner(of: "2") == name)
      let erasure = try await ledger.accounts.erase(name, by: support, at: day(29.5))
      #expect(erasure.erasedAt == day(30) + .milliseconds(1))
      #expect(try await ledger.owner(of: "2") == erasure.pseudonym)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `what waits for Apple is decided, and a late answer is not a claim`() async throws {
    try await withAnna { ledger in
      let submission = try await ledger.store(by: name, on: 2)
      let erasure = try await ledger.accounts.erase(name, by: support, at: day(5))
      #expect(erasure.removed.submissions == 2)
      #expect(erasure.removed.jobs == 2)
      let found = try #require(try await ledger.submissions.submission(submission.id))
      #expect(found.status == .rejected)
      #expect(found.problem?.code == "account_erased")
      #expect(try await ledger.submissions.payload(of: submission.id) == nil)

      let line = OriginalTransactionKey(.production, "7000")
      let late = try await ledger.verify(
        submission, [charge("70", on: 2, line: line)], claiming: [key("70", line: line)], on: 6,
        exchanges: [exchange("late")], terms: .shop)
      #expect(late == nil)
      #expect(try await ledger.submissions.exchanges(of: submission.id) == [])
      #expect(try await ledger.owner(of: "70", line: line) == nil)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `once more, by the pseudonym, removes what was on its way, or nothing`() async throws {
    try await withAnna { ledger in
      let account = try #require(try await ledger.accounts.account(name))
      let first = try await ledger.accounts.erase(name, by: support, at: day(5))
      await #expect(throws: LedgerError.unknownAccount(name)) {
        try await ledger.accounts.erase(name, by: support, at: day(6))
      }
      let second = try await ledger.accounts.erase(first.pseudonym, by: support, at: day(6))
      #expect(second.erasedAt == first.erasedAt)
      #expect(second.removed == Erasure.Removed())
      #expect(try await ledger.administration.administratorActions(limit: 10).count == 2)

      // A submission that was stored at the very moment.
      _ = try await ledger.database.execute(
        """
        INSERT INTO tenure.submission (submission_id, account_key, received_at, restore, status)
        VALUES (gen_random_uuid(), \(account.key), \(day(5)), false, 'pending')
        """)
      let third = try await ledger.accounts.erase(first.pseudonym, by: support, at: day(7))
      #expect(third.removed.submissions == 1)
      #expect(try await ledger.publishedEvents().count { $0.kind == .accountErased } == 1)
      await #expect(throws: LedgerError.erasedAccount(first.pseudonym)) {
        _ = try await ledger.store(by: first.pseudonym, on: 8)
      }
      await #expect(throws: LedgerError.erasedAccount(first.pseudonym)) {
        _ = try await ledger.orders.openOrder(
          accountID: first.pseudonym, productID: "monthly", at: day(8))
      }
    }
  }

  @Test func `a body that another account sent as well stays until that is erased, too`()
    async throws
  {
    try await withAnna { ledger in
      let other = try await ledger.store(by: "bert", on: 2)
      try await ledger.verify(
        other, [charge("1", on: 0)], claiming: [key("1")], on: 2,
        exchanges: [exchange("about \(name)"), exchange("about bert")], terms: .shop)
      func bodies() async throws -> Int {
        try await ledger.database.query("SELECT count(*) FROM tenure.body").decodeOnly(Int.self)
      }
      #expect(try await bodies() == 3)
      let erasure = try await ledger.accounts.erase("bert", by: support, at: day(5))
      #expect(erasure.removed.payloads == 1)
      #expect(erasure.removed.exchanges == 2)
      #expect(try await bodies() == 2)
      // The receipt with which her subscription is polled.
      let request = try #require(try await ledger.polls.pollRequest(originalKey))
      guard case .submission(let source) = try #require(request.source.receipts.first) else {
        Issue.record("\(request.source)")
        return
      }
      #expect(try await ledger.submissions.payload(of: source) == .receipt("receipt"))
      #expect(
        try await ledger.submissions.exchanges(of: source).map(\.answer) == [
          Array("about \(name)".utf8)
        ])
      #expect(try await ledger.submissions.payload(of: other.id) == nil)
      _ = try await ledger.accounts.erase(name, by: support, at: day(6))
      #expect(try await bodies() == 0)
    }
  }

  @Test func `the programs' role erases bodies of erased accounts, and no others`() async throws {
    try await withAnna { ledger in
      func payloads() async throws -> Int {
        try await ledger.database.query("SELECT count(*) FROM tenure.body WHERE bytes = 7")
          .decodeOnly(Int.self)
      }
      let account = try #require(try await ledger.accounts.account(name))
      func erase() async throws {
        try await ledger.database.withTransaction { transaction in
          _ = try await transaction.batch(
            [
              "SET LOCAL ROLE \(unescaped: ScratchPlace.environment.program)",
              AccountStore.eraseSubmissions(of: account.key, at: day(5)),
            ])
        }
      }
      try await erase()
      #expect(try await payloads() == 1)
      // On a Citus that function has the program's rights.
      if !ScratchPlace.environment.isDistributed {
        await #expect(throws: PostgresError.self) {
          try await ledger.database.withTransaction { transaction in
            _ = try await transaction.batch([
              "SET LOCAL ROLE \(unescaped: ScratchPlace.environment.program)",
              "DELETE FROM tenure.body",
            ])
          }
        }
      }
      _ = try await ledger.database.execute(
        "UPDATE tenure.account_by_key SET erased_at = now() WHERE account_key = \(account.key)")
      try await erase()
      #expect(try await payloads() == 0)
      let rights = try await ledger.database.query(
        """
        SELECT has_function_privilege(
          'tenure_program', 'tenure.erase_submissions(uuid, timestamptz)',
          'EXECUTE'), has_function_privilege('tenure_reader',
          'tenure.erase_submissions(uuid, timestamptz)', 'EXECUTE')
        """
      ).decodeOnly(Bool.self, Bool.self)
      #expect(rights == (true, false))
    }
  }

  @Test func `an account's name is there until the guests merged into it are erased`() async throws
  {
    try await withAnna { [name] ledger in
      _ = try await ledger.accounts.findOrCreateAccount("guest", at: start)
      _ = try await ledger.accounts.merge(
        "guest", into: name, by: support, terms: .shop, at: day(4))
      try await ledger.database.withTransaction { other in
        _ = try await other.batch(PublishedEntitlements.lock(["guest"]))
        async let erased = ledger.accounts.erase(name, by: support, at: day(5))
        try await ledger.waitForALock()
        #expect(try await ledger.accounts.account(name) != nil)
        try await other.commit()
        _ = try await erased
      }
      #expect(try await ledger.accounts.account(name) == nil)
      #expect(try await ledger.accounts.account("guest") == nil)
    }
  }

  @Test func `who erases waits for who records, and finds what was recorded`() async throws {
    try await withAnna { [name] ledger in
      let line = OriginalTransactionKey(.production, "7000")
      let submission = try await ledger.store(by: name, on: 2)
      // Another transaction locks the account: the recording waits, and after it the erasure.
      try await ledger.database.withTransaction { other in
        _ = try await other.batch(PublishedEntitlements.lock([name]))
        async let recorded = ledger.verify(
          submission, [charge("70", on: 2, line: line)], claiming: [key("70", line: line)], on: 2,
          terms: .shop)
        try await ledger.waitForALock()
        async let erased = ledger.accounts.erase(name, by: support, at: day(5))
        try await other.commit()
        _ = try await (recorded, erased)
      }
      #expect(try await ledger.owner(of: "70", line: line) != name)
      #expect(try await ledger.holdings.holdings(of: name).holdings.isEmpty)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `who is erased while Apple names the token gets nothing under the old name`()
    async throws
  {
    try await withLedger { [name] ledger in
      let account = try await ledger.accounts.findOrCreateAccount(name, at: start)
      // The erasure is the first to wait for the account, behind it the recording: that one has
      // read the name by then.
      try await ledger.database.withTransaction { other in
        _ = try await other.batch(PublishedEntitlements.lock([name]))
        async let erased = ledger.accounts.erase(name, by: support, at: day(1))
        try await ledger.waitForALock()
        async let received: Void = ledger.receive(
          [charge("1", on: 2, token: account.appAccountToken)], on: 2)
        try await ledger.waitForALock(of: 2)
        try await other.commit()
        _ = try await (erased, received)
      }
      #expect(try await places(of: name, in: ledger) == [])
      // It was erased when it was charged.
      #expect(try await ledger.owner(of: "1") == nil)
      #expect(
        try await ledger.publishedEvents().allSatisfy {
          $0.account == nil || $0.kind == .accountErased
        })
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test(arguments: [true, false])
  func `what arrived at the very moment is erased when Apple can't be asked, or refuses it`(
    isRefused: Bool
  ) async throws {
    try await withAnna { ledger in
      let submission = try await ledger.store(by: name, on: 2)
      _ = try await ledger.accounts.erase(name, by: support, at: day(5))
      // As if it had been stored just after the erasure read the rows.
      let body = NewBody(Array("about \(name)".utf8), at: day(5))
      _ = try await ledger.database.batch([
        body.store,
        """
        UPDATE tenure.submission SET erased_at = NULL, status = 'pending', decided_at = NULL,
          problem = NULL, problem_detail = NULL, retry_at = \(day(5)), body_sha256 = \(body.digest)
        WHERE submission_id = \(submission.id)
        """,
      ])
      let problem = SubmissionProblem(code: "apple_unavailable", detail: "Apple is down.")
      if isRefused {
        try await ledger.submissions.reject(
          submission, because: problem, exchanges: [exchange("about \(name)")], terms: .shop,
          at: day(6))
      } else {
        try await ledger.submissions.postpone(
          submission, until: day(7), because: problem, exchanges: [exchange("about \(name)")],
          provisional: [
            ProvisionalGrant(entitlement: "premium", endsAt: day(8), line: originalKey)
          ],
          worker: nil, terms: .shop, at: day(6))
      }
      #expect(try await places(of: name, in: ledger) == [])
      #expect(try await ledger.usable(by: name, on: 6).isEmpty)
      let found = try #require(try await ledger.submissions.submission(submission.id))
      #expect(found.status == .rejected)
      #expect(found.problem?.code == "account_erased")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test func `who erases counts in what is recorded first while he waits for the account`()
    async throws
  {
    try await withLedger { [name] ledger in
      let submission = try await ledger.store(by: name, on: 29.1)
      // The renewal is reported a day early, and nothing is known of the account before.
      let erasure = try await ledger.database.withTransaction { other in
        _ = try await other.batch(PublishedEntitlements.lock([name]))
        async let recorded = ledger.verify(
          submission, [charge("1", on: 0), charge("2", on: 30, asOf: 29.1)], claiming: [key("1")],
          on: 29.2)
        try await ledger.waitForALock()
        async let erased = ledger.accounts.erase(name, by: support, at: day(29.5))
        try await ledger.waitForALock(of: 2)
        try await other.commit()
        _ = try await recorded
        return try await erased
      }
      #expect(erasure.erasedAt == day(30) + .milliseconds(1))
      #expect(try await ledger.owner(of: "2") == erasure.pseudonym)
      #expect(try await places(of: name, in: ledger) == [])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }
}
