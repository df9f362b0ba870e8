import Postgres
package import Subscriptions

/// What Apple has sent, and what it was told, page by page, for who moves out or keeps a copy.
extension Ledger {
  /// How many bytes of bodies a page has at the most, where it has more than one.
  package static let exportedBodyBytes = 8 << 20

  /// A notification as Apple sent it, and what came of it.
  package struct ExportedNotification: Hashable, Sendable {
    package var id: String
    package var version: Int
    package var receivedAt: Timestamp
    /// `delivered`, or `history`: it was missing, and was found there.
    package var arrival: String
    package var signedAt: Timestamp?
    package var notificationType: String?
    package var subtype: String?
    package var environment: Environment?
    package var bundleID: String?
    package var originalTransactionID: String?
    package var transactionID: String?
    package var processedAt: Timestamp?
    /// Nil: it is not processed yet.
    package var outcome: String?
    package var problem: String?
    package var agedOutAt: Timestamp?
    /// The length of the body, which it may have had.
    package var bytes: Int
    /// The body's SHA-256, in hexadecimal digits.
    package var sha256 = ""
    /// Nil: it was aged out.
    package var body: String?
  }

  /// Reads the notifications behind another, in the order of their ids.
  ///
  /// - Parameters:
  ///   - last: The id of that one; nil: from the first.
  ///   - limit: How many bytes of bodies there may be; of a single notification, any number.
  /// - Returns: The notifications.
  /// - Throws: What the database says.
  package func exportNotifications(after last: String?, bodyBytes limit: Int = exportedBodyBytes)
    async throws -> ExportPage<ExportedNotification, String>
  {
    let found = try await database.query(
      """
      SELECT notification_id, version, received_at, arrival, signed_at, notification_type, subtype,
        environment, bundle_id, original_transaction_id, transaction_id, processed_at, outcome,
        problem, aged_out_at, coalesce(bytes, octet_length(body))
      FROM tenure.notification
      WHERE notification_id > \(last ?? "")
      ORDER BY notification_id LIMIT \(Self.exportPage)
      """
    ).decode(
      String.self, Int16.self, Timestamp.self, String.self, Timestamp?.self, String?.self,
      String?.self, Environment?.self, String?.self, String?.self, String?.self, Timestamp?.self,
      String?.self, String?.self, Timestamp?.self, Int.self
    ).map { row in
      ExportedNotification(
        id: row.0, version: Int(row.1), receivedAt: row.2, arrival: row.3, signedAt: row.4,
        notificationType: row.5, subtype: row.6, environment: row.7, bundleID: row.8,
        originalTransactionID: row.9, transactionID: row.10, processedAt: row.11,
        outcome: row.12, problem: row.13, agedOutAt: row.14, bytes: row.15)
    }
    // Bodies are read for as many as are together no more than a page may have.
    var (rows, bytes): ([ExportedNotification], Int) = ([], 0)
    for row in found {
      bytes += row.agedOutAt == nil ? row.bytes : 0
      guard rows.isEmpty || bytes <= limit else { break }
      rows.append(row)
    }
    let bodies = Dictionary(
      try await database.query(
        """
        SELECT notification_id, encode(coalesce(sha256, sha256(convert_to(body, 'UTF8'))), 'hex'),
          body
        FROM tenure.notification WHERE notification_id = ANY(\(rows.map(\.id)))
        """
      ).decode(String.self, String.self, String?.self).map { ($0, (sha256: $1, body: $2)) },
      uniquingKeysWith: { first, _ in first })
    for index in rows.indices {
      guard let body = bodies[rows[index].id] else { continue }
      (rows[index].sha256, rows[index].body) = (body.sha256, body.body)
    }
    let isLast = rows.count == found.count && found.count < Self.exportPage
    return ExportPage(rows: rows, next: isLast ? nil : rows.last?.id)
  }

  /// What Apple was told, or was to be told.
  package struct ExportedTelling: Hashable, Sendable {
    package var id: Int64
    package var telling: AppleTelling
    /// Whose token it is, or whose purchase; nil: nobody's.
    package var accountID: String?
  }

  /// The place of a telling among all.
  package typealias TellingPlace = (line: LineID, id: Int64)

  /// Reads what Apple was told behind another telling, of a line together and in order.
  package func exportTellings(after last: TellingPlace?) async throws
    -> ExportPage<ExportedTelling, TellingPlace>
  {
    let rest =
      last.map { last -> SQL in
        """
        (environment, original_transaction_id, telling_id)
          > (\(last.line.environment), \(last.line.originalTransactionID), \(last.id))
        """
      } ?? "true"
    let found = try AppleTelling.tellings(
      from: await database.query(
        """
        SELECT \(AppleTelling.columns) FROM tenure.apple_telling
        WHERE \(rest)
        ORDER BY environment, original_transaction_id, telling_id LIMIT \(Self.exportPage)
        """))
    let names = try await accountIDs(of: Set(found.compactMap(\.telling.account)))
    return ExportPage(
      rows: found.map { row in
        ExportedTelling(
          id: row.id, telling: row.telling,
          accountID: row.telling.account.flatMap { names[$0] })
      },
      next: found.count < Self.exportPage ? nil : found.last.map { ($0.telling.line, $0.id) })
  }
}
