import Postgres
import Subscriptions

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
    Column("product_id", \.productID),
    Column("transaction_id", \.transactionID),
    Column("cause", \.cause),
    Column("charge_original_transaction_id", \.line.originalTransactionID),
    Column("product_type", \.productType),
    Column("origin_at", \.originAt),
    Column("number", \.number),
    Column("ownership_type", \.ownershipType),
    Column("period_type", \.periodType),
    Column("offer_type", \.offerType),
    Column("offer_id", \.offerID),
    Column("storefront", \.storefront),
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

  /// Compares the stored current movements with the expected ones; usually empty.
  ///
  /// Linked original transactions store theirs under the first ID.
  static func changes(
    to line: OriginalTransaction, rule: OwnershipRule, in catalogue: Catalogue
  ) -> Query<[MovementChange]> {
    let movements = Movement.movements(of: line, rule: rule, in: catalogue)
    let lines = line.heads.keys.sorted()
    return Query.all(lines.map { change(of: $0, to: $0 == lines[0] ? movements : []) })
      .map { $0.filter { !$0.isEmpty } }
  }

  /// Compares in the database, which returns only what differs.
  private static func change(of line: OriginalTransactionKey, to movements: [Movement])
    -> Query<MovementChange>
  {
    Query(
      """
      WITH known AS (
        SELECT \(unescaped: names), expires_at FROM tenure.movement
        WHERE \(line.condition) AND known_until = 'infinity'
      ), expected AS (
        SELECT \(unescaped: names), \(expiry) FROM \(rows(movements))
      )
      SELECT kind, at, product_id, transaction_id, cause, true
      FROM (TABLE expected EXCEPT TABLE known) AS missing
      UNION ALL
      SELECT kind, at, product_id, transaction_id, cause, false
      FROM (TABLE known EXCEPT TABLE expected) AS surplus
      """
    ) {
      var (missing, surplus): (Set<Movement.Key>, Set<Movement.Key>) = ([], [])
      for (kind, at, product, transaction, cause, isMissing) in try $0.decode(
        Movement.Kind.self, Timestamp.self, ProductID.self, TransactionID.self, String.self,
        Bool.self)
      {
        let key = Movement.Key(
          kind: kind, at: at, productID: product, transactionID: transaction, cause: cause)
        if isMissing { missing.insert(key) } else { surplus.insert(key) }
      }
      return MovementChange(
        line: line, closed: surplus, added: movements.filter { missing.contains($0.key) })
    }
  }

  /// Closes all movements of newly linked original transactions and stores the new ones under the
  /// first ID.
  static func replaceAll(
    of lines: some Collection<OriginalTransactionKey>, by movements: [Movement],
    at moment: Timestamp
  ) -> [SQL] {
    let lines = lines.sorted()
    return lines.map {
      write($0 == lines[0] ? movements : [], of: $0, closing: nil, at: moment)
    }
  }

  /// Closes rows, adds others, and records the change for the roll-up, in one statement.
  ///
  /// - Parameter keys: The keys of the rows to close; nil: all.
  fileprivate static func write(
    _ movements: [Movement], of line: OriginalTransactionKey, closing keys: [Movement.Key]?,
    at moment: Timestamp
  ) -> SQL {
    let change: SQL = """
      tenure.open_movement_change(\(line.environment), \(line.originalTransactionID), \(moment),
        \(keys?.map(\.kind)), \(keys?.map(\.at)), \(keys?.map(\.productID)),
        \(keys?.map(\.transactionID)), \(keys?.map(\.cause))) AS change
      """
    // A join with no rows would not call it.
    guard !movements.isEmpty else { return "SELECT FROM \(change)" }
    return """
      INSERT INTO tenure.movement (environment, original_transaction_id, \(unescaped: names),
        expires_at, known_from, opened_by)
      SELECT \(line.environment), \(line.originalTransactionID), \(unescaped: newNames), \(expiry),
        change.known_from, change.opened_by
      FROM \(change) CROSS JOIN \(rows(movements))
      """
  }

  /// Movements as rows `new`.
  private static func rows(_ movements: [Movement]) -> SQL {
    """
    unnest(\(columns.map { $0.array(of: movements) }.joined()),
        \(movements.map { $0.expiry != nil }), \(movements.map(\.expiry?.date)))
      AS new (\(unescaped: names), is_expiry_noted, expiry)
    """
  }

  private static let expiry: SQL = """
    CASE WHEN new.is_expiry_noted THEN coalesce(new.expiry, 'infinity') END
    """
}

/// The movements to close and to add, of one original transaction.
struct MovementChange: Sendable {
  let line: OriginalTransactionKey
  let closed: Set<Movement.Key>
  let added: [Movement]

  var isEmpty: Bool { closed.isEmpty && added.isEmpty }

  /// The statement that writes the change; none for no change.
  func statements(at moment: Timestamp) -> [SQL] {
    isEmpty ? [] : [MovementTable.write(added, of: line, closing: sortedKeys, at: moment)]
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
