import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import Reports

/// The submissions and notifications that the intake report counts, and those it leaves out.
struct IntakeReportTests {
  private static let now = Timestamp(CalendarDate(year: 2026, month: 3, day: 31)) + .hours(12)

  /// Rows of every kind, with days before now.
  private static let story = """
    INSERT INTO tenure.submission (submission_id, account_key, received_at, restore, status,
      environment, decided_at, attempts, problem, problem_detail, apple_status, bundle_id)
    VALUES
      ('00000000-0000-0000-0000-000000000001', gen_random_uuid(), '2026-03-31 09:00Z', false,
        'pending', NULL, NULL, 7, 'apple_unavailable', 'Down since nine.', NULL, NULL),
      ('00000000-0000-0000-0000-000000000002', gen_random_uuid(), '2026-03-31 11:00Z', false,
        'pending', NULL, NULL, 2, 'apple_unavailable', 'Down since eleven.', NULL, NULL),
      ('00000000-0000-0000-0000-000000000003', gen_random_uuid(), '2026-03-31 11:30Z', false,
        'pending', NULL, NULL, 0, NULL, NULL, NULL, NULL),
      ('00000000-0000-0000-0000-000000000004', gen_random_uuid(), '2026-03-30 09:00Z', false,
        'rejected', NULL, '2026-03-30 09:00Z', 1, 'receipt_rejected', 'No.', 21003, 'com.a'),
      ('00000000-0000-0000-0000-000000000005', gen_random_uuid(), '2026-03-02 00:00Z', false,
        'rejected', NULL, '2026-03-02 00:00Z', 1, 'receipt_rejected', 'No.', 21003, 'com.a'),
      ('00000000-0000-0000-0000-000000000006', gen_random_uuid(), '2026-03-01 23:59Z', false,
        'rejected', NULL, '2026-03-01 23:59Z', 1, 'receipt_rejected', 'Old.', 21003, 'com.a'),
      ('00000000-0000-0000-0000-000000000007', gen_random_uuid(), '2026-03-30 09:00Z', false,
        'rejected', 'sandbox', '2026-03-30 09:00Z', 1, 'invalid_signature', 'No.', NULL, 'com.a');
    INSERT INTO tenure.job (kind, subject, queue, run_at, created_at, attempts)
    SELECT 'verify_submission', submission_id, 'submissions', 'infinity', received_at, attempts
    FROM tenure.submission WHERE status = 'pending';
    INSERT INTO tenure.submission_exchange (submission_id, number, endpoint, asked_at, duration_ms,
      http_status, fault)
    VALUES
      ('00000000-0000-0000-0000-000000000001', 1, 'https://a', '2026-03-31 09:00Z', 1, NULL,
        'Down.'),
      ('00000000-0000-0000-0000-000000000001', 2, 'https://a', '2026-03-31 09:01Z', 1, 503, NULL),
      ('00000000-0000-0000-0000-000000000001', 3, 'https://a', '2026-03-31 09:02Z', 1, 200, NULL);
    INSERT INTO tenure.notification (notification_id, version, received_at, body_sha256,
      processed_at, outcome, problem, notification_type, environment, bundle_id, signed_at, arrival, attempts)
    VALUES
      ('n1', 2, '2026-03-29 00:00Z', sha256('b'), '2026-03-29 00:00Z', 'recorded', NULL, 'DID_RENEW',
        'production', 'com.a', '2026-03-22 00:00Z', 'history', 1),
      ('n2', 2, '2026-03-29 00:00Z', sha256('b'), '2026-03-29 00:00Z', 'recorded', NULL, 'DID_RENEW',
        'production', 'com.a', '2026-03-28 00:00Z', 'history', 1),
      ('n3', 2, '2026-03-29 00:00Z', sha256('b'), '2026-03-29 00:00Z', 'recorded', NULL, 'REFUND',
        'production', 'com.a', '2026-03-28 00:00Z', 'delivered', 1),
      ('v1:4', 1, '2026-03-29 00:00Z', sha256('b'), '2026-03-29 00:00Z', 'rejected', 'A no.', 'CANCEL',
        'production', 'com.a', NULL, 'delivered', 1),
      ('v1:5', 1, '2026-03-31 11:59Z', sha256('b'), NULL, NULL, 'Apple waits.', 'CANCEL', 'production',
        'com.a', NULL, 'delivered', 3);
    INSERT INTO tenure.job (kind, subject, queue, run_at, created_at)
    VALUES ('process_notification', 'v1:5', 'notifications', 'infinity', now());
    INSERT INTO tenure.notification_refusal
    VALUES ('2026-03-31 08:00Z', 2, 'wrong_signature', 40, '2026-03-31 08:30Z', 'It is forged.', 9),
      ('2026-03-31 09:00Z', 2, 'wrong_signature', 2, '2026-03-31 09:30Z', 'Again.', 9);
    INSERT INTO tenure.notification_history_check (bundle_id, environment, window_start, window_end,
      compared_at, listed, missing, refused, first_missing_at, longest_delay_ms)
    VALUES ('com.a', 'production', '2026-03-22Z', '2026-03-29Z', '2026-03-29 00:01Z', 100, 2, 1,
      '2026-03-22 00:00Z', 604800000);
    INSERT INTO tenure.event (type, occurred_at, data)
    VALUES ('a', now(), '{}'), ('b', now(), '{}');
    INSERT INTO tenure.webhook_delivery (event_id, stream, position, attempts, due_since, parked_at,
      last_error)
    SELECT event_id, 'anna', event_id, 5, '2026-03-31 10:00Z',
      CASE type WHEN 'a' THEN timestamptz '2026-03-31 11:00Z' END, 'HTTP 500'
    FROM tenure.event;
    INSERT INTO tenure.job (kind, subject, queue, run_at, created_at, discarded_at, last_error)
    VALUES ('prune_events', 'all', 'maintenance', '2026-03-31 11:00Z', now(), NULL, NULL),
      -- Due by the database's clock, and not yet by the report's.
      ('roll_up_movements', 'all', 'maintenance', '2026-03-31 13:00Z', now(), NULL, NULL),
      ('poll_status', 'production/1', 'polls', now(), now(), '2026-03-31 11:00Z', 'Gave up.'),
      ('poll_status', 'production/2', 'polls', now() + interval '1 hour', now(), NULL, NULL),
      ('set_app_account_token', 'production/3', 'write_back', now() + interval '1 hour',
        '2026-03-31 11:00Z', NULL, 'Apple is in trouble.'),
      ('send_consumption', 'sandbox/n9', 'sandbox_write_back', now() + interval '1 hour', now(),
        NULL, NULL);
    INSERT INTO tenure.app_store_write_back (environment, original_transaction_id, kind, sent_at,
      bundle_id, transaction_id, notification_id, account_key, outcome, reason, http_status,
      error_code, delivery_status)
    VALUES
      ('production', '1', 'ownership', '2026-03-31 10:00Z', 'com.a', NULL, NULL,
        gen_random_uuid(), 'accepted', NULL, NULL, NULL, NULL),
      ('production', '2', 'ownership', '2026-03-30 10:00Z', 'com.a', NULL, NULL,
        gen_random_uuid(), 'accepted', NULL, NULL, NULL, NULL),
      ('production', '2', 'ownership', '2026-03-30 11:00Z', 'com.a', NULL, NULL,
        gen_random_uuid(), 'refused', NULL, 400, 4000185, NULL),
      ('production', '4', 'consumption', '2026-03-30 11:00Z', 'com.a', '5', 'n5', NULL, 'skipped',
        'unowned', NULL, NULL, NULL),
      ('production', '4', 'consumption', '2026-03-30 12:00Z', 'com.a', '5', 'n6',
        gen_random_uuid(), 'accepted', NULL, NULL, NULL, 'DELIVERED'),
      ('sandbox', '4', 'ownership', '2026-03-30 12:00Z', 'com.a', NULL, NULL, NULL, 'skipped',
        'turned_off', NULL, NULL, NULL),
      ('production', '6', 'ownership', '2026-02-01 12:00Z', 'com.a', NULL, NULL, NULL, 'skipped',
        'unowned', NULL, NULL, NULL);
    """

  private func withReports(
    _ test: @Sendable (ReportReader, ConnectionPool) async throws -> Void
  ) async throws {
    try await withScratchDatabase { database in
      try await test(ReportReader(database: database), database)
    }
  }

  /// Some columns of a table, each row as a line.
  private func lines(_ table: ReportTable, _ names: String...) -> [String] {
    let indices = names.compactMap { name in table.columns.firstIndex { $0.name == name } }
    return table.rows.map { row in
      indices.map { index in
        switch row[index] {
        case .text(let text): text
        case .number(let number), .duration(let number): "\(number)"
        case .time(let moment): "\(moment)"
        case .date(let text), .fraction(let text), .rate(let text): text
        case .money(let milliunits, _): "\(milliunits)"
        case .flag(let isSet): "\(isSet)"
        case .none: "-"
        }
      }.joined(separator: " | ")
    }
  }

  @Test func `nothing that happened is nothing to report`() async throws {
    try await withReports { reports, _ in
      let table = try await reports.table(of: .intake, at: Self.now)
      #expect(table.rows.isEmpty)
      #expect(table.text(.table) == "Nothing to report.\n")
      #expect(
        table.text(.json)
          == #"{"report":"intake","as_of":"2026-03-31T12:00:00.000Z","rows":[],"cut_short":false}"#
          + "\n")
    }
  }

  @Test func `each thing is counted where it belongs`() async throws {
    try await withReports { reports, database in
      try await database.runScript(Self.story)
      let table = try await reports.table(of: .intake, at: Self.now)
      #expect(
        lines(table, "measure", "environment", "cause", "number", "attempts", "last_detail") == [
          "apple_failures | - | Down. | 1 | 1 | https://a",
          "apple_failures | - | HTTP 503 | 1 | 1 | https://a",
          "deliveries_parked | - | HTTP 500 | 1 | 5 | anna",
          "deliveries_waiting | - | HTTP 500 | 1 | 5 | anna",
          "jobs_overdue | - | prune_events | 1 | 0 | -",
          "jobs_parked | - | poll_status | 1 | 0 | Gave up.",
          "notifications_listed | production | - | 100 | - | -",
          "notifications_missed | production | DID_RENEW | 2 | - | -",
          "notifications_open | production | Apple waits. | 1 | 3 | CANCEL",
          "notifications_refused | - | wrong_signature | 42 | - | Again.",
          "notifications_rejected | production | A no. | 1 | 1 | CANCEL",
          "notifications_unbelievable | production | - | 1 | - | -",
          "submissions_open | - | apple_unavailable | 2 | 9 | Down since eleven.",
          "submissions_open | - | - | 1 | 0 | -",
          "submissions_rejected | - | receipt_rejected 21003 | 2 | 2 | No.",
          "write_backs_accepted | production | ownership | 2 | - | -",
          "write_backs_accepted | production | consumption DELIVERED | 1 | - | 5",
          "write_backs_open | production | set_app_account_token | 1 | 0 | Apple is in trouble.",
          "write_backs_refused | production | ownership 4000185 | 1 | - | -",
          "write_backs_skipped | production | consumption unowned | 1 | - | 5",
        ])
      #expect(
        lines(table, "first_at", "last_at", "oldest_age_ms", "longest_delay_ms")[12]
          == "2026-03-31T09:00:00.000Z | 2026-03-31T11:00:00.000Z | 10800000 | -")
      #expect(
        lines(table, "first_at", "last_at", "oldest_age_ms", "longest_delay_ms")[7]
          == "2026-03-29T00:00:00.000Z | 2026-03-29T00:00:00.000Z | - | 604800000")
    }
  }

  @Test func `days, the sandbox and the number of rows can be chosen`() async throws {
    try await withReports { reports, database in
      try await database.runScript(Self.story)
      func numbers(_ change: (inout ReportChoices) -> Void) async throws -> [String] {
        var choices = ReportChoices()
        change(&choices)
        return lines(
          try await reports.table(of: .intake, choices, at: Self.now), "measure", "cause", "number"
        )
        .filter { $0.hasPrefix("submissions_rejected") }
      }
      #expect(
        try await numbers { $0.days = 31 } == ["submissions_rejected | receipt_rejected 21003 | 3"])
      #expect(
        try await numbers { $0.days = 2 } == ["submissions_rejected | receipt_rejected 21003 | 1"])
      #expect(try await numbers { $0.days = 1 } == [])
      #expect(
        try await numbers {
          $0.days = 2
          $0.includesSandbox = true
        } == [
          "submissions_rejected | invalid_signature | 1",
          "submissions_rejected | receipt_rejected 21003 | 1",
        ])
      var two = ReportChoices()
      two.limit = 2
      let cut = try await reports.table(of: .intake, two, at: Self.now)
      #expect(cut.rows.count == 2)
      #expect(cut.isCutShort)
      #expect(cut.text(.table).contains("more rows"))
    }
  }

  @Test func `each row is of its days, in a time zone, and what is open is of now`() async throws {
    try await withReports { reports, database in
      try await database.runScript(Self.story)
      func rows(_ change: (inout ReportChoices) -> Void) async throws -> [String] {
        var choices = ReportChoices()
        change(&choices)
        return lines(
          try await reports.table(of: .intake, choices, at: Self.now), "measure", "from_day",
          "to_day", "number"
        )
        .filter { $0.hasPrefix("submissions_") }
      }
      let open = ["submissions_open | - | - | 2", "submissions_open | - | - | 1"]
      #expect(
        try await rows { $0.from = CalendarDate(year: 2026, month: 3, day: 1) }
          == open + ["submissions_rejected | 2026-03-01 | 2026-03-31 | 3"])
      #expect(
        try await rows {
          $0.from = CalendarDate(year: 2026, month: 2, day: 1)
          $0.to = CalendarDate(year: 2026, month: 3, day: 2)
          $0.bucket = .month
        } == ["submissions_rejected | 2026-03-01 | 2026-03-02 | 2"])
      // A minute before midnight is the next day in Berlin, where the report begins.
      let first = CalendarDate(year: 2026, month: 3, day: 2)
      for (zone, number) in [("UTC", 2), ("Europe/Berlin", 3)] {
        #expect(
          try await rows {
            $0.from = first
            $0.timeZone = zone
          } == open + ["submissions_rejected | 2026-03-02 | 2026-03-31 | \(number)"])
      }
      #expect(
        try await rows {
          $0.bucket = .week
          $0.days = 31
        } == open + [
          "submissions_rejected | 2026-03-01 | 2026-03-01 | 1",
          "submissions_rejected | 2026-03-02 | 2026-03-08 | 1",
          "submissions_rejected | 2026-03-30 | 2026-03-31 | 1",
        ])
      #expect(
        try await rows { $0.environment = .sandbox }
          == open + [
            "submissions_rejected | 2026-03-02 | 2026-03-31 | 1",
            // Of no known environment.
            "submissions_rejected | 2026-03-02 | 2026-03-31 | 2",
          ])
    }
  }

  @Test func `each number leads to the things that it counts`() async throws {
    try await withReports { reports, database in
      try await database.runScript(Self.story)
      var choices = ReportChoices()
      choices.bucket = .week
      choices.days = 60
      choices.timeZone = "Europe/Berlin"
      choices.includesSandbox = true
      let table = try await reports.table(of: .intake, choices, at: Self.now)
      #expect(table.rows.count > 20)
      for index in table.rows.indices {
        let cell = try #require(table.cell("number", inRow: index, of: choices))
        let found = try await reports.items(of: cell, at: Self.now)
        #expect(found.sum == table.value("number", inRow: index), "\(table.rows[index])")
        #expect(found.count > 0)
      }
    }
  }

  @Test func `each past week is as long as this one, and its last day ends at this time`()
    async throws
  {
    try await withReports { reports, database in
      try await database.runScript(Self.story)
      // Now is noon: the afternoon of the last day of the week before is in neither week.
      try await database.runScript(
        """
        INSERT INTO tenure.submission_exchange (submission_id, number, endpoint, asked_at,
          duration_ms, http_status, fault)
        VALUES
          ('00000000-0000-0000-0000-000000000002', 1, 'https://a', '2026-03-25 00:00Z', 1, 500,
            NULL),
          ('00000000-0000-0000-0000-000000000002', 2, 'https://a', '2026-03-24 12:01Z', 1, 500,
            NULL),
          ('00000000-0000-0000-0000-000000000002', 3, 'https://a', '2026-03-24 12:00Z', 1, 500,
            NULL),
          ('00000000-0000-0000-0000-000000000002', 4, 'https://a', '2026-01-07 00:00Z', 1, 500,
            NULL),
          ('00000000-0000-0000-0000-000000000002', 5, 'https://a', '2026-01-06 11:00Z', 1, 500,
            NULL)
        """)
      let table = try await reports.pastWeeks(of: .intake, at: Self.now)
      let found = lines(table, "weeks_ago", "measure", "number")
      #expect(
        found == [
          "0 | apple_failures | 3", "0 | notifications_listed | 100",
          "0 | notifications_missed | 2", "0 | notifications_refused | 42",
          "0 | notifications_rejected | 1", "0 | notifications_unbelievable | 1",
          "0 | submissions_rejected | 1", "0 | write_backs_accepted | 3",
          "0 | write_backs_refused | 1",
          "0 | write_backs_skipped | 1", "1 | apple_failures | 1", "4 | submissions_rejected | 2",
          "8 | write_backs_skipped | 1", "11 | apple_failures | 1",
        ])
      // This week equals the report of seven days.
      var choices = ReportChoices()
      choices.days = 7
      let report = try await reports.table(of: .intake, choices, at: Self.now)
      let failures = lines(report, "measure", "number").filter { $0.hasPrefix("apple_failures") }
      #expect(failures == ["apple_failures | 1", "apple_failures | 1", "apple_failures | 1"])
    }
  }

  @Test func `the numbers are those of the things, one by one`() async throws {
    try await withReports { reports, database in
      try await database.runScript(Self.story)
      var items = ReportChoices()
      items.listsItems = true
      let table = try await reports.table(of: .intake, items, at: Self.now)
      let missed = lines(table, "measure", "subject", "at", "delay_ms").filter {
        $0.hasPrefix("notifications_missed")
      }
      #expect(
        missed == [
          "notifications_missed | n1 | 2026-03-29T00:00:00.000Z | 604800000",
          "notifications_missed | n2 | 2026-03-29T00:00:00.000Z | 86400000",
        ])
      func sums(_ table: ReportTable) -> [String: Int64] {
        let column = table.columns.firstIndex { $0.name == "number" } ?? 0
        return table.rows.reduce(into: [:]) { sums, row in
          if case (.text(let measure), .number(let number)) = (row[0], row[column]) {
            sums[measure, default: 0] += number
          }
        }
      }
      #expect(sums(table) == sums(try await reports.table(of: .intake, at: Self.now)))
    }
  }

  @Test func `a role that may read reports sees their sources nowhere else`() async throws {
    try await withReports { _, database in
      try await database.runScript(Self.story)
      let counted = try await database.withTransaction { transaction in
        _ = try await transaction.execute(
          "SET LOCAL ROLE \(unescaped: ScratchPlace.environment.reader)")
        let rows = try await transaction.query("SELECT number FROM tenure.report_intake")
        await transaction.rollBack()
        return try rows.decode(Int64.self).count
      }
      #expect(counted > 10)
    }
  }
}
