package import Postgres
package import Subscriptions

/// The table `movement`.
///
/// Rows are never changed or deleted: one that no longer holds is closed at the moment when that
/// became known, and its replacement is added. So the knowledge of any moment can be queried later.
enum MovementTable {
  /// All columns except the original transaction, the expiry and the known-from and known-until
  /// times.
  private static let columns: [Column<Movement>] = [
    Column("kind", \.kind),
    Column("at", \.at),
    Column("product_id", \.terms.productID),
    Column("transaction_id", \.terms.charge.transactionID),
    Column("cause", \.cause),
    Column("charge_original_transaction_id", \.terms.charge.line.originalTransactionID),
    Column("product_type", \.terms.productType),
    Column("origin_at", \.originAt),
    Column("number", \.number),
    Column("ownership_type", \.terms.ownershipType),
    Column("period_type", \.terms.periodType),
    Column("offer_type", \.terms.offerType),
    Column("offer_id", \.terms.offerID),
    Column("storefront", \.terms.storefront),
    Column("quantity", \.terms.quantity),
    Column("currency", \.terms.price?.currency),
    Column("amount_milliunits") { $0.terms.price?.amountMilliunits ?? 0 },
    Column("price_source", \.terms.price?.source),
    Column("mrr_twelfths", \.monthlyTwelfths),
    Column("account_key", \.terms.owner),
    Column("rule", \.ownership?.rule),
    Column("decided_at", \.ownership?.decidedAt),
    Column("corrected_at", \.ownership?.correctedAt),
    Column("has_moved") { $0.ownership.map { $0.move != nil } },
    Column("moved_from_key", \.ownership?.move?.from),
    Column("shared_with_key", \.ownership?.move?.sharedWith),
    Column("is_renewal", \.ownership?.isRenewal),
  ]
  private static let names = columns.map(\.name).selectList

  /// Compares the stored current movements of original transactions with the expected ones, in the
  /// database, which returns only what differs; usually empty.
  ///
  /// Linked original transactions store theirs under the first ID.
  static func changes(
    to originals: [(line: OriginalTransaction, rule: OwnershipRule)], in catalogue: Catalogue
  ) -> Query<[OriginalTransactionKey: MovementChange]> {
    var lines: [OriginalTransactionKey] = []
    var expected: [(line: OriginalTransactionKey, movement: Movement)] = []
    for (line, rule) in originals {
      lines += line.heads.keys
      guard let first = line.heads.keys.min() else { continue }
      expected += Movement.movements(of: line, rule: rule, in: catalogue).map { (first, $0) }
    }
    guard !lines.isEmpty else { return Query([]).map { [:] } }
    let (wanted, movements) = (Set(lines), expected)
    return Query(
      """
      WITH known AS (
        SELECT environment, original_transaction_id, \(unescaped: names), expires_at
        FROM tenure.movement WHERE \(lines.condition) AND known_until = 'infinity'
      ), expected (environment, original_transaction_id, \(unescaped: names), expires_at) AS (
        SELECT * FROM unnest(\(movements.map(\.line.environment)),
          \(movements.map(\.line.originalTransactionID)),
          \(columns.map { $0.array(of: movements.map(\.movement)) }.joined()),
          \(movements.map(\.movement.expiry?.stored)))
      )
      SELECT environment, original_transaction_id, kind, at, product_id, transaction_id, cause, true
      FROM (TABLE expected EXCEPT TABLE known) AS missing
      UNION ALL
      SELECT environment, original_transaction_id, kind, at, product_id, transaction_id, cause, false
      FROM (TABLE known EXCEPT TABLE expected) AS surplus
      """
    ) {
      var missing: [OriginalTransactionKey: Set<Movement.Key>] = [:]
      var changes: [OriginalTransactionKey: MovementChange] = [:]
      for (line, kind, at, product, transaction, cause, isMissing) in try $0.decode(
        OriginalTransactionKey.self, Movement.Kind.self, Timestamp.self, ProductID.self,
        TransactionID.self, String.self, Bool.self)
      where wanted.contains(line) {
        let key = Movement.Key(
          kind: kind, at: at, productID: product, transactionID: transaction, cause: cause)
        if isMissing {
          missing[line, default: []].insert(key)
        } else {
          changes[line, default: MovementChange(line: line)].closed.insert(key)
        }
      }
      for (line, movement) in movements where missing[line]?.contains(movement.key) == true {
        changes[line, default: MovementChange(line: line)].added.append(movement)
      }
      return changes
    }
  }

  /// Closes all movements of newly linked original transactions and stores the new ones under the
  /// first ID.
  static func replaceAll(
    of lines: some Collection<OriginalTransactionKey>, by movements: [Movement],
    at moment: Timestamp
  ) -> [SQL] {
    let lines = lines.sorted()
    return lines.flatMap {
      write($0 == lines[0] ? movements : [], of: $0, closing: nil, at: moment)
    }
  }

  /// Closes rows, adds others, and records the change for the roll-up.
  ///
  /// - Parameters:
  ///   - keys: The keys of the rows to close; nil: all.
  ///   - moment: Later than the known-from times of all current rows: see
  ///     ``StoredOriginalTransaction/movementChange(at:)``.
  fileprivate static func write(
    _ movements: [Movement], of line: OriginalTransactionKey, closing keys: [Movement.Key]?,
    at moment: Timestamp
  ) -> [SQL] {
    let change = Int64.random(in: 1 ... .max)
    var close: SQL = """
      UPDATE tenure.movement SET known_until = greatest(\(moment), known_from), closed_by = \(change)
      WHERE \(line.condition) AND known_until = 'infinity'
      """
    if let keys {
      close.append(
        """
         AND (kind, at, product_id, transaction_id, cause) IN (
          SELECT * FROM unnest(\(keys.map(\.kind)), \(keys.map(\.at)), \(keys.map(\.productID)),
            \(keys.map(\.transactionID)), \(keys.map(\.cause))))
        """)
    }
    return [
      """
      INSERT INTO tenure.movement_change (change_id, environment, original_transaction_id)
      VALUES (\(change), \(line.environment), \(line.originalTransactionID))
      """
    ] + (keys?.isEmpty == true ? [] : [close])
      + insert(movements.map { Row(line: line, movement: $0, knownFrom: moment, change: change) })
  }

  private struct Row: Sendable {
    let line: OriginalTransactionKey
    let movement: Movement
    let knownFrom: Timestamp
    let change: Int64
  }

  private static let insert = InsertStatement<Row>(
    into: "movement",
    columns: [
      Column("environment", \.line.environment),
      Column("original_transaction_id", \.line.originalTransactionID),
    ] + columns.map { $0.within(\.movement) } + [
      Column("expires_at", \.movement.expiry?.stored), Column("known_from", \.knownFrom),
      Column("opened_by", \.change),
    ])

}

extension Movement.Expiry {
  /// As the column `expires_at`: infinity if the period never ends.
  fileprivate var stored: PostgresTimestamp {
    date.map { PostgresTimestamp(millisecondsSince1970: $0.milliseconds) } ?? .infinity
  }
}

/// The movements to close and to add, of one original transaction.
struct MovementChange: Sendable {
  let line: OriginalTransactionKey
  var closed: Set<Movement.Key> = []
  var added: [Movement] = []

  var isEmpty: Bool { closed.isEmpty && added.isEmpty }

  /// The statements that write the change; none for no change.
  ///
  /// - Parameter isFirst: Whether the original transaction has no movements yet.
  func statements(at moment: Timestamp, isFirst: Bool = false) -> [SQL] {
    isEmpty
      ? [] : MovementTable.write(added, of: line, closing: isFirst ? [] : sortedKeys, at: moment)
  }

  /// The keys of all closed and added rows: an older catalogue may have left rows of the same key.
  var sortedKeys: [Movement.Key] {
    closed.union(added.map(\.key)).sorted {
      ($0.at, $0.kind.rawValue, $0.productID, $0.transactionID, $0.cause)
        < ($1.at, $1.kind.rawValue, $1.productID, $1.transactionID, $1.cause)
    }
  }
}

extension MovementChange {
  /// The change of an original transaction's movements by a recording.
  init(of line: OriginalTransactionKey, from known: [Movement], to movements: [Movement]) {
    let (before, after) = (Set(known), Set(movements))
    self.line = line
    closed = Set(before.subtracting(after).map(\.key))
    added = movements.filter { !before.contains($0) }
  }
}

extension Maintenance {
  /// Some tens of milliseconds' work.
  private static let rollupBatch = 1000
  /// The limit of one job, so that it ends before its lease does.
  private static let rollupBatches = 200
  /// The time to the next run after changes that could not be rolled up.
  private static let intervalAfterFaults: Duration = .minutes(1)

  /// Rolls up changes of movements into the sums by day, and schedules the next run.
  ///
  /// Recordings only add rows, so that none waits for another's sum. A change is either part of the
  /// sums or still to be added, never both. Changes that can't be rolled up stay, and their errors
  /// are returned.
  ///
  /// - Throws: Database errors that concern no single change.
  @discardableResult
  package func rollUpMovements(
    _ job: Job, every interval: Duration, at now: Timestamp
  ) async throws -> [PostgresError] {
    var faults: [RollupFault] = []
    var isDone = false
    for _ in 0..<Self.rollupBatches where !isDone {
      let page = try await database.query(
        """
        SELECT original_transaction_id, change_id FROM tenure.movement_change
        WHERE change_id <> ALL(\(faults.map(\.change)))
        LIMIT \(Self.rollupBatch)
        """
      ).decode(OriginalTransactionID.self, Int64.self).map { (line: $0, id: $1) }
      try await rollUp(page[...], &faults)
      isDone = page.count < Self.rollupBatch
    }
    let pause: Duration =
      !isDone ? .zero : faults.isEmpty ? interval : Self.intervalAfterFaults
    _ = try await database.batch(job.repetition(at: now + pause, now: now))
    return faults.map(\.error)
  }

  private typealias Change = (line: OriginalTransactionID, id: Int64)
  private typealias RollupFault = (change: Int64, error: PostgresError)

  /// Rolls up changes together; after an error, each half separately.
  private func rollUp(_ changes: ArraySlice<Change>, _ faults: inout [RollupFault]) async throws {
    guard let first = changes.first else { return }
    do {
      try await take(changes)
    } catch let error as PostgresError where error.sqlState?.errorClass == "22" {
      guard changes.count > 1 else {
        faults.append((first.id, error))
        return
      }
      try await rollUp(changes.prefix(changes.count / 2), &faults)
      try await rollUp(changes.dropFirst(changes.count / 2), &faults)
    }
  }

  /// Deletes changes and adds the movements that each added, less those that it closed, to the
  /// sums, unless another worker took one of them.
  ///
  /// Separate statements, because changes are in the shards of their original transactions, and
  /// sums are not sharded.
  private func take(_ changes: ArraySlice<Change>) async throws {
    let (lines, ids) = (Array(Set(changes.map(\.line))), changes.map(\.id))
    try await database.withTransaction(isolation: .readCommitted) { transaction in
      let taken = try await transaction.batch([
        """
        INSERT INTO tenure.movement_day AS d (environment, basis, kind, day, cohort, cause,
          product_id, ownership_type, period_type, currency, price_source, number,
          amount_milliunits, mrr_twelfths)
        SELECT m.environment, b.basis, m.kind, b.day, b.cohort, b.summed_cause, m.product_id,
          m.ownership_type, m.period_type, coalesce(m.currency, ''), coalesce(m.price_source, ''),
          sum(s.sign * m.number), sum(s.sign * m.amount_milliunits), sum(s.sign * m.mrr_twelfths)
        \(Self.changedMovements)
        WHERE c.original_transaction_id = ANY(\(lines)) AND c.change_id = ANY(\(ids))
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
        \(Self.addingToSums)
        """,
        """
        DELETE FROM tenure.movement_change
        WHERE original_transaction_id = ANY(\(lines)) AND change_id = ANY(\(ids))
        """,
      ])[1].affectedRows
      if taken != changes.count { await transaction.rollBack() }
    }
  }

  /// Each change `c` with its movements `m`, their signs `s` and how they are summed up, `b`.
  static let changedMovements: SQL = """
    FROM tenure.movement_change AS c
    JOIN tenure.movement AS m ON m.environment = c.environment
      AND m.original_transaction_id = c.original_transaction_id
      AND c.change_id IN (m.opened_by, m.closed_by)
    CROSS JOIN LATERAL (
      SELECT CASE WHEN m.opened_by = c.change_id THEN 1::bigint ELSE -1 END AS sign
    ) AS s
    \(summedBases)
    """

  /// How a movement `m` is summed up, `b`.
  static let summedBases: SQL = """
    CROSS JOIN LATERAL tenure.movement_basis(m.kind, m.at, m.origin_at, m.cause, m.mrr_twelfths,
      m.rule, m.decided_at, m.corrected_at) AS b
    """

  static let addingToSums: SQL = """
    ON CONFLICT (environment, basis, kind, day, cohort, cause, product_id, ownership_type,
      period_type, currency, price_source)
    DO UPDATE SET number = d.number + excluded.number,
      amount_milliunits = d.amount_milliunits + excluded.amount_milliunits,
      mrr_twelfths = d.mrr_twelfths + excluded.mrr_twelfths
    """
}
