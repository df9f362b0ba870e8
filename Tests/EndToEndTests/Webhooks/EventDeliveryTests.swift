import AppStoreSimulator
import Foundation
import Intake
import LedgerStorage
import Logging
import Postgres
import ScratchDatabases
import Secrets
import Subscriptions
import Testing

@testable import BackgroundJobs

@Suite("The pushing of events")
struct EventDeliveryTests {
  private struct Stage: Sendable {
    let ledger: Ledger
    let database: ConnectionPool
    let clock: SimulatedClock
    let receiver: StandInReceiver
    let delivery: EventDelivery

    func insertEvent(of account: String) async throws -> Int64 {
      let key = try await ledger.accounts.findOrCreateAccount(account, at: clock.now).key
      return try await database.query(
        """
        INSERT INTO tenure.event (type, occurred_at, account_key, data)
        VALUES ('order.expired', \(clock.now), \(key), '{}') RETURNING event_id
        """
      ).decodeOnly(Int64.self)
    }

    /// Runs due jobs as a worker does, each stream's job once.
    func work() async throws {
      _ = try await ledger.webhooks.pushEvents(at: clock.now)
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.webhooks: 100], worker: "a", at: clock.now, lease: .seconds(60))
      for job in jobs { try await delivery.perform(job) }
    }

    /// The ids of the events that the receiver got.
    var received: [Int64] {
      receiver.requests.compactMap { request in
        request.body.firstMatch(of: /"id":"(\d+)"/).flatMap { Int64($0.1) }
      }
    }
  }

  private func withStage(
    _ test: @Sendable (Stage) async throws -> Void
  ) async throws {
    let quiet = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
    try await withScratchDatabase { database in
      try await StandInReceiver.run { receiver in
        let ledger = Ledger(database: database)
        let clock = SimulatedClock(start: Timestamp(milliseconds: 1_767_225_600_000))
        _ = try await ledger.webhooks.pushEvents(at: clock.now)
        let sender = WebhookSender(
          to: try WebhookReceiver(
            url: Secret("http://127.0.0.1:\(receiver.port)/"), secrets: ["one that is long enough"],
            allowsPrivateAddresses: true),
          timeout: .seconds(60))
        let delivery = EventDelivery(
          ledger: ledger, sender: sender, logger: quiet,
          now: { clock.now })
        do {
          try await test(
            Stage(
              ledger: ledger, database: database, clock: clock, receiver: receiver,
              delivery: delivery))
          await sender.shutDown()
        } catch {
          await sender.shutDown()
          throw error
        }
      }
    }
  }

  @Test("one account's trouble holds up no other account")
  func othersGoOn() async throws {
    try await withStage { stage in
      var expected: [Int64] = []
      var troubled: [Int64] = []
      stage.receiver.answer { $0.body.contains(#""anna""#) ? .status(500) : .status(200) }
      for _ in 0..<3 {
        troubled.append(try await stage.insertEvent(of: "anna"))
        expected.append(try await stage.insertEvent(of: "ben"))
      }
      try await stage.work()
      // Those after the one that fails are not tried.
      #expect(stage.received.filter { !expected.contains($0) } == [troubled[0]])
      #expect(stage.received.filter(expected.contains) == expected)
      // Nor is it again before its time.
      try await stage.work()
      #expect(stage.received.count == 4)
      stage.receiver.answer { _ in .status(200) }
      stage.clock.advance(by: EventDelivery.retries.first)
      try await stage.work()
      #expect(stage.received.suffix(3) == troubled[...])
      let status = try await stage.ledger.webhooks.webhookStatus()
      #expect(status.waiting + status.parked == 0)
    }
  }

  @Test("what fails for three days is given up, and those after it go on")
  func patience() async throws {
    try await withStage { stage in
      let broken = try await stage.insertEvent(of: "anna")
      stage.receiver.answer {
        $0.body.contains(#""id":"\#(broken)""#) ? .status(500) : .status(200)
      }
      let start = stage.clock.now
      try await stage.work()
      stage.clock.advance(by: .hours(1))
      let next = try await stage.insertEvent(of: "anna")
      while stage.clock.now < start + WebhookDelivery.patience {
        try await stage.work()
        #expect(!stage.received.contains(next))
        #expect(try await stage.ledger.webhooks.webhookStatus().parked == 0)
        stage.clock.advance(by: EventDelivery.retries.longest)
      }
      // Within the longest wait, and not at once: it may be the receiver that is broken.
      try await stage.work()
      #expect(try await stage.ledger.webhooks.webhookStatus().parked == 1)
      #expect(stage.received.allSatisfy { $0 == broken })
      stage.clock.advance(by: EventDelivery.retries.longest)
      try await stage.work()
      #expect(stage.received.last == next)
      let parked = try await stage.ledger.webhooks.parkedDeliveries(limit: 10)
      #expect(parked.map(\.eventID) == [broken])
      #expect(parked.map(\.reason) == ["The receiver responded with HTTP 500."])

      stage.receiver.answer { _ in .status(200) }
      #expect(try await stage.ledger.webhooks.redeliver(broken, at: stage.clock.now) == .scheduled)
      try await stage.work()
      #expect(stage.received.last == broken)
      #expect(try await stage.ledger.webhooks.webhookStatus().parked == 0)

      let deliveries = try await stage.ledger.webhooks.deliveries(limit: 1000)
      #expect(deliveries.flatMap(\.attempts).count == stage.received.count)
      #expect(Set(deliveries.map { $0.attempts[0].eventID }) == [broken, next])
      let repaired = try #require(deliveries.first { $0.attempts[0].eventID == broken })
      #expect(deliveries.allSatisfy { $0.attempts[0].failure == nil && $0.retryAt == nil })
      #expect(repaired.attempts.last?.failure == "The receiver responded with HTTP 500.")
      #expect(deliveries.allSatisfy { $0.accountID == "anna" })
    }
  }

  @Test("a long stream lets others have their turn")
  func turns() async throws {
    try await withStage { stage in
      var expected: [Int64] = []
      for _ in 0..<50 { expected.append(try await stage.insertEvent(of: "anna")) }
      try await stage.work()
      #expect(stage.received.count < 50)
      for _ in 0..<10 where stage.received.count < 50 { try await stage.work() }
      #expect(stage.received == expected)
    }
  }
}
