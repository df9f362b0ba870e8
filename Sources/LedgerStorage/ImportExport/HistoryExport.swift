package import Foundation
import Postgres
package import Subscriptions

// The complete history, page by page: entries, checkpoints, exchange rates, accounts, submissions,
// administrator actions, notifications and write-backs.
extension ExportStore {
  /// An entry as stored.
  package struct ExportedEntry: Hashable, Sendable {
    package var line: OriginalTransactionKey
    /// From 1 in each original transaction, without gaps.
    package var number: Int
    package var recordedAt: Timestamp
    package var kind: String
    /// Nil for actions and decisions.
    package var evidenceDate: Timestamp?
    package var source: String
    package var sourceID: String?
    /// The version of the body's encoding.
    package var format: Int16
    /// JSON with account keys instead of IDs.
    package var body: String
    /// SHA-256 over the preceding hash and this entry, in hexadecimal.
    package var hash: String
    /// Determines which checkpoints cover the entry; by the database's clock.
    package var storedAt: Timestamp
  }

  package typealias EntryPlace = (line: OriginalTransactionKey, number: Int)

  /// Reads entries after another, ordered by original transaction and number.
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
        line: OriginalTransactionKey($0, $1), number: $2, recordedAt: $3, kind: $4,
        evidenceDate: $5, source: $6,
        sourceID: $7, format: $8, body: $9, hash: $10, storedAt: $11)
    }
    return ExportPage(
      rows: entries,
      next: entries.count < Self.exportPage ? nil : entries.last.map { ($0.line, $0.number) })
  }

  /// A checkpoint over all hash chains, made by an audit.
  package struct ExportedCheckpoint: Hashable, Sendable {
    package var id: Int64
    /// Covers the entries stored before this time.
    package var storedBefore: Timestamp
    package var entries: Int
    /// The exclusive or of these entries' hashes, in hexadecimal.
    package var digest: String
  }

  /// Reads checkpoints after another, in order of creation.
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

  /// The value of a unit of a currency in the reporting currency, from a day on.
  package struct ExportedRate: Hashable, Sendable {
    package var reportingCurrency: String
    package var currency: String
    /// A date such as `2026-11-21`.
    package var validFrom: String
    /// A decimal fraction as entered, of any length.
    package var rate: String
    /// In UTC with microseconds; a correction is a row of its own.
    package var recordedAt: String
  }

  package typealias RatePlace = (
    reportingCurrency: String, currency: String, validFrom: String, recordedAt: String
  )

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

  package struct ExportedAccount: Hashable, Sendable {
    package var key: AccountKey
    /// The app's ID, or the pseudonym once erased.
    package var id: String
    package var appAccountToken: UUID
    /// Nil once erased.
    package var createdAt: Timestamp?
    package var erasedAt: Timestamp?
    package var mergedInto: AccountKey?
    /// Whether consumption data may be sent to Apple; nil if never set.
    package var hasConsumptionConsent: Bool?
    package var consentDecidedAt: Timestamp?
  }

  /// Reads accounts after another, including erased ones.
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
    // The table `account` is keyed by ID.
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

  /// A submission without its payload.
  package struct ExportedSubmission: Hashable, Sendable {
    package var id: UUID
    package var accountID: String
    package var receivedAt: Timestamp
    package var isRestore: Bool
    package var transactionID: String?
    package var orderID: UUID?
    package var bundleID: String?
    package var status: String
    package var environment: Environment?
    package var decidedAt: Timestamp?
    package var problem: String?
  }

  /// Reads submissions after another, by ID, which is about the order of arrival.
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
    let names = try await ownership.accountIDs(of: Set(rows.map(\.1)))
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

  /// Reads administrator actions before another, latest first.
  package func exportActs(before first: Int64?) async throws -> ExportPage<
    AdministratorAction, Int64
  > {
    let acts = try await administration.administratorActs(before: first, limit: Self.exportPage)
    return ExportPage(rows: acts, next: acts.count < Self.exportPage ? nil : acts.last?.id)
  }
}

extension ExportStore {
  /// The size of the bodies on a page at most, if it contains more than one.
  package static let exportedBodyBytes = 8 << 20

  package struct ExportedNotification: Hashable, Sendable {
    package var id: String
    package var version: Int
    package var receivedAt: Timestamp
    /// `delivered`, or `history` if it was missing and found in Apple's history.
    package var arrival: String
    package var signedAt: Timestamp?
    package var notificationType: String?
    package var subtype: String?
    package var environment: Environment?
    package var bundleID: String?
    package var originalTransactionID: String?
    package var transactionID: String?
    package var processedAt: Timestamp?
    /// Nil until processed.
    package var outcome: String?
    package var problem: String?
    package var agedOutAt: Timestamp?
    /// The body's length, even if it was pruned.
    package var bytes: Int
    /// The body's SHA-256 in hexadecimal.
    package var sha256 = ""
    /// Nil if it was pruned.
    package var body: String?
  }

  /// Reads notifications after another, by ID.
  ///
  /// - Parameter limit: The size of the bodies at most; a single notification may be larger.
  package func exportNotifications(after last: String?, bodyBytes limit: Int = exportedBodyBytes)
    async throws -> ExportPage<ExportedNotification, String>
  {
    let found = try await database.query(
      """
      SELECT notification_id, version, received_at, arrival, signed_at, notification_type, subtype,
        environment, bundle_id, original_transaction_id, transaction_id, processed_at, outcome,
        problem, pruned_at, coalesce(bytes, octet_length(body))
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
    // Only as many bodies are read as fit into a page.
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

  /// A pending or completed write-back to Apple.
  package struct ExportedWriteBack: Hashable, Sendable {
    package var id: Int64
    package var writeBack: WriteBack
    /// The account of the token or purchase, if any.
    package var accountID: String?
  }

  package typealias WriteBackPlace = (line: OriginalTransactionKey, id: Int64)

  /// Reads write-backs after another, ordered by original transaction.
  package func exportWriteBacks(after last: WriteBackPlace?) async throws
    -> ExportPage<ExportedWriteBack, WriteBackPlace>
  {
    let rest =
      last.map { last -> SQL in
        """
        (environment, original_transaction_id, telling_id)
          > (\(last.line.environment), \(last.line.originalTransactionID), \(last.id))
        """
      } ?? "true"
    let found = try WriteBack.tellings(
      from: await database.query(
        """
        SELECT \(WriteBack.columns) FROM tenure.app_store_write_back
        WHERE \(rest)
        ORDER BY environment, original_transaction_id, telling_id LIMIT \(Self.exportPage)
        """))
    let names = try await ownership.accountIDs(of: Set(found.compactMap(\.writeBack.account)))
    return ExportPage(
      rows: found.map { row in
        ExportedWriteBack(
          id: row.id, writeBack: row.writeBack,
          accountID: row.writeBack.account.flatMap { names[$0] })
      },
      next: found.count < Self.exportPage ? nil : found.last.map { ($0.writeBack.line, $0.id) })
  }
}
