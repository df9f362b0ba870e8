import Foundation
import Postgres
import ScratchDatabases
import Subscriptions
import Testing

@testable import LedgerStorage

/// The movements that recording, reconciliation and rebuilds leave for reports.
@Suite("Movements in the ledger")
struct MovementTableTests {
  private static let oneMonth = [
    "0 charged 1 +1", "0 started 1 +1", "0 state active_renewing 1 +1", "30 ended unknown 1 -1",
    "30 state active_renewing 1 -1", "30 state expired 1 +1",
  ]

  @Test("says of every moment what was known at it")
  func knowledge() async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      #expect(try await ledger.journal(knownAt: 0) == [])
      #expect(try await ledger.journal(knownAt: 1) == Self.oneMonth)

      try await ledger.submit([charge("2", on: 30)], claiming: [], by: "anna", on: 29.2)
      #expect(try await ledger.journal(knownAt: 1) == Self.oneMonth)
      let twoMonths = [
        "0 charged 1 +1", "0 started 1 +1", "0 state active_renewing 1 +1", "30 charged 2 +1",
        "60 ended unknown 2 -1", "60 state active_renewing 2 -1", "60 state expired 2 +1",
      ]
      #expect(try await ledger.journal(knownAt: 30) == twoMonths)

      // Nothing is new, so nothing is written.
      let rows = try await ledger.count("SELECT count(*) FROM tenure.movement")
      try await ledger.submit([charge("2", on: 30)], claiming: [], by: "anna", on: 31)
      #expect(try await ledger.count("SELECT count(*) FROM tenure.movement") == rows)

      try await ledger.submit(
        [charge("1", on: 0, asOf: 35, revokedOn: 34)], claiming: [], by: "anna", on: 35)
      #expect(try await ledger.journal(knownAt: 34) == twoMonths)
      #expect(
        try await ledger.journal(knownAt: 36).filter { $0.contains("refunded") }
          == ["34 refunded 0 1 -1"])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("the product of the next renewal is Apple's report since the latest charge")
  func announcedProduct() async throws {
    try await withLedger { ledger in
      func announced() async throws -> String? {
        try await ledger.database.query(
          "SELECT auto_renew_product_id FROM tenure.original_transaction"
        ).decodeOnly(String?.self)
      }
      func say(_ product: ProductID, on date: Double) async throws {
        let status = RenewalStatus(asOf: day(date), autoRenews: true, autoRenewProductID: product)
        try await ledger.submit(
          [.renewalStatus(status, line: originalKey)], claiming: [], by: "anna", on: date)
      }
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      #expect(try await announced() == nil)
      try await say("yearly", on: 10)
      #expect(try await announced() == "yearly")
      // Within the day in which Apple renews, it may be about the next period already.
      try await say("weekly", on: 29.5)
      try await ledger.submit([charge("2", on: 30)], claiming: [], by: "anna", on: 30)
      #expect(try await announced() == "weekly")
      try await ledger.submit([charge("3", on: 60)], claiming: [], by: "anna", on: 60)
      #expect(try await announced() == nil)
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("reconciliation brings it up to date when the catalogue changes, and keeps what was known")
  func catalogue() async throws {
    try await withLedger { ledger in
      for number in 1...3 {
        let line = OriginalTransactionKey(.production, OriginalTransactionID("\(number)000"))
        let id = TransactionID("\(number)")
        try await ledger.submit(
          [charge(id, on: 0, line: line)], claiming: [key(id, line: line)], by: "anna", on: 0.1)
      }
      let unpriced = try await ledger.journal(knownAt: 1)
      _ = try await ledger.products.describe(
        Product(
          id: "monthly", validFrom: day(2), type: .autoRenewable, entitlements: [],
          subscriptionGroup: "plans", period: CalendarPeriod(months: 1), priceMilliunits: 9990,
          currency: "EUR"))
      #expect(try await ledger.auditor.audit().isJournalPending)
      let terms = AccessTerms(catalogue: try await ledger.products.catalogue())
      try await ledger.work(until: 3, terms: terms)
      // The second pass, later, and then the movements.
      try await ledger.work(until: 4, terms: terms)
      #expect(
        try await ledger.count(
          """
          SELECT sum(mrr_twelfths)::bigint FROM tenure.movement
          WHERE known_until = 'infinity' AND at <= \(day(10))
          """) == 3 * 12 * 9990)
      #expect(try await ledger.journal(knownAt: 1) == unpriced)
      #expect(
        try await ledger.count(
          """
          SELECT count(*) FROM tenure.movement
          WHERE known_until = 'infinity' AND kind = 'charged' AND price_source = 'catalogue'
          """) == 3)
      let audit = try await ledger.auditor.audit()
      #expect(!audit.isJournalPending)
      #expect(audit.differences == [])
    }
  }

  @Test("linked original transactions have one list of movements from then on")
  func linked() async throws {
    try await withLedger { ledger in
      let other = OriginalTransactionKey(.production, "2000")
      try await ledger.submit(
        [charge("1", on: 0, lineItem: "w1")], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit(
        [charge("8", on: 30, line: other, lineItem: "w8")], claiming: [], by: "anna", on: 30)
      let apart = try await ledger.journal(knownAt: 31)
      #expect(apart.count(where: { $0.contains("started") }) == 2)

      try await ledger.submit(
        [charge("9", on: 0, line: other, lineItem: "w1")], claiming: [], by: "anna", on: 40)
      #expect(try await ledger.journal(knownAt: 31) == apart)
      #expect(
        try await ledger.journal(knownAt: 41) == [
          "0 charged 1 +1", "0 started 1 +1", "0 state active_renewing 1 +1", "30 charged 8 +1",
          "60 ended unknown 8 -1", "60 state active_renewing 8 -1", "60 state expired 8 +1",
        ])
      let names = try await ledger.database.query(
        """
        SELECT DISTINCT original_transaction_id FROM tenure.movement
        WHERE known_until = 'infinity'
        """
      ).decode(String.self)
      #expect(names == ["1000"])
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  @Test("a clock that was ahead leaves nothing known twice, or for less than no time")
  func clockAhead() async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      let priced = Catalogue([
        Product(
          id: "monthly", validFrom: start, type: .autoRenewable, entitlements: [],
          period: CalendarPeriod(months: 1), priceMilliunits: 5000, currency: "EUR")
      ])
      #expect(
        try await ledger.maintenance.updateRows(of: [originalKey], by: priced, at: day(50))
          == 1)
      #expect(
        try await ledger.maintenance.updateRows(of: [originalKey], by: priced, at: day(51))
          == 0)
      try await ledger.submit(
        [charge("2", on: 30)], claiming: [], by: "anna", on: 29,
        terms: AccessTerms(catalogue: priced))
      #expect(
        try await ledger.count(
          """
          SELECT count(*) FROM tenure.movement AS a JOIN tenure.movement AS b
            USING (environment, original_transaction_id, kind, at, product_id, transaction_id,
              cause)
          WHERE a.known_from >= a.known_until
            OR a.known_from < b.known_from AND b.known_from < a.known_until
          """) == 0)
      #expect(
        try await ledger.count(
          """
          SELECT sum(mrr_twelfths)::bigint FROM tenure.movement
          WHERE known_until = 'infinity' AND at <= \(day(40))
          """) == 12 * 5000)
    }
  }

  @Test("what a reconciliation finds is known after all that was recorded, in the same moment too")
  func reconciliationInTheSameMoment() async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      // An entry without movements.
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "ben", on: 5)
      let priced = Catalogue([
        Product(
          id: "monthly", validFrom: start, type: .autoRenewable, entitlements: [],
          period: CalendarPeriod(months: 1), priceMilliunits: 5000, currency: "EUR")
      ])
      #expect(
        try await ledger.maintenance.updateRows(of: [originalKey], by: priced, at: day(5)) == 1
      )
      let known = try await ledger.database.query(
        "SELECT min(known_from) FROM tenure.movement WHERE price_source = 'catalogue'"
      ).decodeOnly(Timestamp.self)
      #expect(known == day(5) + .milliseconds(1))
    }
  }

  @Test("a change that can't be rolled up does not stop the others")
  func brokenChange() async throws {
    try await withLedger { ledger in
      func line(_ id: OriginalTransactionID) -> OriginalTransactionKey {
        OriginalTransactionKey(.production, id)
      }
      func buy(_ id: OriginalTransactionID, on date: Double) async throws {
        let transaction = TransactionID(id.rawValue)
        try await ledger.submit(
          [charge(transaction, on: date, line: line(id))],
          claiming: [key(transaction, line: line(id))], by: "anna", on: date + 0.1)
      }
      func rollUp(on date: Double) async throws -> [PostgresError] {
        let jobs = try await ledger.jobs.claimJobs(
          limits: [.maintenance: 1], worker: "w", at: day(date), lease: .seconds(60))
        return try await ledger.maintenance.rollUpMovements(
          try #require(jobs.first), every: .seconds(10), at: day(date))
      }
      try await ledger.jobs.seed([.rollUpMovements], at: day(0))
      try await buy("1000", on: 0)
      #expect(try await rollUp(on: 1).isEmpty)
      try await ledger.database.runScript(
        "UPDATE tenure.movement_day SET number = 9223372036854775807")
      // Of the same sums as the first one, which have no room left, and of others.
      try await buy("2000", on: 0)
      for number in 3000..<3005 { try await buy(OriginalTransactionID("\(number)"), on: 5) }
      let faults = try await rollUp(on: 10)
      #expect(faults.map(\.sqlState?.errorClass) == ["22"])
      let left = try await ledger.database.query(
        "SELECT DISTINCT original_transaction_id FROM tenure.movement_change"
      ).decode(OriginalTransactionID.self)
      #expect(Array(left) == ["2000"])
    }
  }

  @Test("two rebuilds at once add to the sums once")
  func rebuildsAtOnce() async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.jobs.seed([.rollUpMovements], at: day(1))
      let jobs = try await ledger.jobs.claimJobs(
        limits: [.maintenance: 1], worker: "w", at: day(1), lease: .seconds(60))
      try await ledger.maintenance.rollUpMovements(
        try #require(jobs.first), every: .seconds(10), at: day(1))
      try await ledger.database.runScript("UPDATE tenure.movement_day SET number = number + 1")
      try await ledger.database.withConnection { holder in
        // Both have read the missing movements before either can write the sums.
        try await holder.runScript("BEGIN; SELECT FROM tenure.movement_day FOR UPDATE")
        async let first = ledger.auditor.rebuild()
        async let second = ledger.auditor.rebuild()
        try await ledger.untilTwoWait()
        try await holder.runScript("COMMIT")
        _ = try await (first, second)
      }
      #expect(try await ledger.auditor.audit().differences == [])
    }
  }

  struct Tampering: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var statement: String

    init(_ what: String, _ statement: String) {
      testDescription = what
      self.statement = statement
    }
  }

  static let tamperings = [
    Tampering(
      "a movement is changed",
      "UPDATE tenure.movement SET offer_id = 'x' WHERE kind = 'charged'"),
    Tampering("a movement is deleted", "DELETE FROM tenure.movement WHERE kind = 'ended'"),
    Tampering(
      "a movement is closed",
      """
      UPDATE tenure.movement SET known_until = '\(day(40))'
      WHERE kind = 'started'
      """),
    Tampering(
      "a movement is there that never happened",
      """
      INSERT INTO tenure.movement SELECT changed.*
      FROM (SELECT * FROM tenure.movement WHERE kind = 'started') AS t,
        jsonb_populate_record(t::tenure.movement, '{"kind": "resumed"}') AS changed
      """),
    Tampering(
      "a movement is of no line",
      """
      INSERT INTO tenure.movement SELECT changed.*
      FROM (SELECT * FROM tenure.movement WHERE kind = 'started') AS t,
        jsonb_populate_record(
          t::tenure.movement, '{"original_transaction_id": "666"}') AS changed
      """),
    Tampering(
      "a change is lost",
      """
      DELETE FROM tenure.movement_change
      WHERE change_id = (SELECT min(change_id) FROM tenure.movement_change)
      """),
    Tampering("the sums are lost", "TRUNCATE tenure.movement_change"),
  ]

  @Test("an audit finds tampering, and a rebuild repairs it", arguments: tamperings)
  func tampering(_ tampering: Tampering) async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.submit([charge("2", on: 30)], claiming: [], by: "anna", on: 30)
      #expect(try await ledger.auditor.audit().differences == [])
      let rows = try await ledger.count("SELECT count(*) FROM tenure.movement")

      try await ledger.database.runScript(tampering.statement)
      let kept = try await ledger.count("SELECT count(*) FROM tenure.movement")
      let kinds = Set(try await ledger.auditor.audit().differences.map(\.kind))
      #expect(kinds == [.projection])
      _ = try await ledger.auditor.rebuild()
      #expect(try await ledger.auditor.audit().differences == [])
      // Rows are closed and added, never taken away: at most two of each kind are wrong.
      let repaired = try await ledger.count("SELECT count(*) FROM tenure.movement")
      #expect((kept...(rows + 2)).contains(repaired))
    }
  }

  @Test("a rebuild of what is right writes nothing")
  func rebuildOfWhatIsRight() async throws {
    try await withLedger { ledger in
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.database.runScript(
        "UPDATE tenure.holding SET ends_at = '2099-01-01'")
      let rows = try await ledger.count("SELECT count(*) FROM tenure.movement")
      #expect(try await ledger.auditor.rebuild().rewritten == 1)
      #expect(try await ledger.count("SELECT count(*) FROM tenure.movement") == rows)
    }
  }

  @Test("the roll-up moves the changes into the sums by the day, and runs again")
  func rollup() async throws {
    try await withLedger { ledger in
      let sums: SQL = """
        SELECT coalesce(sum(number), 0)::bigint, coalesce(sum(mrr_twelfths), 0)::bigint,
          count(*) FILTER (WHERE source = 'day')
        FROM (
          SELECT number, mrr_twelfths, 'day' AS source FROM tenure.movement_day
          UNION ALL
          SELECT s.sign * m.number, s.sign * m.mrr_twelfths, 'change'
          FROM tenure.movement_change AS c
          JOIN tenure.movement AS m ON m.environment = c.environment
            AND m.original_transaction_id = c.original_transaction_id
            AND c.change_id IN (m.opened_by, m.closed_by)
          CROSS JOIN LATERAL (
            SELECT CASE WHEN m.opened_by = c.change_id THEN 1 ELSE -1 END AS sign
          ) AS s
          CROSS JOIN LATERAL tenure.movement_basis(
            m.kind, m.at, m.origin_at, m.cause, m.mrr_twelfths, m.rule, m.decided_at, m.corrected_at)
            AS b
        ) AS sum
        """
      func rollUp(on date: Double) async throws {
        let jobs = try await ledger.jobs.claimJobs(
          limits: [.maintenance: 1], worker: "w", at: day(date), lease: .seconds(60))
        try await ledger.maintenance.rollUpMovements(
          try #require(jobs.first), every: .seconds(10), at: day(date))
      }
      try await ledger.submit([charge("1", on: 0)], claiming: [key("1")], by: "anna", on: 0.1)
      try await ledger.jobs.seed([.rollUpMovements], at: day(1))
      let before = try await ledger.database.query(sums).decodeOnly(
        Int.self, Int.self, Int.self)
      try await rollUp(on: 1)
      #expect(try await ledger.count("SELECT count(*) FROM tenure.movement_change") == 0)
      let after = try await ledger.database.query(sums).decodeOnly(Int.self, Int.self, Int.self)
      #expect((before.0, before.1) == (after.0, after.1))
      #expect((before.2 == 0, after.2 > 0) == (true, true))

      try await ledger.submit([charge("2", on: 30)], claiming: [], by: "anna", on: 30)
      #expect(try await ledger.auditor.audit().differences == [])
      try await rollUp(on: 31)
      #expect(try await ledger.auditor.audit().differences == [])
      #expect(try await ledger.jobs.nextJobs()[.maintenance] == day(31) + .seconds(10))
    }
  }
}

extension Ledger {
  /// The movements known on a day, in a few words each: when, what, of which charge.
  fileprivate func journal(knownAt date: Double, of line: String? = nil) async throws -> [String] {
    try await database.query(
      """
      SELECT at, kind, cause, transaction_id, number FROM tenure.movement
      WHERE known_from <= \(day(date)) AND \(day(date)) < known_until
        AND original_transaction_id = coalesce(\(line), original_transaction_id)
      ORDER BY at, kind, cause, transaction_id, original_transaction_id
      """
    ).decode(Timestamp.self, String.self, String.self, String.self, Int.self)
      .map { at, kind, cause, transaction, number in
        let days = (at - start).inMilliseconds / 86_400_000
        return ["\(days)", kind, cause, transaction, number < 0 ? "\(number)" : "+\(number)"]
          .filter { !$0.isEmpty }.joined(separator: " ")
      }
  }

  /// Returns when two statements of this database wait for a lock.
  fileprivate func untilTwoWait() async throws {
    for _ in 0..<5000 {
      let waiting = try await count(
        """
        SELECT count(*) FROM \(unescaped: ScratchPlace.environment.activity)
        WHERE datname = current_database() AND wait_event_type = 'Lock'
        """)
      if waiting == 2 { return }
      try await Task.sleep(for: .milliseconds(10))
    }
    Issue.record("No connection waits for a lock.")
  }

  fileprivate func count(_ sql: SQL) async throws -> Int {
    try await database.query(sql).decodeOnly(Int.self)
  }
}
