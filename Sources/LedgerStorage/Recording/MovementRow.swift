import Postgres
import Subscriptions

/// A row of `movement` that is known now.
///
/// Rows are never changed or deleted: one that no longer holds is closed at the moment when that
/// became known, and its replacement is added. So the knowledge of any moment can be queried later.
struct MovementRow: Hashable, Comparable, Sendable {
  /// The first of the original transactions that Apple links.
  var original: OriginalTransactionKey
  var movement: Movement

  static func rows(of line: OriginalTransaction, rule: OwnershipRule, in catalogue: Catalogue)
    -> Set<MovementRow>
  {
    guard let original = line.heads.keys.min() else { return [] }
    return Set(
      Movement.movements(of: line, rule: rule, in: catalogue).map {
        MovementRow(original: original, movement: $0)
      })
  }

  func hasSameKey(as other: MovementRow) -> Bool {
    original == other.original && movement.key == other.movement.key
  }

  var description: String { "a movement (\(movement.kind.rawValue)) at \(movement.at)" }

  static func < (lhs: MovementRow, rhs: MovementRow) -> Bool {
    lhs.original == rhs.original ? lhs.movement < rhs.movement : lhs.original < rhs.original
  }

  // MARK: Columns

  /// All columns except the original transaction, the expiry and the known-from and known-until
  /// times, in the order in which they are decoded.
  private static let columns: [Column<Movement>] = [
    Column("kind", \.kind),
    Column("at", \.at),
    Column("product_id", \.productID),
    Column("transaction_id", \.transactionID),
    Column("cause", \.cause),
    Column("charge_original_transaction_id", \.line.originalTransactionID),
    Column("product_type", \.productType),
    Column("subscription_group", \.subscriptionGroup),
    Column("origin_at", \.originAt),
    Column("number", \.number),
    Column("ownership_type", \.ownershipType),
    Column("period_type", \.periodType),
    Column("offer_id", \.offerID),
    Column("quantity", \.quantity),
    Column("currency", \.currency),
    Column("amount_milliunits", \.amountMilliunits),
    Column("price_source", \.priceSource),
    Column("mrr_twelfths", \.monthlyTwelfths),
    Column("account_key", \.account),
    Column("rule", \.ownership?.rule),
    Column("decided_at", \.ownership?.decidedAt),
    Column("corrected_at", \.ownership?.correctedAt),
    Column("has_moved") { $0.ownership.map { $0.move != nil } },
    Column("moved_from_key", \.ownership?.move?.from),
    Column("shared_with_key", \.ownership?.move?.sharedWith),
    Column("is_renewal", \.ownership?.isRenewal),
  ]
  private static let names = columns.map(\.name).selectList
  private static let newNames = columns.map { "new.\($0.name)" }.selectList

  // MARK: Reading

  /// Reads the movements known now; ``decode(_:)`` decodes them.
  static func select(_ line: OriginalTransactionKey) -> SQL {
    """
    SELECT environment, original_transaction_id, \(unescaped: names), expires_at IS NOT NULL,
      nullif(expires_at, 'infinity')
    FROM tenure.movement
    WHERE \(line.condition) AND known_until = 'infinity'
    ORDER BY kind, at, product_id, transaction_id, cause
    """
  }

  static func decode(_ rows: Rows) throws -> Set<MovementRow> {
    try rows.check(
      Environment.self, OriginalTransactionID.self, Movement.Kind.self, Timestamp.self,
      ProductID.self, TransactionID.self, String.self, OriginalTransactionID.self,
      ProductType?.self, String?.self, Timestamp?.self, Int.self, OwnershipType.self,
      PeriodType.self, String?.self, Int.self, String?.self, Int64.self, ChargePrice.Source?.self,
      Int64.self, AccountKey?.self, Decision.Rule?.self, Timestamp?.self, Timestamp?.self,
      Bool?.self, AccountKey?.self, AccountKey?.self, Bool?.self, Bool.self, Timestamp?.self)
    return Set(
      try (0..<rows.count).map { row in
        var cursor = RowCursor(rows: rows, row: row)
        let original = try OriginalTransactionKey(
          cursor.next(Environment.self), cursor.next(OriginalTransactionID.self))
        let key = try Movement.Key(
          kind: cursor.next(Movement.Kind.self), at: cursor.next(Timestamp.self),
          productID: cursor.next(ProductID.self), transactionID: cursor.next(TransactionID.self),
          cause: cursor.next(String.self))
        var movement = try Movement(
          key,
          line: OriginalTransactionKey(
            original.environment, cursor.next(OriginalTransactionID.self)),
          productType: cursor.next(ProductType?.self),
          subscriptionGroup: cursor.next(String?.self), originAt: cursor.next(Timestamp?.self),
          number: cursor.next(Int.self), ownershipType: cursor.next(OwnershipType.self),
          periodType: cursor.next(PeriodType.self), offerID: cursor.next(String?.self),
          quantity: cursor.next(Int.self), currency: cursor.next(String?.self),
          amountMilliunits: cursor.next(Int64.self),
          priceSource: cursor.next(ChargePrice.Source?.self),
          monthlyTwelfths: cursor.next(Int64.self), account: cursor.next(AccountKey?.self))
        movement.ownership = try ownership(from: &cursor)
        let isExpiryNoted = try cursor.next(Bool.self)
        let expiresAt = try cursor.next(Timestamp?.self)
        movement.expiry = isExpiryNoted ? Movement.Expiry(date: expiresAt) : nil
        return MovementRow(original: original, movement: movement)
      })
  }

  private static func ownership(from cursor: inout RowCursor) throws -> Movement.Ownership? {
    let rule = try cursor.next(Decision.Rule?.self)
    let decidedAt = try cursor.next(Timestamp?.self)
    let correctedAt = try cursor.next(Timestamp?.self)
    let hasMoved = try cursor.next(Bool?.self)
    let move = Movement.Ownership.Move(
      from: try cursor.next(AccountKey?.self), sharedWith: try cursor.next(AccountKey?.self))
    guard let isRenewal = try cursor.next(Bool?.self), let rule, let decidedAt else { return nil }
    return Movement.Ownership(
      rule: rule, decidedAt: decidedAt, correctedAt: correctedAt,
      move: hasMoved == true ? move : nil, isRenewal: isRenewal)
  }

  // MARK: Writing

  /// Closes and adds movements: one statement for each original transaction with changes.
  static func write(
    from known: Set<MovementRow>, to rows: Set<MovementRow>, at moment: Timestamp
  ) -> [SQL] {
    let added = Dictionary(grouping: rows.subtracting(known), by: \.original)
    // Also rows of the same key that an older catalogue left.
    let closed = Dictionary(
      grouping: known.subtracting(rows).union(added.values.joined()), by: \.original)
    return closed.keys.sorted().map { line in
      let changed = (closed[line] ?? []).map(\.movement)
      let keys = Set(changed.map(\.key)).sorted(by: Self.precedes)
      return write((added[line] ?? []).sorted(), of: line, closing: keys, at: moment)
    }
  }

  /// Replaces all movements of newly linked original transactions.
  static func replaceAll(
    of lines: some Collection<OriginalTransactionKey>, by rows: Set<MovementRow>,
    at moment: Timestamp
  ) -> [SQL] {
    lines.sorted().map { line in
      write(rows.filter { $0.original == line }.sorted(), of: line, closing: nil, at: moment)
    }
  }

  /// The order of the primary key, so that equal changes give equal statements.
  private static func precedes(_ lhs: Movement.Key, _ rhs: Movement.Key) -> Bool {
    if lhs.at != rhs.at { return lhs.at < rhs.at }
    return (lhs.kind.rawValue, lhs.productID, lhs.transactionID, lhs.cause)
      < (rhs.kind.rawValue, rhs.productID, rhs.transactionID, rhs.cause)
  }

  /// Closes rows, adds others, and records the change for the roll-up, in one statement.
  ///
  /// - Parameter keys: The keys of the rows to close; nil: all.
  private static func write(
    _ rows: [MovementRow], of line: OriginalTransactionKey, closing keys: [Movement.Key]?,
    at moment: Timestamp
  ) -> SQL {
    let change: SQL = """
      tenure.open_movement_change(\(line.environment), \(line.originalTransactionID), \(moment),
        \(keys?.map(\.kind)), \(keys?.map(\.at)), \(keys?.map(\.productID)),
        \(keys?.map(\.transactionID)), \(keys?.map(\.cause))) AS change
      """
    // A join with no rows would not call it.
    guard !rows.isEmpty else { return "SELECT FROM \(change)" }
    let movements = rows.map(\.movement)
    return """
      INSERT INTO tenure.movement (environment, original_transaction_id, \(unescaped: names),
        expires_at, known_from, opened_by)
      SELECT \(line.environment), \(line.originalTransactionID), \(unescaped: newNames),
        CASE WHEN new.is_expiry_noted THEN coalesce(new.expires_at, 'infinity') END,
        change.known_from, change.opened_by
      FROM \(change)
      CROSS JOIN unnest(\(columns.map { $0.array(of: movements) }.joined()),
          \(movements.map { $0.expiry != nil }), \(movements.map(\.expiry?.date)))
        AS new (\(unescaped: names), is_expiry_noted, expires_at)
      """
  }
}
