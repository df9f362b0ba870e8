import Postgres
import Subscriptions

// The journal follows from the entries and from the catalogue. Recording writes what follows from
// new entries; what follows from another catalogue, or was recorded before there was a journal, a
// survey makes up for.

extension Ledger {
  /// Brings the journal of some lines up to date.
  ///
  /// Most are: they are read without any lock, and only the others are locked.
  ///
  /// - Parameters:
  ///   - lines: The lines; those that Apple links with them are brought up to date with them.
  ///   - catalogue: By what the journal is written.
  ///   - now: From when on it says so.
  /// - Returns: How many families were not up to date.
  /// - Throws: What the database says.
  @discardableResult
  func catchUpJournal(of lines: [LineID], by catalogue: Catalogue, at now: Timestamp) async throws
    -> Int
  {
    let behind = try await database.withTransaction(
      isolation: .repeatableRead, readOnly: true
    ) { transaction in
      var reader = FamilyReader(isLocking: false)
      try await reader.read(Set(lines), in: transaction)
      return try await journals(of: reader.families, by: catalogue, in: transaction)
        .filter { $0.known != $0.rows }.map(\.id)
    }
    guard !behind.isEmpty else { return 0 }
    return try await database.withTransaction { transaction in
      var reader = FamilyReader(isLocking: true)
      try await reader.read(Set(behind), in: transaction)
      let writes = try await journals(of: reader.families, by: catalogue, in: transaction).flatMap {
        journal in
        // Later than everything that was recorded, for it is what is known from then on.
        let moment = max(now, journal.lastRecordedAt.map { $0 + .milliseconds(1) } ?? now)
        return MovementRow.write(from: journal.known, to: journal.rows, at: moment)
      }
      try await transaction.commit(with: writes)
      return writes.count
    }
  }

  /// What the journal says of a family, and what it must say.
  private struct FamilyJournal: Sendable {
    var id: LineID
    var lastRecordedAt: Timestamp?
    var known: Set<MovementRow>
    var rows: Set<MovementRow>
  }

  private func journals(
    of families: [StoredFamily], by catalogue: Catalogue, in transaction: Transaction
  ) async throws -> [FamilyJournal] {
    let lines = families.flatMap(\.members.keys).sorted()
    let results = try await transaction.batch(lines.map(MovementRow.select))
    let known = Dictionary(uniqueKeysWithValues: zip(lines, try results.map(MovementRow.decode)))
    return families.compactMap { family in
      guard let id = family.members.keys.min() else { return nil }
      let rows = MovementRow.rows(of: family.line, rule: family.rule, in: catalogue)
      return FamilyJournal(
        id: id, lastRecordedAt: family.lastRecordedAt,
        known: Set(family.members.keys.flatMap { known[$0] ?? [] }), rows: rows)
    }
  }

  // MARK: The proof

  /// The catalogue, if the journal is written by it: nil while a survey is to bring it up to date.
  func settledCatalogue() async throws -> Catalogue? {
    let catalogue = try await catalogue()
    // Asked for afterwards: a version of a product comes with the survey that it needs.
    let isPending = try await database.query(
      """
      SELECT EXISTS (
        SELECT FROM tenure.job
        WHERE kind = 'reconcile' AND discarded_at IS NULL
          AND (place IS NOT NULL OR run_at <= now()))
      """
    ).decodeOnly(Bool.self)
    return isPending ? nil : catalogue
  }

  /// Lines of which the journal says something and that don't exist.
  private func strayJournals() async throws -> [LineID] {
    try await database.query(
      """
      SELECT DISTINCT m.environment, m.original_transaction_id FROM tenure.movement AS m
      WHERE m.known_until = 'infinity' AND NOT EXISTS (
        SELECT FROM tenure.original_transaction AS o
        WHERE o.environment = m.environment
          AND o.original_transaction_id = m.original_transaction_id)
      ORDER BY m.environment, m.original_transaction_id
      """, deadline: Self.auditDeadline
    ).decode(Environment.self, OriginalTransactionID.self).map { LineID($0, $1) }
  }

  /// How many sums that differ are told one by one.
  private static let toldSums = 20

  /// Looks for movements of lines that don't exist, and compares the sums by the day with the
  /// movements that are known now, and with the charges.
  func checkJournal(_ audit: inout LedgerAudit) async throws {
    for line in try await strayJournals() {
      audit.report(.projection, line, "movements of no line should not be there")
    }
    let differing = try await database.query(
      """
      SELECT count(*) OVER (), environment, basis, kind, day::text, product_id, currency
      FROM (\(Self.differingSums)) AS sum
      ORDER BY environment, basis, kind, day, product_id, currency LIMIT \(Self.toldSums)
      """, deadline: Self.auditDeadline
    ).decode(
      Int.self, Environment.self, String.self, String.self, String.self, ProductID.self,
      String.self)
    for (count, environment, basis, kind, day, product, currency) in differing {
      audit.report(
        .projection, nil,
        "of \(count) sums that differ: \(kind) of \(product) (\(environment.rawValue), \(basis)) "
          + "on \(day)" + (currency.isEmpty ? "" : " in \(currency)"))
    }
    try await checkChargeSums(&audit)
  }

  /// Compares the sums of charges by the day with the charges.
  private func checkChargeSums(_ audit: inout LedgerAudit) async throws {
    let differing = try await database.query(
      """
      SELECT count(*) OVER (), environment, measure, cause, day::text, product_id
      FROM (\(ChargeSums.differing)) AS sum
      ORDER BY environment, measure, day, product_id, cause LIMIT \(Self.toldSums)
      """, deadline: Self.auditDeadline
    ).decode(
      Int.self, Environment.self, String.self, String.self, String.self, ProductID.self)
    for (count, environment, measure, cause, day, product) in differing {
      audit.report(
        .projection, nil,
        "of \(count) sums of charges that differ: \(measure) of \(product) "
          + "(\(environment.rawValue)) on \(day)" + (cause.isEmpty ? "" : ", \(cause)"))
    }
  }

  /// Closes movements of lines that don't exist, and adds to the sums what they lack of what the
  /// movements come to.
  ///
  /// - Returns: The lines.
  /// - Throws: What the database says.
  func mendJournal() async throws -> Set<LineID> {
    let strays = try await strayJournals()
    let now = try await database.query("SELECT clock_timestamp()").decodeOnly(Timestamp.self)
    for line in strays {
      try await database.batch(MovementRow.replaceAll(of: [line], by: [], at: now))
    }
    try await mendSums()
    return Set(strays)
  }

  /// An advisory lock of ours, for who adds to the sums what they lack.
  private static let sumsLock: Int64 = 0x7375_6D73

  /// Adds to the sums what they lack; one rebuild at a time, for two would add it twice.
  private func mendSums() async throws {
    let patience = Int(Self.auditDeadline / .milliseconds(1))
    try await database.withTransaction { transaction in
      // What is lacking is looked for by the statements after it, and so when the other has ended.
      _ = try await transaction.batch(
        [
          SQL(unescaped: "SET LOCAL lock_timeout = \(patience)"),
          "SELECT pg_advisory_xact_lock(\(Self.sumsLock))",
        ], deadline: Self.auditDeadline)
      _ = try await transaction.query(
        """
        INSERT INTO tenure.movement_day AS d (environment, basis, kind, day, cohort, cause,
          product_id, ownership_type, period_type, currency, price_source, number,
          amount_milliunits, mrr_twelfths)
        \(Self.differingSums)
        \(Self.addingToSums)
        """, deadline: Self.auditDeadline)
      _ = try await transaction.query(ChargeSums.mend, deadline: Self.auditDeadline)
    }
  }

  /// What the movements that are known now come to beyond the sums that are stored: both are of one
  /// moment.
  private static let differingSums: SQL = """
    SELECT environment, basis, kind, day, cohort, cause, product_id, ownership_type, period_type,
      currency, price_source, sum(number) AS number, sum(amount_milliunits) AS amount_milliunits,
      sum(mrr_twelfths) AS mrr_twelfths
    FROM (
      SELECT m.environment, b.basis, m.kind, b.day, b.cohort, b.summed_cause AS cause,
        m.product_id, m.ownership_type, m.period_type, coalesce(m.currency, '') AS currency,
        coalesce(m.price_source, '') AS price_source, m.number::bigint AS number,
        m.amount_milliunits, m.mrr_twelfths
      FROM tenure.movement AS m
      CROSS JOIN LATERAL tenure.movement_basis(m.kind, m.at, m.origin_at, m.cause, m.mrr_twelfths)
        AS b
      WHERE m.known_until = 'infinity'
      UNION ALL
      SELECT environment, basis, kind, day, cohort, cause, product_id, ownership_type,
        period_type, currency, price_source, -number, -amount_milliunits, -mrr_twelfths
      FROM tenure.movement_day
      UNION ALL
      SELECT m.environment, b.basis, m.kind, b.day, b.cohort, b.summed_cause, m.product_id,
        m.ownership_type, m.period_type, coalesce(m.currency, ''), coalesce(m.price_source, ''),
        -s.sign * m.number, -s.sign * m.amount_milliunits, -s.sign * m.mrr_twelfths
      \(changedMovements)
    ) AS part
    GROUP BY environment, basis, kind, day, cohort, cause, product_id, ownership_type,
      period_type, currency, price_source
    HAVING sum(number) <> 0 OR sum(amount_milliunits) <> 0 OR sum(mrr_twelfths) <> 0
    """
}
