import Postgres
package import Subscriptions

// Movements, and holdings of which Apple reports no type, follow from entries and catalogue:
// recording writes those of new entries, reconciliation those of a changed catalogue.

extension Maintenance {
  /// Brings what depends on the catalogue up to date for some original transactions: movements, and
  /// the holdings of which Apple reports no type.
  ///
  /// Most are current, so they are read without locks first, and only the others are locked.
  @discardableResult
  func updateRows(
    of lines: [OriginalTransactionKey], by catalogue: Catalogue, at now: Timestamp
  ) async throws -> Int {
    guard !lines.isEmpty else { return 0 }
    let behind = try await database.withTransaction(isolation: .repeatableRead, readOnly: true) {
      transaction in
      try await rowsBehind(of: lines, locking: false, by: catalogue, in: transaction).map(\.id)
    }
    guard !behind.isEmpty else { return 0 }
    return try await database.withTransaction { transaction in
      let updated = try await rowsBehind(
        of: behind, locking: true, by: catalogue, in: transaction)
      let holders = updated.flatMap(\.holders)
      changes.note(holders, in: transaction)
      if !holders.isEmpty { announce([.jobs], after: transaction) }
      try await transaction.commit(with: updated.flatMap { $0.writes(at: now) })
      return updated.count
    }
  }

  private func rowsBehind(
    of lines: [OriginalTransactionKey], locking: Bool, by catalogue: Catalogue,
    in transaction: Transaction
  ) async throws -> [CatalogueRows] {
    let originals = try await transaction.originals(lines, locking: locking)
    let changes = try await transaction.read(
      MovementTable.changes(to: originals.map { ($0.line, $0.rule) }, in: catalogue))
    var rows = originals.compactMap { original -> CatalogueRows? in
      guard let id = original.members.keys.min() else { return nil }
      return CatalogueRows(
        id: id, original: original,
        movements: original.members.keys.sorted().compactMap { changes[$0] },
        untyped: original.lastRecordedAt.map {
          HoldingRow.rows(of: original.line, rule: original.rule, asOf: $0)
            .filter(\.dependsOnCatalogue)
        } ?? [])
    }
    let accounts = Set(rows.flatMap(\.untyped).map(\.account))
    guard !accounts.isEmpty else { return rows.filter(\.areBehind) }
    let names = try await ownership.names(of: accounts, in: transaction)
    var selection = HoldingBatcher.select(
      names.values.sorted(), of: originals.flatMap(\.members.keys).sorted())
    selection.append(" AND product_type IS NULL AND ends_at IS NULL")
    let known = Dictionary(
      grouping: try await transaction.query(selection).decodeHoldings(), by: \.holding.charge)
    for index in rows.indices {
      rows[index].compareHoldings(with: known, names: names, in: catalogue)
    }
    return rows.filter(\.areBehind)
  }

  // MARK: Audit

  /// The catalogue that the movements were derived from; nil while a reconciliation is pending.
  func settledCatalogue() async throws -> Catalogue? {
    let catalogue = try await products.catalogue()
    // Read after the catalogue: a new product version and its reconciliation are one commit.
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

  /// Original transactions that have movements but don't exist.
  private func orphanedMovements() async throws -> [OriginalTransactionKey] {
    try await database.query(
      """
      SELECT DISTINCT m.environment, m.original_transaction_id FROM tenure.movement AS m
      WHERE m.known_until = 'infinity' AND NOT EXISTS (
        SELECT FROM tenure.original_transaction AS o
        WHERE o.environment = m.environment
          AND o.original_transaction_id = m.original_transaction_id)
      ORDER BY m.environment, m.original_transaction_id
      """, deadline: LedgerAuditor.auditDeadline
    ).decode(OriginalTransactionKey.self)
  }

  /// Differing sums reported individually.
  private static let reportedSums = 20

  /// Reports movements without an original transaction, and daily sums that differ.
  func checkMovements(_ audit: inout LedgerAudit) async throws {
    for line in try await orphanedMovements() {
      audit.report(.projection, line, "movements without an original transaction")
    }
    let differing = try await database.query(
      """
      SELECT count(*) OVER (), environment, kind, basis, day::text, product_id, currency
      FROM (\(Self.differingSums)) AS sum
      ORDER BY environment, basis, kind, day, product_id, currency LIMIT \(Self.reportedSums)
      """, deadline: LedgerAuditor.auditDeadline
    ).decode(
      Int.self, Environment.self, String.self, String.self, String.self, ProductID.self,
      String.self)
    for (count, environment, kind, basis, day, product, currency) in differing {
      audit.report(
        .projection, nil,
        "\(count) daily sums differ, such as \(kind) of \(product) (\(environment.rawValue), "
          + "\(basis)) on \(day)\(currency.isEmpty ? "" : " in \(currency)")")
    }
  }

  /// Closes movements without an original transaction, returns those, and corrects the sums.
  @discardableResult
  package func repairMovements() async throws -> Set<OriginalTransactionKey> {
    let orphans = try await orphanedMovements()
    let now = try await database.query("SELECT clock_timestamp()").decodeOnly(Timestamp.self)
    for line in orphans {
      try await database.batch(MovementTable.replaceAll(of: [line], by: [], at: now))
    }
    try await repairSums()
    return Set(orphans)
  }

  /// Advisory lock that serializes corrections of the sums: "sums" in ASCII.
  private static let sumsLock: Int64 = 0x7375_6D73

  /// Corrects the daily sums; two concurrent corrections would add the difference twice.
  private func repairSums() async throws {
    let patience = Int(LedgerAuditor.auditDeadline / .milliseconds(1))
    try await database.withTransaction { transaction in
      // The statements after the lock take their snapshots after a concurrent correction.
      _ = try await transaction.batch(
        [
          SQL(unescaped: "SET LOCAL lock_timeout = \(patience)"),
          "SELECT pg_advisory_xact_lock(\(Self.sumsLock))",
        ], deadline: LedgerAuditor.auditDeadline)
      _ = try await transaction.query(
        """
        INSERT INTO tenure.movement_day AS d (environment, basis, kind, day, cohort, cause,
          product_id, ownership_type, period_type, currency, price_source, number,
          amount_milliunits, mrr_twelfths)
        \(Self.differingSums)
        \(Self.addingToSums)
        """, deadline: LedgerAuditor.auditDeadline)
    }
  }

  /// The difference between the sums of the current movements and the stored sums.
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
      \(summedBases)
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

/// The rows of an original transaction, with those that Apple links, that depend on the catalogue.
private struct CatalogueRows: Sendable {
  let id: OriginalTransactionKey
  let original: StoredOriginalTransaction
  let movements: [MovementChange]
  /// The holdings by the entries, of which the catalogue leaves some out.
  let untyped: Set<HoldingRow>
  /// Holdings to store and to delete, under the account's id.
  var missing: [HoldingRow.Named] = []
  var surplus: [HoldingRow.Named] = []

  mutating func compareHoldings(
    with known: [TransactionKey: [(accountID: String, holding: Holding)]],
    names: [AccountKey: String], in catalogue: Catalogue
  ) {
    for row in untyped.sorted() {
      guard let name = names[row.account] else { continue }
      let stored = known[row.holding.charge]?.first { AccountID($0.accountID) == AccountID(name) }
      if row.isLeftOut(by: catalogue) {
        if stored != nil { surplus.append((row, name)) }
      } else if stored?.holding != row.holding {
        missing.append((row, name))
      }
    }
  }

  var areBehind: Bool { !movements.isEmpty || !missing.isEmpty || !surplus.isEmpty }

  /// The accounts whose holdings change.
  var holders: [String] { (missing + surplus).map(\.name) }

  /// The statements that correct the rows, and the jobs that publish what accounts hold again.
  func writes(at now: Timestamp) -> [SQL] {
    // Later than every recorded entry, because movements are known from their recording on.
    let moment = original.movementChange(
      at: max(now, original.lastRecordedAt.map { $0 + .milliseconds(1) } ?? now))
    return movements.flatMap { $0.statements(at: moment) }
      + surplus.map { $0.row.delete(name: $0.name) } + HoldingRow.upsert(missing)
      + Set(missing.map(\.row.account)).sorted().map {
        Job.schedule(.publishEntitlements($0), runAt: now, at: now)
      }
  }
}
