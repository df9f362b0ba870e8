import Postgres
package import Subscriptions

extension LedgerAuditor {
  private static let auditPage = 1000
  /// Original transactions or accounts that are read by one database transaction.
  private static let auditPart = 50
  private static let concurrency = 4

  /// Reads original transactions page by page, and returns whether there were no more than `limit`.
  ///
  /// - Parameter moment: Leaves out those without an entry since then, by the database's clock.
  @discardableResult
  func forEachPage(
    after start: OriginalTransactionKey? = nil, storedSince moment: Timestamp? = nil,
    where condition: SQL = "true", limit: Int? = nil, reporting progress: (AuditProgress) -> Void,
    _ body: ([OriginalTransactionKey]) async throws -> Void
  ) async throws -> Bool {
    let total = try await database.query(
      """
      SELECT count(*) FROM tenure.original_transaction
      WHERE (environment, original_transaction_id)
        > (\(start?.environment.rawValue ?? ""), \(start?.originalTransactionID.rawValue ?? ""))
        AND \(condition)
        AND (\(moment)::timestamptz IS NULL OR head_stored_at >= \(moment))
      """, deadline: Self.auditDeadline
    ).decodeOnly(Int.self)
    var (done, last) = (0, start)
    while true {
      let page = try await ownership.lines(
        after: last, storedSince: moment, where: condition,
        limit: min(Self.auditPage, (limit ?? .max) - done), deadline: Self.auditDeadline)
      guard let end = page.last else { return done >= total }
      last = end
      try await body(page)
      done += page.count
      progress(AuditProgress(done: done, total: max(done, total), last: end))
    }
  }

  /// Runs a page in parts, several at a time, and returns their results in order.
  func inParts<Key: Sendable, Value: Sendable>(
    _ page: [Key], _ body: @escaping @Sendable ([Key]) async throws -> Value
  ) async throws -> [Value] {
    try await page.batches(of: Self.auditPart).mapConcurrently(atOnce: Self.concurrency, body)
  }
}

/// How far an audit or a rebuild is.
package struct AuditProgress: Sendable {
  package let done: Int
  /// Those that were there at the start, and are to be done.
  package let total: Int
  /// The last one that is done, after which another run can continue.
  package let last: OriginalTransactionKey
}
