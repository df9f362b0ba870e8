import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import JSONText
import Postgres
import ScratchDatabases
import Subscriptions
import Synchronization
import Testing

@testable import HTTPAPI
@testable import LedgerStorage

/// A newer program's `tenure migrate` goes unnoticed by callers until the schema no longer supports
/// this program.
struct SchemaUpgradeTests {
  private static let current = SchemaMigrator.currentVersion

  /// The answer of `/readyz` after a check that ended in time, which a busy machine may delay.
  private static func ready(_ api: TestAPI) async throws -> Answer {
    while true {
      let answer = try await api.get("/readyz", as: .anonymous)
      if answer["detail"]?.string?.contains("took longer than") != true { return answer }
    }
  }

  /// Buys, submits and reads again and again, until stopped.
  private static func live(_ name: String, on api: TestAPI, _ laps: Laps) async throws {
    try api.addCustomer(name)
    while !laps.isOver {
      try api.apple.simulation.buy("coins.100", on: DeviceID(name))
      let submitted = try await api.submit(name, from: name)
      #expect(submitted.status == 200, "\(submitted)")
      let read = try await api.get("/v1/accounts/\(name)/entitlements")
      #expect(read.status == 200, "\(read)")
      let ready = try await ready(api)
      #expect(ready.status == 200, "\(ready)")
      laps.add()
    }
  }

  /// The number of completed rounds of buying, submitting and reading, and whether it is enough.
  private final class Laps: Sendable {
    private let state = Mutex((count: 0, isOver: false))

    var count: Int { state.withLock(\.count) }
    var isOver: Bool { state.withLock(\.isOver) }
    func add() { state.withLock { $0.count += 1 } }
    func end() { state.withLock { $0.isOver = true } }

    /// Waits until so many more were counted, or it is enough.
    func more(_ count: Int) async throws {
      let end = self.count + count
      while self.count < end, !isOver { try await Task.sleep(for: .milliseconds(5)) }
    }
  }

  @Test func `while the schema is brought further every request is answered`() async throws {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      let laps = Laps()
      try await withThrowingTaskGroup(of: Void.self) { group in
        for name in ["anna", "ben", "cora"] {
          group.addTask {
            // A failed round is not waited for.
            defer { laps.end() }
            try await Self.live(name, on: api, laps)
          }
        }
        defer { laps.end() }
        try await laps.more(6)
        let migrator = SchemaMigrator(
          database: api.database, logger: quietLogger, steps: [.sample],
          patience: .init(lock: .milliseconds(200), pause: .milliseconds(20)))
        #expect(try await migrator.migrate() == Self.current)
        try await laps.more(6)
        laps.end()
        try await group.waitForAll()
      }
      let state = try await SchemaMigrator(database: api.database, logger: quietLogger).check()
      #expect(state == .ahead(version: Self.current + 1))

      // Once this version is replaced everywhere, the next release drops its columns.
      let contraction = SchemaStep(
        version: Self.current + 2, sql: "ALTER TABLE tenure.submission DROP COLUMN rehearsals")
      _ = try await SchemaMigrator(
        database: api.database, logger: quietLogger, steps: [.sample, contraction]
      ).migrate()
      let answer = try await Self.ready(api)
      #expect(answer.status == 503)
      #expect(answer["detail"]?.string?.contains("version \(Self.current + 2)") == true)
      #expect(answer["detail"]?.string?.contains("update Tenure") == true)
      #expect(try await api.get("/healthz", as: .anonymous).status == 200)
    }
  }
}
