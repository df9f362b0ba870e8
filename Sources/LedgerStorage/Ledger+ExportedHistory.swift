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
    package var source: String
    package var sourceID: String?
    /// JSON; it names accounts by their keys.
    package var body: String
    /// SHA-256, over the hash of the entry before as well, in hexadecimal digits.
    package var hash: String
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
      SELECT environment, original_transaction_id, number, recorded_at, kind, source, source_id,
        body, encode(hash, 'hex')
      FROM tenure.ledger_entry
      WHERE \(rest)
      ORDER BY environment, original_transaction_id, number LIMIT \(Self.exportPage)
      """
    ).decode(
      Environment.self, OriginalTransactionID.self, Int.self, Timestamp.self, String.self,
      String.self, String?.self, String.self, String.self
    ).map {
      ExportedEntry(
        line: LineID($0, $1), number: $2, recordedAt: $3, kind: $4, source: $5, sourceID: $6,
        body: $7, hash: $8)
    }
    return ExportPage(
      rows: entries,
      next: entries.count < Self.exportPage ? nil : entries.last.map { ($0.line, $0.number) })
  }

  /// An account, whether a person is behind it or not any more.
  package struct ExportedAccount: Hashable, Sendable {
    package var key: AccountKey
    /// The app's name for it; once it was erased, a pseudonym.
    package var id: String
    package var appAccountToken: UUID
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
    let accounts = try await database.query(
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
