import AppStoreSimulator
import Foundation
import LedgerStorage
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Bootstrap
@testable import Development
@testable import Intake
@testable import tenure

/// `kill -9` of workers, again and again, while they push events to a receiver that is written with
/// nothing but a standard library.
@Suite("Workers that are killed while they push events")
struct KilledPusherTests {
  private static let events = 600
  private static let accounts = 10
  private static let kills = 8

  @Test("leave no event out, and none out of its account's order")
  func gapless() async throws {
    let seed = Seed.chosen()
    print("Workers that are killed while they push events: TENURE_TEST_SEED=\(seed)")
    try await withScratchDatabase { database in
      try await withTemporaryDirectory { directory in
        let stage = try Stage(database: database, directory: directory)
        do {
          try await stage.run(seed: seed)
          await stage.stop()
        } catch {
          await stage.stop()
          throw error
        }
      }
    }
  }

  /// A receiver and two workers, on a clock that the test moves.
  private actor Stage {
    private static let secret = "the receiver's own secret"
    /// Longer than a lease, and than a stream waits that has failed now and then.
    private static let leap: Duration = .minutes(20)

    private let database: ConnectionPool
    private let directory: URL
    private let clock: URL
    private let notes: URL
    private let receiver: ChildProcess
    private var workers: [ChildProcess] = []
    /// How far the clock is ahead of the real one.
    private var lead: Duration = .zero

    init(database: ConnectionPool, directory: URL) throws {
      self.database = database
      self.directory = directory
      clock = directory.appending(path: "clock")
      notes = directory.appending(path: "notes")
      let program = directory.appending(path: "receiver.py")
      let resource = try #require(
        Bundle.module.url(forResource: "receiver", withExtension: "py", subdirectory: "Resources"))
      try FileManager.default.copyItem(at: resource, to: program)
      try WebhookArticle.writePythonExample(into: directory)
      try Data().write(to: notes)
      try "\(Timestamp.now.milliseconds)".write(to: clock, atomically: true, encoding: .utf8)
      receiver = try ChildProcess(
        URL(filePath: "/usr/bin/env"),
        ["python3"] + [program.path(percentEncoded: false), Self.secret]
          + [notes, clock].map { $0.path(percentEncoded: false) },
        in: directory)
    }

    func stop() async {
      for worker in workers { await worker.kill() }
      await receiver.kill()
    }

    func run(seed: UInt64) async throws {
      try await until("the receiver listens") { Int(line: receiver.output) != nil }
      workers = [try startWorker(), try startWorker()]
      try await until("webhooks are on") {
        try await Ledger(database: database).webhooks.webhookStatus().isOn
      }
      try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask { try await self.write(seed: seed) }
        for kill in 1...KilledPusherTests.kills {
          // While there is something on its way.
          let count = KilledPusherTests.events * kill / (KilledPusherTests.kills + 2)
          try await until("\(count) events have arrived") { try noted().count >= count }
          await workers[kill % 2].kill()
          // The leases of who was killed are over.
          lead += Self.leap
          workers[kill % 2] = try startWorker()
        }
        try await group.waitForAll()
      }
      try await until("everything is delivered", leapingEach: .seconds(3)) {
        let isPushed = try await database.query(
          "SELECT pushed_to = \(KilledPusherTests.events) FROM tenure.feed"
        ).decodeOnly(Bool?.self)
        let status = try await Ledger(database: database).webhooks.webhookStatus()
        return isPushed == true && status.waiting + status.parked == 0
      }
      try await check()
    }

    private func startWorker() throws -> ChildProcess {
      try ChildProcess(
        try TenureProgram.executable, ["work"],
        environment: [
          "DATABASE_URL": database.uri, "TENURE_BUNDLE_IDS": "com.example.app",
          "TENURE_LOG_LEVEL": "error", "TENURE_CLOCK_FILE": clock.path(percentEncoded: false),
          "TENURE_WEBHOOK_URL": "http://127.0.0.1:\(Int(line: receiver.output) ?? 0)/events",
          // One takes the other's place: the receiver has the old one still.
          "TENURE_WEBHOOK_SECRET": "the receiver's next secret,\(Self.secret)",
          "TENURE_WEBHOOK_ALLOW_PRIVATE": "on",
        ], in: directory)
    }

    /// Lets the clock go on.
    private func tick() throws {
      try "\((Timestamp.now + lead).milliseconds)"
        .write(to: clock, atomically: true, encoding: .utf8)
    }

    /// Writes events from several sides at once, as recordings do: a writer of events of an
    /// account has locked it.
    private func write(seed: UInt64) async throws {
      let ledger = Ledger(database: database)
      var keys: [AccountKey] = []
      for number in 0..<KilledPusherTests.accounts {
        keys.append(
          try await ledger.accounts.findOrCreateAccount("account \(number)", at: .now).key)
      }
      try await withThrowingTaskGroup(of: Void.self) { group in
        let writers = 6
        for writer in 0..<writers {
          group.addTask { [database, keys] in
            var random = SplitMix64(seed: seed &+ UInt64(writer))
            for _ in 0..<KilledPusherTests.events / writers {
              let key = keys.randomElement(using: &random)
              // Some concern an unclaimed charge.
              let account = Int.random(in: 0..<10, using: &random) == 0 ? nil : key
              let line = Int.random(in: 1...3, using: &random)
              let data =
                #"{"environment":"production","original_transaction_id":"\#(line)"}"#
              try await database.withTransaction { transaction in
                try await transaction.commit(with: [
                  "SELECT 1 FROM tenure.account_by_key WHERE account_key = \(account) FOR NO KEY UPDATE",
                  """
                  INSERT INTO tenure.event (type, occurred_at, account_key, data)
                  VALUES ('transaction.recorded', now(), \(account), convert_to(\(data), 'UTF8'))
                  """,
                  "NOTIFY tenure_events",
                ])
              }
            }
          }
        }
        try await group.waitForAll()
      }
    }

    /// The receiver's notes, in order; it may still be writing the last one.
    private func noted() throws -> [Note] {
      try String(contentsOf: notes, encoding: .utf8).split(separator: "\n").compactMap {
        try? JSONDecoder().decode(Note.self, from: Data($0.utf8))
      }
    }

    private struct Note: Decodable {
      let id: String
      let accountID: String?

      enum CodingKeys: String, CodingKey {
        case id
        case accountID = "account_id"
      }
    }

    /// Compares the first deliveries of each account with the feed.
    private func check() async throws {
      let feed = try await database.query(
        """
        SELECT e.event_id, coalesce(a.account_id, convert_from(e.data, 'UTF8'))
        FROM tenure.event AS e
        LEFT JOIN tenure.account_by_key AS a ON a.account_key = e.account_key
        ORDER BY e.position
        """
      ).decode(Int64.self, String.self)
      #expect(feed.count == KilledPusherTests.events)
      let streams = Dictionary(uniqueKeysWithValues: feed.map { ("\($0)", $1) })
      var (seen, received) = (Set<String>(), [String: [String]]())
      let noted = try noted()
      for note in noted where seen.insert(note.id).inserted {
        let stream = try #require(streams[note.id])
        if let account = note.accountID { #expect(account == stream) }
        received[stream, default: []].append(note.id)
      }
      for (stream, events) in Dictionary(grouping: feed, by: { $0.1 }) {
        #expect(received[stream] == events.map { "\($0.0)" }, "\(stream)")
      }
      // The receiver has broken after noting some: those came twice.
      #expect(noted.count > seen.count)
    }

    private func until(
      _ what: String, leapingEach interval: Duration = .seconds(60),
      _ isSo: () async throws -> Bool
    ) async throws {
      var nextLeap = ContinuousClock.now + interval
      let end = ContinuousClock.now + .seconds(240)
      while try await !isSo() {
        guard ContinuousClock.now < end else {
          throw NotHappened(what: what, errors: (workers + [receiver]).map(\.errors))
        }
        if ContinuousClock.now >= nextLeap {
          nextLeap += interval
          lead += Self.leap
        }
        try tick()
        try await Task.sleep(for: .milliseconds(20))
      }
    }

    private struct NotHappened: Error {
      let what: String
      let errors: [String]
    }
  }
}

extension Int {
  /// The number on the first line of a program's output; nil while it is not whole.
  fileprivate init?(line text: String) {
    guard let end = text.firstIndex(of: "\n") else { return nil }
    self.init(text[..<end])
  }
}
