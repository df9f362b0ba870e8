import Foundation
import LedgerStorage
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Reports

/// The past weeks of the overview equal the reports of those weeks.
struct PastWeeksTests {
  private static let now = Timestamp(CalendarDate(year: 2026, month: 4, day: 15)) + .hours(12)

  private func withSamples(
    _ test: @Sendable (ReportReader, ConnectionPool) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      let url = try #require(
        Bundle.module.url(forResource: "ledger", withExtension: "sql", subdirectory: "Samples"))
      try await database.runScript(try String(contentsOf: url, encoding: .utf8))
      try await test(ReportReader(database: database), database)
    }
  }

  /// The numbers of each week, by how many weeks ago it was.
  private func weeks(
    _ weeks: PastWeeks, _ reports: ReportReader, at now: Timestamp
  ) async throws -> [Int64: Int64] {
    let table = try await reports.pastWeeks(of: weeks, at: now)
    return table.rows.reduce(into: [:]) { found, row in
      if case (.number(let ago), .number(let number)) = (row[0], row[2]) { found[ago] = number }
    }
  }

  /// How many were due within seven days, by the report as of then; none is left out.
  private func due(_ reports: ReportReader, before now: Timestamp) async throws -> [Int64: Int64] {
    var due: [Int64: Int64] = [:]
    for ago in 1..<PastWeeks.count {
      var choices = ReportChoices()
      choices.days = 7
      choices.asOf = now - .days(7 * ago)
      let table = try await reports.table(of: .renewalsDue, choices, at: now)
      for index in table.rows.indices {
        guard case .number(let number)? = table.value("number", inRow: index) else { continue }
        due[Int64(ago), default: 0] += number
      }
    }
    return due
  }

  @Test func `what was due is what was known to be due at that moment`() async throws {
    try await withSamples { reports, database in
      // s1 on 10 March (that it renewed was known later) and s4 on the 5th; s4 on 5 February.
      #expect(try await weeks(.renewalsDue, reports, at: Self.now) == [6: 2, 10: 1])
      #expect(try await due(reports, before: Self.now) == [6: 2, 10: 1])
      // At the first and the last moment of the week that began on 8 April at noon; renewed before
      // it was due; set not to renew; of the family; and not known yet.
      try await database.runScript(
        """
        INSERT INTO tenure.movement (environment, original_transaction_id, kind, at,
          transaction_id, charge_original_transaction_id, product_id, cause, number,
          ownership_type, period_type, quantity, known_from)
        SELECT 'production', line, 'state', at, 't', line, 'month', cause, number, ownership,
          'normal', 1, known
        FROM (VALUES
          ('w1', timestamptz '2026-04-08 12:00:00.001Z', 'active_renewing', -1, 'purchased',
            timestamptz '2026-04-08 12:00Z'),
          ('w2', '2026-04-15 12:00Z', 'active_renewing', -1, 'purchased', '2026-03-15 12:00Z'),
          ('w3', '2026-04-08 12:00Z', 'active_renewing', -1, 'purchased', '2026-04-01 11:00Z'),
          ('w4', '2026-04-10 12:00Z', 'active_renewing', -1, 'purchased', '2026-03-10 12:00Z'),
          ('w4', '2026-04-10 12:00Z', 'active_cancelled', 1, 'purchased', '2026-04-08 11:00Z'),
          ('w5', '2026-04-10 12:00Z', 'active_cancelled', -1, 'purchased', '2026-03-10 12:00Z'),
          ('w6', '2026-04-10 12:00Z', 'active_renewing', -1, 'family_shared',
            '2026-03-10 12:00Z'),
          ('w7', '2026-04-10 12:00Z', 'active_renewing', -1, 'purchased',
            '2026-04-08 12:00:00.001Z')
        ) AS t (line, at, cause, number, ownership, known)
        """)
      let expected: [Int64: Int64] = [1: 2, 2: 1, 6: 2, 10: 1]
      #expect(try await weeks(.renewalsDue, reports, at: Self.now) == expected)
      #expect(try await due(reports, before: Self.now) == expected)
    }
  }

  @Test func `of a ledger of any life they say what the reports say`() async throws {
    let seed = UInt64.random(in: .min ... .max)
    print("past weeks: seed \(seed)")
    try await withScratchDatabase { database in
      var story = RandomLedger(seed)
      let now = try await story.happen(in: Ledger(database: database), database)
      let reports = ReportReader(database: database)
      let known = try await due(reports, before: now)
      #expect(try await weeks(.renewalsDue, reports, at: now) == known, "seed \(seed)")
    }
  }
}
