import LedgerStorage
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Reports

/// A report as known at a moment never changes after that moment.
struct FrozenReportTests {
  /// Reports as known at a moment, with all their choices.
  private static func questions(
    _ story: RandomLedger, knownAt moment: Timestamp
  ) -> [(Report, ReportChoices)] {
    var story = story
    return Report.all.filter { $0.parameters.contains(.knownAt) }.flatMap { report in
      story.choices(of: report, at: moment).map { choices in
        var choices = choices
        choices.knownAt = moment
        choices.asOf = nil
        return (report, choices)
      }
    }
  }

  private static func answers(
    _ questions: [(Report, ReportChoices)], _ reports: ReportReader, at now: Timestamp
  ) async throws -> [[[ReportValue]]] {
    var answers: [[[ReportValue]]] = []
    for (report, choices) in questions {
      for listsItems in [false, true] {
        var choices = choices
        choices.listsItems = listsItems
        let table = try await reports.table(of: report, choices, at: now)
        answers.append(table.rowsThatSay.sorted { "\($0)" < "\($1)" })
      }
    }
    return answers
  }

  @Test(arguments: 0..<2)
  func `what was known then is said ever after, whatever becomes known`(life: Int) async throws {
    let seed = UInt64.random(in: .min ... .max)
    print("reports that are frozen: seed \(seed)")
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      var story = RandomLedger(seed)
      let plan = story
      let reports = ReportReader(database: database)
      var then: (moment: Timestamp, answers: [[[ReportValue]]])?
      let now = try await story.happen(in: ledger, database) { moment in
        let answers = try await Self.answers(
          Self.questions(plan, knownAt: moment), reports, at: moment)
        then = (moment, answers)
      }
      let (moment, before) = try #require(then)
      let questions = Self.questions(plan, knownAt: moment)
      let after = try await Self.answers(questions, reports, at: now)
      // The definition excepts these orders.
      let reopened = try await database.query(
        "SELECT 1 FROM tenure.event WHERE type = 'order.reopened' AND occurred_at > \(moment)")
      for (index, (was, becomes)) in zip(before, after).enumerated() {
        let (report, choices) = questions[index / 2]
        if report == .orders, !reopened.isEmpty { continue }
        #expect(
          was == becomes,
          "\(report), \(index % 2 == 0 ? "numbers" : "items"), \(choices), seed \(seed)")
      }
      #expect(before.count(where: { !$0.isEmpty }) > before.count / 3, "seed \(seed)")
    }
  }

  @Test(arguments: [RandomLedger.usualStart, RandomLedger.futureStart])
  func `what is known at this moment is what is known now`(start: Timestamp) async throws {
    let seed = UInt64.random(in: .min ... .max)
    print("reports as known at this moment: seed \(seed)")
    try await withScratchDatabase { database in
      let ledger = Ledger(database: database)
      var story = RandomLedger(seed, from: start)
      let now = try await story.happen(in: ledger, database)
      let reports = ReportReader(database: database)
      let known = Self.questions(story, knownAt: now)
      let usual = known.map { question in
        var choices = question.1
        choices.knownAt = nil
        choices.asOf = now
        return (question.0, choices)
      }
      let (said, says) = (
        try await Self.answers(known, reports, at: now),
        try await Self.answers(usual, reports, at: now)
      )
      for (index, (was, becomes)) in zip(said, says).enumerated() {
        #expect(was == becomes, "\(known[index / 2]), seed \(seed)")
      }
    }
  }

  @Test func `a product that renews as itself says nothing about another product's charge`()
    async throws
  {
    try await withScratchDatabase { database in
      try await database.runScript(
        """
        INSERT INTO tenure.original_transaction (environment, original_transaction_id,
          auto_renew_product_id)
        VALUES ('production', '1', 'month')
        """)
      for (product, isNow, expected) in [
        ("month", true, "month"), ("month", false, nil), ("quarter", true, nil),
        ("quarter", false, nil),
      ] {
        let renewsAs = try await database.query(
          """
          SELECT renews_as FROM tenure.renews_as('production', '1', '1', \(product), now(),
            \(isNow), now(), now())
          """
        ).decodeOnly(String?.self)
        #expect(renewsAs == expected, "\(product), \(isNow)")
      }
    }
  }
}
