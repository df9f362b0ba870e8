import LedgerStorage
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Reports

/// The daily sums equal those of the underlying movements.
struct SumTests {
  @Test(arguments: 0..<2)
  func `sums equal their parts, rolled up or not`(life: Int) async throws {
    let seed = UInt64.random(in: .min ... .max)
    print("sums and what they are sums of: seed \(seed)")
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      var story = RandomLedger(seed)
      let now = try await story.happen(in: ledger, database)
      let reports = ReportReader(database: database)
      // Of intake there are no sums.
      let dated = Report.all.filter { $0 != .intake && $0.parameters.contains(.timeZone) }
      let questions = dated.flatMap { report in
        story.choices(of: report, at: now).filter { $0.knownAt == nil }.map { choices in
          var choices = choices
          choices.timeZone = ReportChoices.utc
          return (report, choices)
        }
      }
      let rolledUp = try await changes(in: database)
      #expect(rolledUp.summed > 0 && rolledUp.waiting > 0, "seed \(seed)")
      var answers: [ReportTable] = []
      for (report, choices) in questions {
        var slow = choices
        // The days are the same, and no sums are kept by them.
        slow.timeZone = "Etc/UTC"
        let sums = try await reports.table(of: report, choices, at: now)
        let counted = try await reports.table(of: report, slow, at: now)
        #expect(
          sums.rowsThatSay == counted.rowsThatSay, "\(report), \(choices), seed \(seed)")
        answers.append(sums)
      }
      #expect(answers.contains { !$0.rows.isEmpty })

      try await RandomLedger.rollUp(in: ledger, at: now)
      #expect(try await changes(in: database).waiting == 0)
      for ((report, choices), answer) in zip(questions, answers) {
        let again = try await reports.table(of: report, choices, at: now)
        #expect(
          again.rowsThatSay == answer.rowsThatSay, "\(report), \(choices), seed \(seed)")
      }
      #expect(try await ledger.auditor.audit().differences == [], "seed \(seed)")
    }
  }

  @Test(
    arguments: [
      "DELETE FROM tenure.movement_change",
      "UPDATE tenure.movement_day SET number = number + 1 WHERE basis = 'decided'",
    ])
  func `an audit finds wrong sums, and a rebuild repairs them`(statement: String) async throws {
    let seed = UInt64.random(in: .min ... .max)
    print("wrong sums: seed \(seed)")
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      var story = RandomLedger(seed)
      _ = try await story.happen(in: ledger, database)
      try await database.runScript(statement)
      #expect(Set(try await ledger.auditor.audit().differences.map(\.kind)) == [.projection])
      _ = try await ledger.auditor.rebuild()
      #expect(try await ledger.auditor.audit().differences == [], "seed \(seed)")
    }
  }

  /// How many sums there are, and how many changes are still to be added to them.
  private func changes(in database: ConnectionPool) async throws -> (summed: Int, waiting: Int) {
    try await database.query(
      """
      SELECT (SELECT count(*) FROM tenure.movement_day),
        (SELECT count(*) FROM tenure.movement_change)
      """
    ).decodeOnly(Int.self, Int.self)
  }
}
