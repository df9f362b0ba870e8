import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Reports

/// The reports on a ledger with results worked out by hand.
struct SampleReportTests {
  private static let now = Timestamp(CalendarDate(year: 2026, month: 4, day: 15)) + .hours(12)

  /// A question to the database, and the lines of its answer.
  private struct Sample {
    var title: String
    var question: String
    var answer: [String]
  }

  private static func file(_ name: String) throws -> String {
    let url = try #require(
      Bundle.module.url(forResource: name, withExtension: "sql", subdirectory: "Samples"))
    return try String(contentsOf: url, encoding: .utf8)
  }

  private static func samples() throws -> [Sample] {
    let mark = "--= "
    return try file("answers").components(separatedBy: "\n\n").dropFirst().map { block in
      let lines = block.split(separator: "\n").map(String.init)
      let question = lines.dropFirst().filter { !$0.hasPrefix("--") }.joined(separator: " ")
      return Sample(
        title: lines[0], question: String(question.dropLast()),
        answer: lines.filter { $0.hasPrefix(mark) }.map { String($0.dropFirst(mark.count)) })
    }
  }

  private func withSamples(
    _ test: @Sendable (ReportReader, ConnectionPool) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      try await database.runScript(try Self.file("ledger"))
      try await test(ReportReader(database: database), database)
    }
  }

  @Test func `each report says what was worked out`() async throws {
    try await withSamples { _, database in
      let samples = try Self.samples()
      #expect(samples.count > 40)
      for sample in samples {
        let answer = try await database.withTransaction { transaction in
          _ = try await transaction.execute("SET LOCAL TimeZone = 'UTC'")
          return try await transaction.query(
            """
            SELECT (SELECT string_agg(coalesce(value, ''), '|' ORDER BY place)
              FROM json_each_text(row_to_json(r)) WITH ORDINALITY AS e (name, value, place))
            FROM (\(unescaped: sample.question)) AS r
            """
          ).decode(String.self)
        }
        #expect(answer == sample.answer, "\(sample.title)")
      }
    }
  }

  @Test func `the sums by the day say the same as the movements`() async throws {
    try await withSamples { reports, _ in
      // The edges are in the sandbox, in the year before.
      let ledgers: [(Subscriptions.Environment, Int)] = [(.production, 2026), (.sandbox, 2025)]
      // Of intake there are no such sums.
      for report in Report.all
      where report != .intake && report.parameters.contains(.timeZone) {
        for (buckets, (environment, year)) in ReportChoices.Bucket.allCases.flatMap({ buckets in
          ledgers.map { (buckets, $0) }
        }) {
          var choices = ReportChoices()
          choices.environment = environment
          choices.from = CalendarDate(year: year, month: 1, day: 1)
          choices.bucket = report.parameters.contains(.bucket) ? buckets : nil
          if buckets == .week, report.segmentations.contains(.periodType) {
            choices.by = .periodType
          }
          let sums = try await reports.table(of: report, choices, at: Self.now)
          choices.timeZone = "Etc/UTC"
          let movements = try await reports.table(of: report, choices, at: Self.now)
          #expect(sums.rows == movements.rows, "\(report)")
          #expect(!sums.rows.isEmpty || environment == .sandbox, "\(report)")
        }
      }
    }
  }

  @Test func `a column's items add up to it`() async throws {
    try await withSamples { reports, _ in
      var choices = ReportChoices()
      choices.from = CalendarDate(year: 2026, month: 3, day: 1)
      choices.to = CalendarDate(year: 2026, month: 3, day: 31)
      let numbers = try await reports.table(of: .churn, choices, at: Self.now)
      choices.listsItems = true
      choices.column = "expired"
      let items = try await reports.table(of: .churn, choices, at: Self.now)
      #expect(numbers.value("expired") == .number(1))
      #expect(items.rows.count == 1)
      #expect(items.value("original_transaction_id") == .text("s4"))
    }
  }

  @Test func `a subscription is listed with the owner of its latest charge by then`() async throws {
    try await withSamples { _, database in
      // The third month of s1, which began with account a.
      _ = try await database.execute(
        """
        UPDATE tenure.movement SET account_key = '00000000-0000-0000-0000-00000000000b'
        WHERE kind = 'charged' AND transaction_id = 't13'
        """)
      for (question, owner) in [
        ("report_active_item('2026-02-01', as_of => '2026-03-05Z') WHERE measure = 'active'", "a"),
        ("report_active_item('2026-02-01', as_of => '2026-03-20Z') WHERE measure = 'active'", "b"),
        (
          "report_active_item('2026-02-01', known_at => '2026-03-12Z') WHERE measure = 'active'",
          nil
        ),
        ("report_active_item('2026-02-01', '2026-03-09') WHERE measure = 'active'", "a"),
        ("report_mrr_item('2026-02-01', as_of => '2026-03-20Z') WHERE measure = 'mrr'", "b"),
        ("report_churn_item('2026-03-10', bucket => 'day') WHERE measure = 'active_at_start'", "a"),
        ("report_churn_item('2026-03-11', bucket => 'day') WHERE measure = 'active_at_start'", "b"),
        ("report_subscriptions_item(as_of => '2026-03-20Z') WHERE true", "b"),
      ] {
        let owners = try await database.query(
          """
          SELECT account_id FROM tenure.\(unescaped: question) AND original_transaction_id = 's1'
          """
        ).decode(String?.self)
        #expect(owners == (owner.map { [$0] } ?? []), "\(question)")
      }
    }
  }

  @Test func `people see money with its currency and parts as percent`() async throws {
    try await withSamples { reports, _ in
      var choices = ReportChoices()
      choices.from = CalendarDate(year: 2026, month: 3, day: 1)
      choices.to = CalendarDate(year: 2026, month: 3, day: 31)
      let revenue = try await reports.table(of: .revenue, choices, at: Self.now).text(.table)
      #expect(revenue.contains("80.97 EUR"))
      #expect(revenue.contains("-10.99 EUR"))
      #expect(revenue.contains("12.48 USD"))
      let churn = try await reports.table(of: .churn, choices, at: Self.now)
      #expect(churn.text(.table).contains("40.00 %"))
      #expect(churn.text(.json).contains(#""churn_rate":0.400000"#))
      #expect(
        churn.text(.csv).contains("2026-03-01,2026-03-31,false,,5,0,0,1,0,0,1,1,2,0,0.400000"))
    }
  }

  @Test func `a row is partial while its last day is not over`() async throws {
    // The moment is at noon in UTC, and already on the next day in Kiritimati.
    let cases: [(Report, String, @Sendable (inout ReportChoices) -> Void, [Bool])] = [
      (.churn, "the month of the moment", { _ in }, [false, true]),
      (.churn, "days that were chosen", { $0.to = day(2026, 4, 14) }, [false, false]),
      (.churn, "the day of the moment", { $0.to = day(2026, 4, 15) }, [false, true]),
      (
        .churn, "the next day elsewhere",
        { ($0.to, $0.timeZone) = (day(2026, 4, 15), "Pacific/Kiritimati") }, [false, false]
      ),
      (
        .churn, "as of then",
        { $0.asOf = Timestamp(day(2026, 3, 31)) + .hours(23) }, [true]
      ),
      (
        .churn, "as known then",
        { $0.knownAt = Timestamp(day(2026, 4, 1)) }, [false, true]
      ),
      (
        .churn, "as known at the end of a day",
        { $0.knownAt = Timestamp(day(2026, 4, 1)) - .milliseconds(1) }, [false]
      ),
      (.retention, "the last period", { $0.to = day(2026, 3, 31) }, [false, true]),
    ]
    try await withSamples { reports, _ in
      for (report, title, choose, isPartial) in cases {
        var choices = ReportChoices()
        choices.from = day(2026, 3, 1)
        choose(&choices)
        let table = try await reports.table(of: report, choices, at: Self.now)
        let found = table.rows.indices.map { table.value("is_partial", inRow: $0) }
        #expect(found == isPartial.map { .flag($0) }, "\(title)")
        choices.listsItems = true
        #expect(!report.columns(choices).contains(.isPartial))
      }
    }
  }

  @Test func `columns and choices are those of the functions`() async throws {
    try await withScratchDatabase { database in
      let functions = try await database.query(
        """
        SELECT proname::text, array_to_string(proargnames, ','),
          array_to_string(proargmodes, ','), obj_description(oid, 'pg_proc')
        FROM pg_proc
        WHERE pronamespace = 'tenure'::regnamespace AND starts_with(proname, 'report_')
        ORDER BY proname
        """
      ).decode(String.self, String.self, String.self, String?.self)
      var seen: Set<String> = []
      for (name, names, modes, comment) in functions {
        let arguments = zip(names.split(separator: ","), modes.split(separator: ","))
        let inputs = Set(arguments.filter { $0.1 == "i" }.map { String($0.0) })
        let outputs = arguments.filter { $0.1 == "t" }.map { String($0.0) }
        let report = try #require(
          Report.all.first { name == $0.relation || name == $0.relation + "_item" }, "\(name)")
        let isOfItems = name != report.relation
        let parameters = report.arguments(ofItems: isOfItems)
        #expect(inputs == Set(parameters.map(\.argument)), "\(name)")
        #expect(Set(parameters).isSubset(of: report.parameters), "\(name)")
        var choices = ReportChoices()
        choices.listsItems = isOfItems
        // The statement adds this one.
        let columns = report.columns(choices).filter { $0 != .isPartial }
        #expect(columns.map(\.name) == outputs, "\(name)")
        #expect(comment?.isEmpty == false, "\(name)")
        for column in report.drillDown.columns.keys
        where !isOfItems && report.drillDown.rowColumn == nil {
          #expect(outputs.contains(column), "\(name).\(column)")
        }
        seen.insert(name)
      }
      #expect(seen.count == (Report.all.count - 1) * 2)
      #expect(
        Set(try await ReportReader(database: database).definitions().keys)
          == Set(Report.all))
    }
  }

  @Test func `a role that may read reports may call them`() async throws {
    try await withSamples { _, database in
      for (report, listsItems) in Report.all.flatMap({ [($0, false), ($0, true)] }) {
        var choices = ReportChoices()
        choices.listsItems = listsItems
        let question = report.query(choices, rows: 10, at: Self.now)
        let found = try await database.withTransaction { transaction in
          _ = try await transaction.execute(
            "SET LOCAL ROLE \(unescaped: ScratchPlace.environment.reader)")
          return try await transaction.query(question).count
        }
        #expect(found > 0 || report == .intake, "\(report), items: \(listsItems)")
      }
    }
  }

  @Test func `a rate that comes later changes nothing that was known before`() async throws {
    try await withSamples { reports, database in
      let known = Timestamp(day(2026, 4, 15)) + .hours(12)
      func answers(knownAt: Timestamp?) async throws -> [[[ReportValue]]] {
        var answers: [[[ReportValue]]] = []
        for report in [Report.mrr, .revenue, .lifetimeValue] {
          var choices = ReportChoices()
          (choices.from, choices.to) = (day(2026, 2, 1), day(2026, 4, 15))
          choices.reportingCurrency = "EUR"
          (choices.knownAt, choices.asOf) = (knownAt, known)
          answers.append(try await reports.table(of: report, choices, at: known).rows)
        }
        return answers
      }
      for recordedAt in ["2026-04-01Z", "2026-05-01Z"] {
        // Known at that moment, or later: then they are the first that were.
        try await database.execute(
          "UPDATE tenure.exchange_rate SET recorded_at = \(recordedAt)::timestamptz")
        let (then, now) = (try await answers(knownAt: known), try await answers(knownAt: nil))
        try await database.runScript(
          """
          INSERT INTO tenure.exchange_rate (reporting_currency, currency, valid_from, rate)
          VALUES ('EUR', 'USD', '2026-01-01', 0.8), ('EUR', 'USD', '2026-02-15', 0.7);
          """)
        #expect(try await answers(knownAt: known) == then, "recorded at \(recordedAt)")
        #expect(try await answers(knownAt: nil) != now)
        try await database.execute("DELETE FROM tenure.exchange_rate WHERE rate IN (0.7, 0.8)")
      }
    }
  }

  @Test func `a choice that cannot be is refused`() {
    func fault(_ change: (inout ReportChoices) -> Void) -> ReportParameter? {
      var choices = ReportChoices()
      change(&choices)
      return #expect(throws: ReportFault.self) { try choices.check(for: .churn) }?.parameter
    }
    #expect(fault { ($0.from, $0.to) = (day(2026, 3, 2), day(2026, 3, 1)) } == .from)
    #expect(fault { ($0.from, $0.to) = (day(1, 1, 1), day(2026, 3, 1)) } == .from)
    #expect(fault { $0.product = "" } == .product)
    #expect(fault { $0.reportingCurrency = "EURO" } == .reportingCurrency)
    #expect(fault { $0.column = "expired" } == .column)
    #expect(fault { ($0.listsItems, $0.column) = (true, "weather") } == .column)
  }

  @Test func `days without a last one end with the moment, and are not too many either`() {
    func isRefused(_ change: (inout ReportChoices) -> Void) -> Bool {
      var choices = ReportChoices()
      change(&choices)
      do {
        try choices.checkRange(at: Self.now)
        return false
      } catch {
        return error.parameter == .from
      }
    }
    let centuries = Timestamp(day(2999, 1, 1))
    #expect(!isRefused { $0.from = day(1927, 1, 1) })
    #expect(isRefused { $0.from = day(1, 1, 1) })
    #expect(isRefused { ($0.from, $0.asOf) = (day(2026, 1, 1), centuries) })
    #expect(!isRefused { ($0.from, $0.asOf, $0.knownAt) = (day(2026, 1, 1), centuries, Self.now) })
    #expect(
      !isRefused { ($0.from, $0.to, $0.asOf) = (day(2026, 1, 1), day(2026, 1, 2), centuries) })
    #expect(!isRefused { ($0.from, $0.to) = (day(2026, 1, 1), day(2999, 1, 1)) })
    #expect(!isRefused { $0.asOf = centuries })
  }

  @Test(arguments: [
    ("2026-02-28", true), ("2024-02-29", true), ("2026-02-29", false), ("2026-2-1", false),
    ("2026-02-01T", false), ("20260201", false), ("", false),
  ])
  func `a day is written as ISO 8601 has it`(text: String, isDay: Bool) {
    #expect((CalendarDate(iso8601: text) != nil) == isDay)
    if isDay { #expect(CalendarDate(iso8601: text)?.text == text) }
  }
}

private func day(_ year: Int, _ month: Int, _ day: Int) -> CalendarDate {
  CalendarDate(year: year, month: month, day: day)
}

extension ReportTable {
  /// A value of the first row.
  fileprivate func value(_ name: String) -> ReportValue? {
    columns.firstIndex { $0.name == name }.flatMap { rows.first?[$0] }
  }
}
