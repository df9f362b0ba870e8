import Postgres
import Subscriptions

/// On which line transactions and line items were recorded first.
///
/// Names are inserted before they are looked up, with the lines that are about to record them: who
/// inserts a name that somebody else is just recording waits for his commit, and then finds his
/// line. So two lines can't record the same charge without hearing of each other.
struct LineLookups {
  struct Link {
    var line: LineID
    var previous: LineID
  }

  /// What a charge can be known by on another line.
  private enum Name: Hashable {
    case transaction(Environment, TransactionID)
    case lineItem(Environment, WebOrderLineItemID)
  }

  private struct Occurrence {
    var names: [Name]
    var line: LineID

    init(_ key: TransactionKey, _ lineItem: WebOrderLineItemID?) {
      line = key.line
      names =
        [.transaction(line.environment, key.transactionID)]
        + (lineItem.map { [.lineItem(key.line.environment, $0)] } ?? [])
    }
  }

  private let occurrences: [Occurrence]
  private let transactions: [(id: TransactionID, line: LineID)]
  private let lineItems: [(id: WebOrderLineItemID, line: LineID)]

  /// Looks for what evidence tells of.
  init(_ evidence: [Evidence]) {
    let records = evidence.compactMap {
      if case .transaction(let record) = $0 { record } else { nil }
    }
    self.init(records.map { ($0.key, $0.webOrderLineItemID) })
  }

  /// Looks for transactions as they are recorded, in their order.
  init(_ transactions: [StoreTransaction]) {
    self.init(transactions.map { ($0.key, $0.webOrderLineItemID) })
  }

  private init(_ items: [(key: TransactionKey, lineItem: WebOrderLineItemID?)]) {
    occurrences = items.map(Occurrence.init)
    // Everybody inserts in the same order, so that nobody waits in a circle; of one name the first
    // stays the first.
    transactions = items.map { ($0.key.transactionID, $0.key.line) }.sorted { $0.0 < $1.0 }
    lineItems = items.compactMap { item in item.lineItem.map { ($0, item.key.line) } }
      .sorted { $0.0 < $1.0 }
  }

  // MARK: Statements

  /// Makes the names known, unless they are.
  var inserts: [SQL] {
    Self.insert(transactions, "transaction_line", "transaction_id")
      + Self.insert(lineItems, "web_order_line_item", "web_order_line_item_id")
  }

  /// Makes the names known and looks them up; ``links(from:)`` reads the results.
  var statements: [SQL] {
    inserts + [
      """
      SELECT transaction_id, environment, original_transaction_id FROM tenure.transaction_line
      WHERE transaction_id = ANY(\(transactions.map(\.id)))
      """,
      """
      SELECT web_order_line_item_id, environment, original_transaction_id
      FROM tenure.web_order_line_item WHERE web_order_line_item_id = ANY(\(lineItems.map(\.id)))
      """,
    ]
  }

  private static func insert<ID: PostgresEncodable>(
    _ items: [(id: ID, line: LineID)], _ table: String, _ column: String
  ) -> [SQL] {
    items.map { "(\($0.id), \($0.line.environment), \($0.line.originalTransactionID))" }.rowLists
      .map { rows in
        """
        INSERT INTO tenure.\(unescaped: table) (\(unescaped: column), environment,
          original_transaction_id)
        VALUES \(rows)
        ON CONFLICT (\(unescaped: column), environment) DO NOTHING
        """
      }
  }

  // MARK: Results

  /// Reads the results, and pairs every line with the others on which the same charge is known.
  func links(from results: ArraySlice<Rows>) throws -> [Link] {
    let results = Array(results.suffix(2))
    var lines: [Name: Set<LineID>] = [:]
    for (id, environment, original) in try results[0].decode(
      TransactionID.self, Environment.self, OriginalTransactionID.self)
    {
      lines[.transaction(environment, id), default: []].insert(LineID(environment, original))
    }
    for (id, environment, original) in try results[1].decode(
      WebOrderLineItemID.self, Environment.self, OriginalTransactionID.self)
    {
      lines[.lineItem(environment, id), default: []].insert(LineID(environment, original))
    }
    // Within one arrival, too, one transaction may stand under two original ids.
    for occurrence in occurrences {
      for name in occurrence.names { lines[name, default: []].insert(occurrence.line) }
    }
    let pairs = Set(
      occurrences.flatMap { occurrence in
        occurrence.names.flatMap { lines[$0] ?? [] }.filter { $0 != occurrence.line }
          .map { [$0, occurrence.line].sorted() }
      })
    return pairs.map { Link(line: $0[1], previous: $0[0]) }.sorted { $0.line < $1.line }
  }
}
