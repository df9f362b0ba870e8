import Foundation
import Postgres
import Subscriptions

/// A page of a table; it may contain fewer rows than were read, and `next` is nil on the last one.
package struct ExportPage<Row: Sendable, Place: Sendable>: Sendable {
  package var rows: [Row]
  /// The position after which the next page begins.
  package var next: Place?
}

package struct ExportStore: LedgerStore {
  package let core: LedgerCore

  /// Rows per page: large enough to hide the round trip, small enough for little memory.
  package static let exportPage = 2000

  /// Reads the rows of a table after a position, in the order of its key.
  package func page(of table: ExportTable, after last: [String]? = nil) async throws
    -> ExportPage<[String?], [String]>
  {
    let found = try await database.query(table.select(after: last, limit: Self.exportPage))
    let rows = try found.indices.map { row in
      var cursor = RowCursor(rows: found, row: row)
      return try table.fields.map { _ in try cursor.next(String?.self) }
    }
    var page = ExportTable.Page(table: table, rows: rows)
    try await table.complete(self, &page)
    let isLast = page.rows.count == found.count && found.count < Self.exportPage
    let next = isLast ? nil : page.rows.indices.last.map(page.place)
    try await nameAccounts(in: &page)
    return ExportPage(rows: page.rows, next: next)
  }

  /// Replaces account keys by IDs, read separately because they may be on another node, and leaves
  /// out the rows without a required account.
  private func nameAccounts(in page: inout ExportTable.Page) async throws {
    let columns = page.table.fields.indices.filter { page.table.fields[$0].isAccount }
    func key(_ text: String?) -> AccountKey? {
      text.flatMap(UUID.init(uuidString:)).map(AccountKey.init)
    }
    let names = try await ownership.accountIDs(
      of: Set(page.rows.flatMap { row in columns.compactMap { key(row[$0]) } }))
    for row in page.rows.indices {
      for column in columns {
        page.rows[row][column] = key(page.rows[row][column]).flatMap { names[$0] }
      }
    }
    if let required = page.table.required { page.rows.removeAll { $0[required] == nil } }
  }

  /// Reads administrator actions before another, latest first.
  package func exportAdministratorActions(before first: Int64?) async throws
    -> ExportPage<AdministratorAction, Int64>
  {
    let actions = try await administration.administratorActions(
      before: first, limit: Self.exportPage)
    return ExportPage(rows: actions, next: actions.count < Self.exportPage ? nil : actions.last?.id)
  }

  // MARK: Rows that other tables complete

  /// Adds orders and deliveries from before a transaction became an alias of another charge.
  func addWhatAliasesFulfilled(to page: inout ExportTable.Page) async throws {
    let places = Dictionary(
      uniqueKeysWithValues: page.rows.indices.map {
        (page.place(ofRow: $0).map(ExactText.init), $0)
      })
    let lines = try await ownership.linked(
      to: page.values("original_transaction_id").map(OriginalTransactionID.init))
    let aliases = try await database.query(
      """
      SELECT environment, charge_original_transaction_id, charge_transaction_id,
        charge_product_id, order_id::text, \(unescaped: ExportTable.time("delivered_at"))
      FROM tenure.store_transaction
      WHERE environment = ANY(\(Environment.allCases)) AND original_transaction_id = ANY(\(lines))
        AND rule IS NULL AND (order_id IS NOT NULL OR delivered_at IS NOT NULL)
      ORDER BY recorded_at, original_transaction_id, number
      """
    ).decode(String.self, String.self, String.self, String.self, String?.self, String?.self)
    for (environment, original, transaction, product, order, deliveredAt) in aliases {
      let key = [environment, original, transaction, product].map(ExactText.init(rawValue:))
      guard let row = places[key] else { continue }
      page[row, "order_id"] = page[row, "order_id"] ?? order
      page[row, "delivered_at"] = [page[row, "delivered_at"], deliveredAt].compactMap(\.self).min()
    }
  }

  /// Adds the dates of creation: the table `account` is keyed by ID.
  func addCreationDates(to page: inout ExportTable.Page) async throws {
    let created = Dictionary(
      try await database.query(
        """
        SELECT account_key::text, \(unescaped: ExportTable.time("created_at")) FROM tenure.account
        WHERE account_id = ANY(\(page.values("account_id")))
        """
      ).decode(String.self, String.self), uniquingKeysWith: { first, _ in first })
    for row in page.rows.indices {
      page[row, "created_at"] = page[row, "account_key"].flatMap { created[$0] }
    }
  }

  /// Adds the bodies of notifications, and drops those that don't fit into the page.
  ///
  /// - Parameter limit: The size of the bodies at most; a single notification may be larger.
  func addBodies(to page: inout ExportTable.Page, bytes limit: Int) async throws {
    let digests = Dictionary(
      try await database.query(
        """
        SELECT notification_id, body_sha256 FROM tenure.notification
        WHERE notification_id = ANY(\(page.values("notification_id")))
        """
      ).decode(String.self, [UInt8].self).map { ($0, $1) }, uniquingKeysWith: { first, _ in first })
    let known = Dictionary(
      try await database.query(
        """
        SELECT sha256, bytes::text, \(unescaped: ExportTable.time("pruned_at")) FROM tenure.body
        WHERE sha256 = ANY(\(Array(Set(digests.values))))
        """
      ).decode([UInt8].self, String.self, String?.self).map { ($0, (bytes: $1, prunedAt: $2)) },
      uniquingKeysWith: { first, _ in first })
    var fitting: Set<[UInt8]> = []
    var (count, bytes) = (0, 0)
    for row in page.rows.indices {
      let digest = page[row, "notification_id"].flatMap { digests[$0] }
      let body = digest.flatMap { known[$0] }
      (page[row, "bytes"], page[row, "aged_out_at"]) = (body?.bytes, body?.prunedAt)
      if let digest, let body, body.prunedAt == nil {
        bytes += Int(body.bytes) ?? 0
        guard row == 0 || bytes <= limit else { break }
        fitting.insert(digest)
      }
      count += 1
    }
    page.rows.removeLast(page.rows.count - count)
    let bodies = try await database.bodies(fitting)
    for row in page.rows.indices {
      let digest = page[row, "notification_id"].flatMap { digests[$0] }
      page[row, "body"] = digest.flatMap { bodies[$0]?.text }
    }
  }

  func addPolls(to page: inout ExportTable.Page) async throws {
    let subjects = zip(page.values("environment"), page.values("original_transaction_id"))
      .map { "\($0)/\($1)" }
    let jobs = Dictionary(
      try await database.query(
        """
        SELECT subject, \(unescaped: ExportTable.time("discarded_at")), last_error FROM tenure.job
        WHERE kind = \(Job.Kind.pollStatus) AND subject = ANY(\(subjects))
        """
      ).decode(String.self, String?.self, String?.self).map { ($0, (givenUpAt: $1, reason: $2)) },
      uniquingKeysWith: { first, _ in first })
    for (row, subject) in zip(page.rows.indices, subjects) {
      (page[row, "given_up_at"], page[row, "reason"]) =
        (jobs[subject]?.givenUpAt, jobs[subject]?.reason)
    }
  }

  // MARK: Imports and accounts

  /// Counts the imported original transactions and how many Apple has confirmed.
  package func importProgress() async throws -> ImportProgress {
    let results = try await database.batch([
      """
      SELECT count(*), count(*) FILTER (WHERE t.latest_charged_at IS NOT NULL)
      FROM tenure.original_transaction AS t
      WHERE EXISTS (
        SELECT FROM tenure.ownership_action AS p
        WHERE p.environment = t.environment
          AND p.original_transaction_id = t.original_transaction_id AND p.transaction_id IS NULL)
      """,
      """
      SELECT count(*)
      FROM tenure.job AS j
      JOIN tenure.original_transaction AS t
        ON t.environment = split_part(j.subject, '/', 1)
        AND t.original_transaction_id = substr(j.subject, strpos(j.subject, '/') + 1)
      WHERE j.kind = \(Job.Kind.pollStatus) AND j.discarded_at IS NOT NULL
        AND t.latest_charged_at IS NULL
      """,
    ])
    var progress = ImportProgress()
    (progress.lines, progress.verified) = try results[0].decodeOnly(Int.self, Int.self)
    progress.unverifiable = try results[1].decodeOnly(Int.self)
    progress.waiting = max(0, progress.lines - progress.verified - progress.unverifiable)
    return progress
  }

  /// Reads account IDs after another, in order, without erased accounts.
  package func exportAccounts(after last: String?, limit: Int) async throws
    -> ExportPage<String, String>
  {
    let page = try await database.query(
      """
      SELECT account_id, account_key FROM tenure.account WHERE account_id > \(last ?? "")
      ORDER BY account_id LIMIT \(limit)
      """
    ).decode(String.self, AccountKey.self)
    return ExportPage(
      rows: page.filter { AccountID($0.0) != AccountID(Account.pseudonym(of: $0.1)) }.map(\.0),
      next: page.count < limit ? nil : page.last?.0)
  }
}
