import Postgres
package import Subscriptions

/// Rows in a transaction's temporary table, by which PostgreSQL sorts them.
package struct StagedRows: Sendable {
  package typealias Row = (line: OriginalTransactionKey, text: String)

  private static let page = 5000

  let transaction: Transaction

  package func add(_ rows: [Row]) async throws {
    _ = try await transaction.query(
      """
      INSERT INTO pg_temp.staged_row (environment, original_transaction_id, body)
      SELECT * FROM unnest(\(rows.map(\.line.environment.rawValue)),
        \(rows.map(\.line.originalTransactionID)), \(rows.map(\.text)))
      """)
  }

  /// Calls `body` once for each original transaction, with its rows in the order of adding.
  package func forEach(_ body: (OriginalTransactionKey, [String]) throws -> Void) async throws {
    _ = try await transaction.batch(
      [
        """
        DECLARE staged_rows NO SCROLL CURSOR FOR
        SELECT environment, original_transaction_id, body FROM pg_temp.staged_row
        ORDER BY environment, original_transaction_id, number
        """
      ], deadline: LedgerAuditor.auditDeadline)
    var (line, texts): (OriginalTransactionKey?, [String]) = (nil, [])
    while true {
      // The first one sorts.
      let rows = try await transaction.batch(
        ["FETCH \(unescaped: "\(Self.page)") FROM staged_rows"],
        deadline: LedgerAuditor.auditDeadline)[0].decode(OriginalTransactionKey.self, String.self)
      guard !rows.isEmpty else { break }
      for (next, text) in rows {
        if let line, line != next {
          try body(line, texts)
          texts = []
        }
        line = next
        texts.append(text)
      }
    }
    if let line { try body(line, texts) }
  }
}

extension ImportStore {
  /// Lets `body` add rows and read them sorted; `body` runs again after losing the connection.
  package func withStagedRows<Value: Sendable>(
    _ body: (StagedRows) async throws -> Value
  ) async throws -> Value {
    try await database.withTransaction { transaction in
      _ = try await transaction.query(
        """
        CREATE TEMPORARY TABLE staged_row (
          number bigint GENERATED ALWAYS AS IDENTITY, environment text NOT NULL,
          original_transaction_id text NOT NULL, body text NOT NULL
        ) ON COMMIT DROP
        """)
      let value = try await body(StagedRows(transaction: transaction))
      await transaction.rollBack()
      return value
    }
  }
}
