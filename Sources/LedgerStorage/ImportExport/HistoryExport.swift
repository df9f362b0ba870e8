package import Foundation
import Postgres
package import Subscriptions

/// What everything follows from, page by page, for who moves out or keeps a copy: the ledger's
/// entries, what app servers submitted, whom the keys in both stand for, and who did what.
extension Ledger {
  /// An entry of the ledger as it is stored.
  package struct ExportedEntry: Hashable, Sendable {
    package var line: LineID
    /// From 1 in each line, without gaps.
    package var number: Int
    package var recordedAt: Timestamp
    package var kind: String
    /// Nil: it is an act, or a decision.
    package var evidenceDate: Timestamp?
    package var source: String
    package var sourceID: String?
    /// That of the body.
    package var format: Int16
    /// JSON; it names accounts by their keys.
    package var body: String
    /// SHA-256, over the hash of the entry before as well, in hexadecimal digits.
    package var hash: String
    /// By the database's clock: it tells which checkpoints the entry is under.
    package var storedAt: Timestamp
  }

  /// The place of an entry among all.
  package typealias EntryPlace = (line: LineID, number: Int)

  /// Reads the entries behind another, those of a line together and in order.
  package func exportEntries(after last: EntryPlace?) async throws
    -> ExportPage<ExportedEntry, EntryPlace>
  {
    let rest =
      last.map { last -> SQL in
        """
        (environment, original_transaction_id, number)
          > (\(last.line.environment), \(last.line.originalTransactionID), \(last.number))
        """
      } ?? "true"
    let entries = try await database.query(
      """
      SELECT environment, original_transaction_id, number, recorded_at, kind, evidence_date,
        source, source_id, format, body, encode(hash, 'hex'), stored_at
      FROM tenure.ledger_entry
      WHERE \(rest)
      ORDER BY environment, original_transaction_id, number LIMIT \(Self.exportPage)
      """
    ).decode(
      Environment.self, OriginalTransactionID.self, Int.self, Timestamp.self, String.self,
      Timestamp?.self, String.self, String?.self, Int16.self, String.self, String.self,
      Timestamp.self
    ).map {
      ExportedEntry(
        line: LineID($0, $1), number: $2, recordedAt: $3, kind: $4, evidenceDate: $5, source: $6,
        sourceID: $7, format: $8, body: $9, hash: $10, storedAt: $11)
    }
    return ExportPage(
      rows: entries,
      next: entries.count < Self.exportPage ? nil : entries.last.map { ($0.line, $0.number) })
  }

  /// A mark over all chains, as an audit made it.
  package struct ExportedCheckpoint: Hashable, Sendable {
    package var id: Int64
    /// Entries stored before this moment are under the mark.
    package var storedBefore: Timestamp
    package var entries: Int
    /// The exclusive or of the hashes of those entries, in hexadecimal digits.
    package var digest: String
  }

  /// Reads the checkpoints behind another, in the order in which they were made.
  package func exportCheckpoints(after last: Int64?) async throws
    -> ExportPage<ExportedCheckpoint, Int64>
  {
    let checkpoints = try await database.query(
      """
      SELECT checkpoint_id, stored_before, entries, encode(digest, 'hex')
      FROM tenure.ledger_checkpoint
      WHERE checkpoint_id > \(last ?? 0)
      ORDER BY checkpoint_id LIMIT \(Self.exportPage)
      """
    ).decode(Int64.self, Timestamp.self, Int.self, String.self).map {
      ExportedCheckpoint(id: $0, storedBefore: $1, entries: $2, digest: $3)
    }
    return ExportPage(
      rows: checkpoints,
      next: checkpoints.count < Self.exportPage ? nil : checkpoints.last?.id)
  }

  /// What a unit of a currency is worth in another, from a day on.
  package struct ExportedRate: Hashable, Sendable {
    package var reportingCurrency: String
    package var currency: String
    /// A date, as in `2026-11-21`.
    package var validFrom: String
    /// As it was written: a decimal fraction of any length.
    package var rate: String
    /// When it was told, in UTC to the microsecond: a correction is a row of its own.
    package var recordedAt: String
  }

  /// The place of a rate among all.
  package typealias RatePlace = (
    reportingCurrency: String, currency: String, validFrom: String, recordedAt: String
  )

  /// Reads the exchange rates behind another.
  package func exportRates(after last: RatePlace?) async throws
    -> ExportPage<ExportedRate, RatePlace>
  {
    let rest =
      last.map { last -> SQL in
        """
        (reporting_currency, currency, valid_from, recorded_at)
          > (\(last.reportingCurrency), \(last.currency), \(last.validFrom)::date,
            \(last.recordedAt)::timestamptz)
        """
      } ?? "true"
    let rates = try await database.query(
      """
      SELECT reporting_currency, currency, to_char(valid_from, 'YYYY-MM-DD'), rate::text,
        to_char(recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM tenure.exchange_rate
      WHERE \(rest)
      ORDER BY reporting_currency, currency, valid_from, recorded_at LIMIT \(Self.exportPage)
      """
    ).decode(String.self, String.self, String.self, String.self, String.self).map {
      ExportedRate(
        reportingCurrency: $0, currency: $1, validFrom: $2, rate: $3, recordedAt: $4)
    }
    return ExportPage(
      rows: rates,
      next: rates.count < Self.exportPage
        ? nil
        : rates.last.map { ($0.reportingCurrency, $0.currency, $0.validFrom, $0.recordedAt) })
  }

  /// An account, whether a person is behind it or not any more.
  package struct ExportedAccount: Hashable, Sendable {
    package var key: AccountKey
    /// The app's name for it; once it was erased, a pseudonym.
    package var id: String
    package var appAccountToken: UUID
    /// Nil: it is gone, with the person.
    package var createdAt: Timestamp?
    package var erasedAt: Timestamp?
    /// The account into which it was merged.
    package var mergedInto: AccountKey?
    /// Whether Apple may be told what became of purchases; nil: nobody has ever said.
    package var hasConsumptionConsent: Bool?
    package var consentDecidedAt: Timestamp?
  }

  /// Reads the accounts behind another, erased ones included.
  package func exportAllAccounts(after last: AccountKey?) async throws
    -> ExportPage<ExportedAccount, AccountKey>
  {
    let rest = last.map { "k.account_key > \($0)" as SQL } ?? "true"
    var accounts = try await database.query(
      """
      SELECT k.account_key, k.account_id, k.app_account_token, k.erased_at, k.merged_into_key,
        c.is_given, c.decided_at
      FROM tenure.account_by_key AS k
      LEFT JOIN tenure.consumption_consent AS c ON c.account_key = k.account_key
      WHERE \(rest)
      ORDER BY k.account_key LIMIT \(Self.exportPage)
      """
    ).decode(
      AccountKey.self, String.self, UUID.self, Timestamp?.self, AccountKey?.self, Bool?.self,
      Timestamp?.self
    ).map {
      ExportedAccount(
        key: $0, id: $1, appAccountToken: $2, erasedAt: $3, mergedInto: $4,
        hasConsumptionConsent: $5, consentDecidedAt: $6)
    }
    // Under its name, which is another key.
    let created = Dictionary(
      try await database.query(
        """
        SELECT account_key, created_at FROM tenure.account
        WHERE account_id = ANY(\(accounts.map(\.id)))
        """
      ).decode(AccountKey.self, Timestamp.self), uniquingKeysWith: { first, _ in first })
    for index in accounts.indices { accounts[index].createdAt = created[accounts[index].key] }
    return ExportPage(
      rows: accounts, next: accounts.count < Self.exportPage ? nil : accounts.last?.key)
  }

  /// What an app server submitted, without the receipt.
  package struct ExportedSubmission: Hashable, Sendable {
    package var id: UUID
    package var accountID: String
    package var receivedAt: Timestamp
    package var isRestore: Bool
    /// What the app server asked for beside what it sent.
    package var transactionID: String?
    package var orderID: UUID?
    package var bundleID: String?
    /// `pending`, `verified` or `rejected`.
    package var status: String
    package var environment: Environment?
    package var decidedAt: Timestamp?
    /// Why it was rejected, or why it is still pending.
    package var problem: String?
  }

  /// Reads the submissions behind another, in the order of their ids, which is about that of
  /// arrival.
  package func exportSubmissions(after last: UUID?) async throws
    -> ExportPage<ExportedSubmission, UUID>
  {
    let rest = last.map { "submission_id > \($0)" as SQL } ?? "true"
    let rows = try await database.query(
      """
      SELECT submission_id, account_key, received_at, restore, transaction_id, order_id, bundle_id,
        status, environment, decided_at, problem
      FROM tenure.submission
      WHERE \(rest)
      ORDER BY submission_id LIMIT \(Self.exportPage)
      """
    ).decode(
      UUID.self, AccountKey.self, Timestamp.self, Bool.self, String?.self, UUID?.self,
      String?.self, String.self, Environment?.self, Timestamp?.self, String?.self)
    let names = try await accountIDs(of: Set(rows.map(\.1)))
    let submissions = rows.compactMap { row -> ExportedSubmission? in
      guard let account = names[row.1] else { return nil }
      return ExportedSubmission(
        id: row.0, accountID: account, receivedAt: row.2, isRestore: row.3, transactionID: row.4,
        orderID: row.5, bundleID: row.6, status: row.7, environment: row.8, decidedAt: row.9,
        problem: row.10)
    }
    return ExportPage(
      rows: submissions, next: rows.count < Self.exportPage ? nil : rows.last?.0)
  }

  /// Reads what administrators did before an act, the last one first.
  package func exportActs(before first: Int64?) async throws -> ExportPage<AdministratorAct, Int64>
  {
    let acts = try await administratorActs(before: first, limit: Self.exportPage)
    return ExportPage(rows: acts, next: acts.count < Self.exportPage ? nil : acts.last?.id)
  }
}

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
