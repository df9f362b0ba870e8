import LedgerStorage
import ScratchDatabases
import Subscriptions
import Testing

@testable import Reports

/// The items behind the counts of the ownership report.
struct OwnershipItemTests {
  @Test func `an override shows administrator and reason, and every entry its date`() async throws {
    let seed = UInt64.random(in: .min ... .max)
    print("who placed what: seed \(seed)")
    try await withScratchDatabase { database in
      var story = RandomLedger(seed)
      let now = try await story.happen(in: Ledger(database: database), database)
      var choices = ReportChoices()
      choices.from = CalendarDate(year: 2025, month: 12, day: 1)
      choices.includesFamilyShared = true
      choices.listsItems = true
      for knownAt in [nil, now] {
        choices.knownAt = knownAt
        let items = try await ReportReader(database: database).table(
          of: .ownership, choices, at: now)
        var placed = 0
        for index in items.rows.indices {
          let isPlaced = items.value("rule", inRow: index) == .text("administrator")
          placed += isPlaced ? 1 : 0
          let who: [ReportValue] =
            isPlaced ? [.text("ops"), .text("They asked for it.")] : [.none, .none]
          #expect(
            ["administrator", "reason"].map { items.value($0, inRow: index) } == who,
            "\(items.rows[index]), seed \(seed)")
          let decidedAt = items.value("decided_at", inRow: index)
          #expect(decidedAt != ReportValue.none, "\(items.rows[index]), seed \(seed)")
          if items.value("measure", inRow: index) == .text("decided") {
            #expect(decidedAt == items.value("at", inRow: index), "seed \(seed)")
          }
        }
        #expect(placed > 0, "seed \(seed)")
      }
    }
  }
}
