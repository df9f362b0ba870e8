import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

@Suite("The inbox of notifications")
struct NotificationTests {
  private static func new(_ id: String = "n1", version: NotificationVersion = .two)
    -> NewNotification
  {
    NewNotification(
      id: id, version: version, receivedAt: day(1), body: "a.b.c", notificationType: "DID_RENEW",
      subtype: "BILLING_RECOVERY", environment: .production, bundleID: "com.example.app",
      originalTransactionID: "1000", transactionID: "1", signedAt: day(0.9))
  }

  @discardableResult
  private static func process(
    _ evidence: [Evidence], as id: String = "n1", on date: Double = 1,
    switchOff: AutoRenewOffDate? = nil, in ledger: Ledger
  ) async throws -> (outcome: NotificationOutcome, recording: Recording)? {
    _ = try await ledger.notifications.store(new(id), processAt: day(date))
    return try await ledger.notifications.process(
      NotificationStore.VerifiedNotification(id: id, evidence: evidence, switchOff: switchOff),
      at: day(date),
      terms: .everything)
  }

  /// Runs a test on a separate ledger that sells a month.
  private func withInbox(_ body: @Sendable (Ledger) async throws -> Void) async throws {
    try await withLedger { ledger in
      _ = try await ledger.products.describe(
        Product(id: "monthly", validFrom: start, type: .autoRenewable, entitlements: ["premium"]))
      try await body(ledger)
    }
  }

  // MARK: Storing

  @Test("a notification is stored once, with its job")
  func stores() async throws {
    try await withInbox { ledger in
      #expect(try await ledger.notifications.store(Self.new(), processAt: day(1)))
      #expect(try await !ledger.notifications.store(Self.new(), processAt: day(2)))
      let stored = try #require(try await ledger.notifications.notification("n1"))
      #expect(stored.body == "a.b.c")
      #expect(stored.version == .two)
      #expect(stored.receivedAt == day(1))
      #expect(stored.notificationType == "DID_RENEW")
      #expect(stored.bundleID == "com.example.app")
      #expect(stored.outcome == nil)
      #expect(stored.attempts == 0)
      let jobs = try await ledger.claimJobs(
        limit: 10, worker: "w", at: day(1), lease: .seconds(60))
      #expect(jobs.map(\.key) == [.processNotification("n1")])
      #expect(try await ledger.notifications.notification("n2") == nil)
    }
  }

  @Test("one with nothing in it is processed by being stored")
  func storesProcessed() async throws {
    try await withInbox { ledger in
      #expect(try await ledger.notifications.store(Self.new(), processAt: nil))
      #expect(try await ledger.notifications.notification("n1")?.outcome == .nothingToRecord)
      #expect(try await ledger.jobCount() == 0)
      let processed = try await ledger.notifications.process(
        NotificationStore.VerifiedNotification(id: "n1", evidence: [charge("1", on: 0)]),
        at: day(1),
        terms: .everything)
      #expect(processed == nil)
      #expect(try await ledger.entryCount() == 0)
    }
  }

  @Test("many deliveries at once store one")
  func storesOnce() async throws {
    try await withInbox { ledger in
      let new = try await withThrowingTaskGroup(of: Bool.self) { group in
        for _ in 1...8 {
          group.addTask { try await ledger.notifications.store(Self.new(), processAt: day(1)) }
        }
        return try await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
      }
      #expect(new == 1)
      #expect(try await ledger.jobCount() == 1)
    }
  }

  @Test("a repetition of what is processed gets no job")
  func repeated() async throws {
    try await withInbox { ledger in
      try await Self.process([charge("1", on: 0)], in: ledger)
      #expect(try await !ledger.notifications.store(Self.new(), processAt: day(2)))
      #expect(try await ledger.jobCount() == 0)
    }
  }

  // MARK: Processing

  @Test("it is processed exactly once, however many are at it")
  func processesOnce() async throws {
    try await withInbox { ledger in
      _ = try await ledger.orders.openOrder(accountID: "anna", productID: "monthly", at: day(0))
      _ = try await ledger.notifications.store(Self.new(), processAt: day(1))
      let token = try await ledger.token(of: "anna")
      let done = try await withThrowingTaskGroup(of: Bool.self) { group in
        for _ in 1...8 {
          group.addTask {
            try await ledger.notifications.process(
              NotificationStore.VerifiedNotification(
                id: "n1", evidence: [charge("1", on: 0, token: token), status(true, on: 0.5)]),
              at: day(1), terms: .everything) != nil
          }
        }
        return try await group.reduce(into: 0) { $0 += $1 ? 1 : 0 }
      }
      #expect(done == 1)
      let stored = try #require(try await ledger.notifications.notification("n1"))
      #expect(stored.outcome == .recorded)
      #expect(stored.attempts == 1)
      #expect(try await ledger.jobCount() == 0)
      #expect(try await ledger.owner(of: "1") == "anna")
      // The transaction, the status and the decision are one entry.
      #expect(try await ledger.entryCount() == 1)
      let sources = try await ledger.database.query(
        "SELECT DISTINCT source, source_id FROM tenure.ledger_entry"
      ).decode(String.self, String?.self)
      #expect(sources.count == 1)
      #expect(sources.first?.0 == "notification")
      #expect(sources.first?.1 == "n1")
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("different notifications of one line at once come to what one after the other does")
  func processesSideBySide() async throws {
    try await withInbox { ledger in
      try await withThrowingTaskGroup(of: Void.self) { group in
        for number in 0..<12 {
          group.addTask {
            try await Self.process(
              [
                charge(TransactionID("\(number)"), on: Double(number) * 30, asOf: 400),
                status(number % 2 == 0, on: Double(number) * 30 + 1),
              ], as: "n\(number)", on: 400, in: ledger)
          }
        }
        try await group.waitForAll()
      }
      #expect(try await ledger.ownership.original(of: originalKey)?.rule.charges.count == 12)
      #expect(try await ledger.jobCount() == 0)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("what was known is nothing new")
  func known() async throws {
    try await withInbox { ledger in
      let first = try await Self.process([charge("1", on: 0)], in: ledger)
      #expect(first?.outcome == .recorded)
      let entries = try await ledger.entryCount()
      let second = try await Self.process([charge("1", on: 0)], as: "n2", in: ledger)
      #expect(second?.outcome == .known)
      #expect(try await ledger.entryCount() == entries)
      #expect(try await Self.process([], as: "n3", in: ledger)?.outcome == .nothingToRecord)
    }
  }

  @Test("the order of whom a token names is fulfilled, and a refund follows")
  func order() async throws {
    try await withInbox { ledger in
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(0))
      let token = try await ledger.token(of: "anna")
      try await Self.process([charge("1", on: 0.1, token: token)], in: ledger)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .fulfilled)
      try await Self.process(
        [charge("1", on: 0.1, asOf: 3, revokedOn: 2, token: token)], as: "n2", on: 3, in: ledger)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .refunded)
      try await Self.process(
        [charge("1", on: 0.1, asOf: 4, token: token)], as: "n3", on: 4, in: ledger)
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .fulfilled)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("an automatic renewal fulfils no order, and neither does what grants nothing")
  func noOrder() async throws {
    try await withInbox { ledger in
      try await ledger.submit(
        [charge("1", on: 0), status(true, on: 0.1)], claiming: [key("1")], by: "anna", on: 0.1)
      let order = try await ledger.orders.openOrder(
        accountID: "anna", productID: "monthly", at: day(5))
      try await Self.process([charge("2", on: 30)], on: 30, in: ledger)
      #expect(try await ledger.owner(of: "2") == "anna")
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .open)

      let other = OriginalTransactionKey(.sandbox, "7")
      let token = try await ledger.token(of: "anna")
      _ = try await ledger.notifications.store(Self.new("n2"), processAt: day(31))
      _ = try await ledger.notifications.process(
        NotificationStore.VerifiedNotification(
          id: "n2", evidence: [charge("7", on: 31, line: other, token: token)]), at: day(31),
        terms: AccessTerms(catalogue: Catalogue([]), sandboxAccess: .none))
      #expect(try await ledger.owner(of: "7", line: other) == "anna")
      #expect(try await ledger.orders.order(order.order.id)?.order.status == .open)
    }
  }

  @Test("a date without proof is recorded together with Apple's report")
  func switchOff() async throws {
    try await withInbox { ledger in
      let report = AutoRenewOffDate(line: originalKey, at: day(10))
      try await Self.process(
        [charge("1", on: 0, asOf: 12), status(false, on: 12)], on: 12, switchOff: report,
        in: ledger)
      let dates = try await ledger.database.query(
        "SELECT as_of FROM tenure.renewal_status WHERE NOT auto_renews ORDER BY as_of"
      ).decode(Timestamp.self)
      #expect(dates == [day(10), day(12)])

      // Nothing is recorded of an original transaction missing from Apple's response.
      let stranger = AutoRenewOffDate(line: OriginalTransactionKey(.production, "9"), at: day(13))
      try await Self.process([charge("1", on: 0)], as: "n2", switchOff: stranger, in: ledger)
      let lines = try await ledger.database.query(
        "SELECT count(*) FROM tenure.original_transaction"
      ).decodeOnly(Int.self)
      #expect(lines == 1)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  // MARK: Trouble

  @Test("Apple's trouble is noted, and the exchanges are kept in order")
  func trouble() async throws {
    try await withInbox { ledger in
      _ = try await ledger.notifications.store(Self.new(version: .one), processAt: day(1))
      try await ledger.notifications.postponeNotification(
        "n1", until: day(2), because: "Apple did not answer.", exchanges: [exchange("none")],
        worker: nil)
      #expect(
        try await ledger.claimJobs(limit: 1, worker: "w", at: day(1.9), lease: .seconds(60))
          .isEmpty)
      let waiting = try #require(try await ledger.notifications.notification("n1"))
      #expect(waiting.outcome == nil)
      #expect(waiting.attempts == 1)
      #expect(waiting.problem == "Apple did not answer.")
      #expect(try await ledger.notifications.shortAnswers(toNotification: "n1").count == 1)

      try await ledger.notifications.rejectNotification(
        "n1", because: "Not authentic.", exchanges: [exchange("21003")], at: day(2))
      let rejected = try #require(try await ledger.notifications.notification("n1"))
      #expect(rejected.outcome == .rejected)
      #expect(rejected.problem == "Not authentic.")
      #expect(rejected.attempts == 2)
      #expect(try await ledger.jobCount() == 0)
      // A late process changes nothing.
      try await ledger.notifications.postponeNotification(
        "n1", until: day(3), because: "late", exchanges: [exchange("late")], worker: nil)
      let late = try await ledger.notifications.process(
        NotificationStore.VerifiedNotification(id: "n1", evidence: [charge("1", on: 0)]),
        at: day(3),
        terms: .everything)
      #expect(late == nil)
      #expect(try await ledger.notifications.notification("n1")?.problem == "Not authentic.")
      let answers = try await ledger.notifications.exchanges(ofNotification: "n1").map {
        String(decoding: $0.answer ?? [], as: UTF8.self)
      }
      #expect(answers == ["none", "21003"])
    }
  }

  @Test("a job that is given up leaves its reason with the notification")
  func parked() async throws {
    try await withInbox { ledger in
      _ = try await ledger.notifications.store(Self.new("it's"), processAt: day(1))
      let job = try #require(
        try await ledger.claimJobs(limit: 1, worker: "w", at: day(1), lease: .seconds(60)).first)
      #expect(
        try await ledger.jobs.discard(job, because: "It can't be read.", at: day(2)))
      #expect(try await ledger.notifications.notification("it's")?.problem == "It can't be read.")
      #expect(try await ledger.notifications.notification("it's")?.outcome == nil)
      #expect(
        try await ledger.jobs.restartJobs(.discarded(kind: "verify_submission"), at: day(3)) == 0)
      #expect(
        try await ledger.jobs.restartJobs(.discarded(kind: "process_notification"), at: day(3)) == 1
      )
      let again = try await ledger.claimJobs(
        limit: 1, worker: "w", at: day(3), lease: .seconds(60))
      #expect(again.map(\.key) == [.processNotification("it's")])
    }
  }

  @Test("refusals are counted by hour, version and reason")
  func refusals() async throws {
    try await withInbox { ledger in
      func refused(_ reason: String, _ count: Int, at minutes: Int) -> RefusedNotifications {
        RefusedNotifications(
          hour: day(1), version: .two, reason: reason, count: count,
          lastAt: day(1) + .minutes(minutes), lastDetail: "At \(minutes).", lastBodyBytes: minutes,
          lastBodySHA256: Array(repeating: UInt8(minutes), count: 32))
      }
      try await ledger.notifications.trace([
        refused("untrusted_chain", 2, at: 1), refused("too_large", 1, at: 2),
      ])
      try await ledger.notifications.trace([refused("untrusted_chain", 3, at: 5)])
      let found = try await ledger.notifications.refusedNotifications(since: day(1))
      #expect(found.map(\.reason) == ["untrusted_chain", "too_large"])
      #expect(found.map(\.count) == [5, 1])
      #expect(found[0].lastDetail == "At 5.")
      #expect(found[0].lastBodyBytes == 5)
      #expect(found[0].version == .two)
      #expect(try await ledger.notifications.refusedNotifications(since: day(2)).isEmpty)
    }
  }
}

extension Ledger {
  fileprivate func jobCount() async throws -> Int {
    try await database.query(
      "SELECT count(*) FROM tenure.job WHERE queue IN ('submissions', 'notifications')"
    ).decodeOnly(Int.self)
  }

  fileprivate func token(of account: String) async throws -> UUID {
    try await accounts.findOrCreateAccount(account, at: start).appAccountToken
  }
}
