import Postgres
package import Subscriptions

/// What Tenure knows, page by page, for who moves in or out.
extension Ledger {
  /// How many rows a page has: enough that the round trip does not count, and little memory.
  package static let exportPage = 2000

  /// Counts what was imported, and how much of it Apple has confirmed.
  package func importProgress() async throws -> ImportProgress {
    let results = try await database.batch([
      """
      SELECT count(*), count(*) FILTER (WHERE t.latest_charged_at IS NOT NULL)
      FROM tenure.original_transaction AS t
      WHERE EXISTS (
        SELECT FROM tenure.placement AS p
        WHERE p.environment = t.environment
          AND p.original_transaction_id = t.original_transaction_id AND p.transaction_id IS NULL)
      """,
      """
      SELECT count(*)
      FROM tenure.job AS j
      JOIN tenure.original_transaction AS t
        ON t.environment = split_part(j.subject, '/', 1)
        AND t.original_transaction_id = substr(j.subject, strpos(j.subject, '/') + 1)
      WHERE j.kind = \(Job.Task.Kind.pollLine) AND j.parked_at IS NOT NULL
        AND t.latest_charged_at IS NULL
      """,
    ])
    var progress = ImportProgress()
    (progress.lines, progress.verified) = try results[0].decodeOnly(Int.self, Int.self)
    progress.unverifiable = try results[1].decodeOnly(Int.self)
    progress.waiting = max(0, progress.lines - progress.verified - progress.unverifiable)
    return progress
  }

  /// A line with the account that it is bound to.
  package struct ExportedOwner: Hashable, Sendable {
    package var line: LineID
    package var accountID: String
    /// The app; nil: nobody has said.
    package var bundleID: String?
    /// What an import named to ask Apple with.
    package var transactionID: TransactionID?
  }

  /// A page of the table of lines.
  ///
  /// What is exported of it may be less: the page is over when `next` is nil.
  package struct ExportPage<Row: Sendable, Place: Sendable>: Sendable {
    package var rows: [Row]
    /// Behind which the next page begins; nil: this was the last one.
    package var next: Place?
  }

  /// Reads the lines behind another that are bound to somebody, in the order of their ids.
  ///
  /// A line of which Apple was never heard is whose the import says.
  package func exportOwners(after last: LineID?) async throws -> ExportPage<ExportedOwner, LineID> {
    let page = try await linePage(after: last, where: "true")
    let names = try await accountIDs(of: Set(page.compactMap(\.owner)))
    let lines = page.map(\.line)
    let apps = try await bundleIDs(of: lines)
    let transactions = try await importedTransactions(of: lines)
    return ExportPage(
      rows: page.compactMap { row in
        row.owner.flatMap { names[$0] }.map {
          ExportedOwner(
            line: row.line, accountID: $0, bundleID: apps[row.line],
            transactionID: transactions[row.line])
        }
      }, next: page.count < Self.exportPage ? nil : page.last?.line)
  }

  /// The apps that lines belong to, where anybody has said.
  private func bundleIDs(of lines: [LineID]) async throws -> [LineID: String] {
    let found = try await database.query(
      """
      SELECT environment, original_transaction_id, bundle_id FROM tenure.line_source
      WHERE environment = ANY(\(Environment.allCases))
        AND original_transaction_id = ANY(\(lines.map(\.originalTransactionID)))
        AND bundle_id IS NOT NULL
      """
    ).decode(Environment.self, OriginalTransactionID.self, String.self)
    return Dictionary(
      found.map { (LineID($0, $1), $2) }, uniquingKeysWith: { first, _ in first })
  }

  /// What imports named to ask Apple with about lines, beside receipts.
  private func importedTransactions(of lines: [LineID]) async throws -> [LineID: TransactionID] {
    let found = try await database.query(
      """
      SELECT environment, original_transaction_id, transaction_id FROM tenure.imported_source
      WHERE environment = ANY(\(Environment.allCases))
        AND original_transaction_id = ANY(\(lines.map(\.originalTransactionID)))
        AND transaction_id IS NOT NULL
      """
    ).decode(Environment.self, OriginalTransactionID.self, TransactionID.self)
    return Dictionary(
      found.map { (LineID($0, $1), $2) }, uniquingKeysWith: { first, _ in first })
  }

  /// Reads the imported lines behind another of which Apple has told nothing yet.
  package func exportUnverified(after last: LineID?) async throws
    -> ExportPage<UnverifiedImport, LineID>
  {
    let page = try await linePage(after: last, where: "latest_charged_at IS NULL")
    let names = try await accountIDs(of: Set(page.compactMap(\.owner)))
    let subjects = page.map { Job.Task.pollLine($0.line).subject }
    let jobs = Dictionary(
      try await database.query(
        """
        SELECT subject, parked_at, last_error FROM tenure.job
        WHERE kind = \(Job.Task.Kind.pollLine) AND subject = ANY(\(subjects))
        """
      ).decode(String.self, Timestamp?.self, String?.self).map { ($0.0, ($0.1, $0.2)) },
      uniquingKeysWith: { first, _ in first })
    return ExportPage(
      rows: zip(page, subjects).compactMap { row, subject in
        guard let account = row.owner.flatMap({ names[$0] }) else { return nil }
        let job = jobs[subject]
        return UnverifiedImport(
          line: row.line, accountID: account, givenUpAt: job?.0, reason: job?.1)
      }, next: page.count < Self.exportPage ? nil : page.last?.line)
  }

  /// Lines, each with who owns its latest charge or whom it was imported for.
  private func linePage(after last: LineID?, where condition: SQL) async throws
    -> [(line: LineID, owner: AccountKey?)]
  {
    let rows = try await database.query(
      """
      SELECT environment, original_transaction_id, latest_charged_at, latest_owner_key
      FROM tenure.original_transaction
      WHERE (environment, original_transaction_id)
          > (\(last?.environment.rawValue ?? ""), \(last?.originalTransactionID.rawValue ?? ""))
        AND \(condition)
      ORDER BY environment, original_transaction_id LIMIT \(Self.exportPage)
      """
    ).decode(Environment.self, OriginalTransactionID.self, Timestamp?.self, AccountKey?.self)
    var page = rows.map { (line: LineID($0.0, $0.1), owner: $0.3) }
    let unheardOf = rows.filter { $0.2 == nil }.map { LineID($0.0, $0.1) }
    guard !unheardOf.isEmpty else { return page }
    var owners: [LineID: AccountKey] = [:]
    for (environment, lines) in Dictionary(grouping: unheardOf, by: \.environment) {
      let ids = lines.map(\.originalTransactionID)
      for (id, account) in try await database.query(
        """
        SELECT original_transaction_id, account_key FROM tenure.placement
        WHERE environment = \(environment) AND original_transaction_id = ANY(\(ids))
          AND transaction_id IS NULL
        ORDER BY original_transaction_id, number
        """
      ).decode(OriginalTransactionID.self, AccountKey.self) {
        owners[LineID(environment, id)] = account
      }
    }
    for index in page.indices where page[index].owner == nil {
      page[index].owner = owners[page[index].line]
    }
    return page
  }

  /// Reads the accounts behind another, in the order of their ids, but for those who were erased.
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
