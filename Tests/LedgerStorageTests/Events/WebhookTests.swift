import Foundation
import Postgres
import Subscriptions
import Testing

@testable import LedgerStorage

struct WebhookTests {
  private static let lease = Duration.seconds(60)

  /// Runs a test with webhooks turned on.
  private func withWebhook(_ test: @Sendable (Ledger) async throws -> Void) async throws {
    try await withLedger { ledger in
      #expect(try await ledger.webhooks.pushEvents(at: start) == 0)
      try await test(ledger)
    }
  }

  /// Claims due jobs and returns them by stream.
  private func claim(_ ledger: Ledger, as worker: String = "a", at now: Timestamp = start)
    async throws -> [String: Job]
  {
    let jobs = try await ledger.jobs.claimJobs(
      limits: [.webhooks: 100], worker: worker, at: now, lease: Self.lease)
    return Dictionary(uniqueKeysWithValues: jobs.map { ($0.subject, $0) })
  }

  /// The events of a stream in the order of their deliveries.
  private func deliverAll(_ ledger: Ledger, _ job: Job) async throws -> [Int64] {
    var (ids, made) = ([Int64](), WebhookDelivery?.none)
    while let next = try await ledger.webhooks.nextDelivery(job, after: made, at: start) {
      ids.append(next.eventID)
      made = next
    }
    return ids
  }

  private func count(_ table: SQL, in ledger: Ledger) async throws -> Int {
    try await ledger.database.query("SELECT count(*) FROM \(table)").decodeOnly(Int.self)
  }

  @Test func `what was before webhooks were turned on is not pushed`() async throws {
    try await withLedger { ledger in
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start).key
      let old = try await ledger.insertEvent(of: anna)
      #expect(try await ledger.webhooks.redeliver(old, at: start) == .webhooksOff)
      #expect(try await !ledger.webhooks.webhookStatus().isOn)
      #expect(try await ledger.webhooks.pushEvents(at: start) == 0)
      #expect(try await ledger.webhooks.webhookStatus().isOn)
      let new = try await ledger.insertEvent(of: anna)
      #expect(try await ledger.webhooks.pushEvents(at: start) == 1)
      #expect(try await ledger.webhooks.pushEvents(at: start) == 0)
      let job = try #require(try await claim(ledger).values.first)
      #expect(try await deliverAll(ledger, job) == [new])
    }
  }

  @Test func `each account is a stream, and each original transaction with an unclaimed charge`()
    async throws
  {
    try await withWebhook { ledger in
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start).key
      let ben = try await ledger.accounts.findOrCreateAccount("ben", at: start).key
      var expected: [String: [Int64]] = [:]
      for _ in 0..<3 {
        for account in [anna, ben] {
          let id = try await ledger.insertEvent(of: account)
          expected[account.rawValue.uuidString.lowercased(), default: []].append(id)
        }
        for line in ["1000", "2000"] {
          let id = try await ledger.insertEvent(of: nil, line: line)
          expected["line/production/\(line)", default: []].append(id)
        }
      }
      #expect(try await ledger.webhooks.pushEvents(at: start) == 12)
      let jobs = try await claim(ledger)
      #expect(Set(jobs.values.map(\.queue)) == [.webhooks])
      for (stream, job) in jobs {
        #expect(try await deliverAll(ledger, job) == expected.removeValue(forKey: stream))
      }
      #expect(expected.isEmpty)
      #expect(try await count("tenure.job", in: ledger) == 0)
      #expect(try await count("tenure.webhook_delivery", in: ledger) == 0)
    }
  }

  @Test func `an event is pushed as the feed shows it`() async throws {
    try await withWebhook { ledger in
      let name = #"a "quoted" ü\1"#
      let key = try await ledger.accounts.findOrCreateAccount(name, at: start).key
      for account in [key, nil] {
        let id = try await ledger.insertEvent(of: account)
        #expect(try await ledger.webhooks.pushEvents(at: start) == 1)
        let job = try #require(try await claim(ledger).values.first)
        let delivery = try #require(try await ledger.webhooks.nextDelivery(job, at: start))
        let account = account == nil ? "null" : #""a \"quoted\" ü\\1""#
        #expect(
          delivery.body
            == #"{"id":"\#(id)","type":"order.expired","occurred_at":"2026-01-01T00:00:00.000Z","#
            + #""account_id":\#(account),"#
            + #""data":{"environment":"production","original_transaction_id":"1000"}}"#)
        #expect(try await ledger.webhooks.nextDelivery(job, after: delivery, at: start) == nil)
      }
    }
  }

  @Test func `however many push at once, each event becomes one delivery`() async throws {
    try await withWebhook { ledger in
      try await withThrowingTaskGroup(of: Int.self) { group in
        for writer in 0..<4 {
          group.addTask {
            let key = try await ledger.accounts.findOrCreateAccount("\(writer)", at: start).key
            for _ in 0..<25 { _ = try await ledger.insertEvent(of: key) }
            return 0
          }
          group.addTask {
            var pushed = 0
            for _ in 0..<25 { pushed += try await ledger.webhooks.pushEvents(at: start) }
            return pushed
          }
        }
        let early = try await group.reduce(0, +)
        #expect(try await ledger.webhooks.pushEvents(at: start) == 100 - early)
      }
      #expect(try await count("tenure.webhook_delivery", in: ledger) == 100)
      for job in try await claim(ledger).values {
        let ids = try await deliverAll(ledger, job)
        #expect(ids.count == 25)
        #expect(ids == ids.sorted())
      }
    }
  }

  @Test func `what comes while its stream is worked on is not left behind`() async throws {
    try await withWebhook { ledger in
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start).key
      let first = try await ledger.insertEvent(of: anna)
      #expect(try await ledger.webhooks.pushEvents(at: start) == 1)
      let job = try #require(try await claim(ledger).values.first)
      let delivery = try #require(try await ledger.webhooks.nextDelivery(job, at: start))
      #expect(delivery.eventID == first)
      // No other worker claims the stream.
      let second = try await ledger.insertEvent(of: anna)
      #expect(try await ledger.webhooks.pushEvents(at: start) == 1)
      #expect(try await claim(ledger, as: "b").isEmpty)
      let next = try await ledger.webhooks.nextDelivery(job, after: delivery, at: start)
      #expect(next?.eventID == second)
      #expect(try await ledger.webhooks.nextDelivery(job, after: next, at: start) == nil)
      // A delivery was added since the claim, so the job runs once more.
      let again = try #require(try await claim(ledger).values.first)
      // A success resets the attempts.
      #expect(again.attempts == 1)
      #expect(try await deliverAll(ledger, again).isEmpty)
      #expect(try await count("tenure.job", in: ledger) == 0)
    }
  }

  @Test func `a stream that has failed waits, whatever is added to it`() async throws {
    try await withWebhook { ledger in
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start).key
      let ben = try await ledger.accounts.findOrCreateAccount("ben", at: start).key
      let first = try await ledger.insertEvent(of: anna)
      #expect(try await ledger.webhooks.pushEvents(at: start) == 1)
      let job = try #require(try await claim(ledger).values.first)
      let delivery = try #require(try await ledger.webhooks.nextDelivery(job, at: start))
      let second = try await ledger.insertEvent(of: anna)
      #expect(try await ledger.webhooks.pushEvents(at: start) == 1)
      let later = start + .minutes(5)
      try await ledger.webhooks.postpone(
        delivery, of: job, because: "HTTP 500", failures: 3, until: later, isLast: false, at: start)
      _ = try await ledger.insertEvent(of: anna)
      _ = try await ledger.insertEvent(of: ben)
      #expect(try await ledger.webhooks.pushEvents(at: start) == 2)
      // Other streams don't wait.
      #expect(
        try await claim(ledger).map(\.key) == [ben.rawValue.uuidString.lowercased()])
      let status = try await ledger.webhooks.webhookStatus()
      #expect((status.waiting, status.failing, status.parked) == (4, 1, 0))
      let again = try #require(
        try await claim(ledger, at: later)[anna.rawValue.uuidString.lowercased()])
      #expect(again.attempts == 4)
      let retried = try #require(try await ledger.webhooks.nextDelivery(again, at: later))
      #expect((retried.eventID, retried.attempts) == (first, 1))

      // The stream continues after a delivery was given up.
      try await ledger.webhooks.postpone(
        retried, of: again, because: "HTTP 501", failures: 4, until: later, isLast: true, at: later)
      let parked = try await ledger.webhooks.parkedDeliveries(limit: 10)
      #expect(parked.map(\.eventID) == [first])
      #expect(parked.map(\.reason) == ["HTTP 501"])
      #expect(parked.map(\.accountID) == ["anna"])
      let next = try #require(
        try await claim(ledger, at: later)[anna.rawValue.uuidString.lowercased()])
      #expect(try await ledger.webhooks.nextDelivery(next, at: later)?.eventID == second)
    }
  }

  @Test func `a worker that has lost its stream receives nothing more`() async throws {
    try await withWebhook { ledger in
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start).key
      for _ in 0..<3 { _ = try await ledger.insertEvent(of: anna) }
      #expect(try await ledger.webhooks.pushEvents(at: start) == 3)
      let late = try #require(try await claim(ledger, as: "a").values.first)
      let slow = try #require(try await ledger.webhooks.nextDelivery(late, at: start))
      let later = start + .minutes(2)
      let job = try #require(try await claim(ledger, as: "b", at: later).values.first)
      let delivery = try #require(try await ledger.webhooks.nextDelivery(job, at: later))
      #expect(delivery.eventID == slow.eventID)
      #expect(try await ledger.webhooks.nextDelivery(late, after: slow, at: later) == nil)
      try await ledger.webhooks.postpone(
        slow, of: late, because: "late", failures: 1, until: later + .hours(1), isLast: false,
        at: later)
      let next = try await ledger.webhooks.nextDelivery(job, after: delivery, at: later)
      #expect(next.map { $0.eventID > delivery.eventID } == true)
    }
  }

  @Test func `a job that pauses leaves the rest for the next time`() async throws {
    try await withWebhook { ledger in
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start).key
      let ids = [try await ledger.insertEvent(of: anna), try await ledger.insertEvent(of: anna)]
      #expect(try await ledger.webhooks.pushEvents(at: start) == 2)
      let job = try #require(try await claim(ledger).values.first)
      let first = try await ledger.webhooks.nextDelivery(job, at: start)
      #expect(
        try await ledger.webhooks.nextDelivery(job, after: first, isPausing: true, at: start) == nil
      )
      let again = try #require(try await claim(ledger, as: "b").values.first)
      #expect(again.attempts == 1)
      #expect(try await deliverAll(ledger, again) == [ids[1]])
    }
  }

  @Test func `an event is pushed again on request`() async throws {
    try await withWebhook { ledger in
      let anna = try await ledger.accounts.findOrCreateAccount("anna", at: start).key
      let ids = [try await ledger.insertEvent(of: anna), try await ledger.insertEvent(of: anna)]
      #expect(try await ledger.webhooks.pushEvents(at: start) == 2)
      let job = try #require(try await claim(ledger).values.first)
      let first = try #require(try await ledger.webhooks.nextDelivery(job, at: start))
      let second = try #require(
        try await ledger.webhooks.nextDelivery(job, after: first, at: start))
      try await ledger.webhooks.postpone(
        second, of: job, because: "no", failures: 9, until: start + .hours(1), isLast: false,
        at: start)

      // A delivered event goes ahead of the waiting one, immediately.
      #expect(try await ledger.webhooks.redeliver(ids[0], at: start) == .scheduled)
      #expect(try await ledger.webhooks.redeliver(ids[0], at: start) == .scheduled)
      let again = try #require(try await claim(ledger).values.first)
      #expect(again.attempts == 1)
      let repeated = try #require(try await ledger.webhooks.nextDelivery(again, at: start))
      #expect(repeated.eventID == ids[0])
      let retried = try #require(
        try await ledger.webhooks.nextDelivery(again, after: repeated, at: start))
      #expect((retried.eventID, retried.attempts) == (ids[1], 1))

      // A given-up event gets a fresh retry window.
      try await ledger.webhooks.postpone(
        retried, of: again, because: "no", failures: 2, until: start, isLast: true, at: start)
      let empty = try #require(try await claim(ledger).values.first)
      #expect(try await deliverAll(ledger, empty).isEmpty)
      #expect(try await ledger.webhooks.redeliver(ids[1], at: day(4)) == .scheduled)
      let last = try #require(try await claim(ledger, at: day(4)).values.first)
      let given = try #require(try await ledger.webhooks.nextDelivery(last, at: day(4)))
      #expect((given.eventID, given.attempts, given.dueSince) == (ids[1], 0, day(4)))
      #expect(try await ledger.webhooks.redeliver(ids[1] + 1, at: start) == .unknownEvent)
    }
  }

  @Test func `all that was given up is pushed again at once`() async throws {
    try await withWebhook { ledger in
      for name in ["anna", "ben"] {
        let key = try await ledger.accounts.findOrCreateAccount(name, at: start).key
        for _ in 0..<2 { _ = try await ledger.insertEvent(of: key) }
      }
      #expect(try await ledger.webhooks.pushEvents(at: start) == 4)
      for _ in 0..<2 {
        for job in try await claim(ledger).values {
          let delivery = try #require(try await ledger.webhooks.nextDelivery(job, at: start))
          try await ledger.webhooks.postpone(
            delivery, of: job, because: "no", failures: 1, until: start, isLast: true, at: start)
        }
      }
      for job in try await claim(ledger).values {
        #expect(try await deliverAll(ledger, job).isEmpty)
      }
      #expect(try await ledger.webhooks.redeliverParked(at: start) == 4)
      #expect(try await ledger.webhooks.redeliverParked(at: start) == 0)
      for job in try await claim(ledger).values {
        #expect(try await deliverAll(ledger, job).count == 2)
      }
    }
  }
}

extension Ledger {
  /// Writes an event under its account's lock, like recordings.
  func insertEvent(of account: AccountKey?, line: String = "1000") async throws -> Int64 {
    try await database.withTransaction { transaction in
      let data =
        #"{"environment":"production","original_transaction_id":"\#(line)"}"#
      return try await transaction.batch([
        """
        SELECT 1 FROM tenure.account_by_key WHERE account_key = \(account) FOR NO KEY UPDATE
        """,
        """
        INSERT INTO tenure.event (type, occurred_at, account_key, data)
        VALUES ('order.expired', \(start), \(account), convert_to(\(data), 'UTF8')) RETURNING event_id
        """,
      ])[1].decodeOnly(Int64.self)
    }
  }
}
