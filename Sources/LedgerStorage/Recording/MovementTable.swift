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
