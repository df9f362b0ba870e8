package import Foundation
import Postgres
package import Subscriptions

/// What accounts set out to buy and were given, page by page, for who moves out.
extension Ledger {
  /// An order as it stands.
  package struct ExportedOrder: Hashable, Sendable {
    package var id: UUID
    package var accountID: String
    package var productID: ProductID
    /// `open`, `expired`, `fulfilled` or `refunded`.
    package var status: String
    package var createdAt: Timestamp
    /// When a charge fulfilled it; nil: none has.
    package var fulfilledAt: Timestamp?
    package var line: LineID?
    package var transactionID: TransactionID?
    /// Who opened it, where that account was merged into this one since.
    package var openedBy: String?
  }

  /// The place of an order among all.
  package typealias OrderPlace = (account: AccountKey, id: UUID)

  /// Reads the orders behind another, those of an account together.
  package func exportOrders(after last: OrderPlace?) async throws
    -> ExportPage<ExportedOrder, OrderPlace>
  {
    let rest = last.map { "(account_key, order_id) > (\($0.account), \($0.id))" as SQL } ?? "true"
    let rows = try await database.query(
      """
      SELECT account_key, order_id, product_id, status, created_at, fulfilled_at, environment,
        original_transaction_id, transaction_id, opened_by_key
      FROM tenure.purchase_order
      WHERE \(rest)
      ORDER BY account_key, order_id LIMIT \(Self.exportPage)
      """
    ).decode(
      AccountKey.self, UUID.self, ProductID.self, String.self, Timestamp.self, Timestamp?.self,
      Environment?.self, OriginalTransactionID?.self, TransactionID?.self, AccountKey?.self)
    let names = try await accountIDs(of: Set(rows.map(\.0) + rows.compactMap(\.9)))
    let orders = rows.compactMap { row -> ExportedOrder? in
      guard let account = names[row.0] else { return nil }
      var line: LineID?
      if let environment = row.6, let original = row.7 { line = LineID(environment, original) }
      return ExportedOrder(
        id: row.1, accountID: account, productID: row.2, status: row.3, createdAt: row.4,
        fulfilledAt: row.5, line: line, transactionID: row.8,
        openedBy: row.9.flatMap { names[$0] })
    }
    return ExportPage(
      rows: orders, next: rows.count < Self.exportPage ? nil : rows.last.map { ($0.0, $0.1) })
  }

  /// An entitlement that was given and not bought.
  package struct ExportedGrant: Hashable, Sendable {
    package var id: UUID
    package var accountID: String
    package var entitlement: String
    /// `grant`: an administrator's; `provisional`: until Apple can be asked.
    package var source: String
    package var startsAt: Timestamp
    package var endsAt: Timestamp?
    /// When it was taken back; nil: it was not.
    package var revokedAt: Timestamp?
    package var reason: String
    /// From when on it was known.
    package var recordedAt: Timestamp
    /// Of a provisional one, the submission that waits for Apple and the line of the purchase.
    package var submissionID: UUID?
    package var line: LineID?
  }

  /// The place of a grant among all.
  package typealias GrantPlace = (accountID: String, id: UUID)

  /// Reads the grants behind another, those of an account together.
  package func exportGrants(after last: GrantPlace?) async throws
    -> ExportPage<ExportedGrant, GrantPlace>
  {
    let rest = last.map { "(account_id, grant_id) > (\($0.accountID), \($0.id))" as SQL } ?? "true"
    let grants = try await database.query(
      """
      SELECT account_id, grant_id, entitlement, source, starts_at, ends_at, revoked_at, reason,
        recorded_at, submission_id, environment, original_transaction_id
      FROM tenure.account_grant
      WHERE \(rest)
      ORDER BY account_id, grant_id LIMIT \(Self.exportPage)
      """
    ).decode(
      String.self, UUID.self, String.self, String.self, Timestamp.self, Timestamp?.self,
      Timestamp?.self, String.self, Timestamp.self, UUID?.self, Environment?.self,
      OriginalTransactionID?.self
    ).map { row in
      var line: LineID?
      if let environment = row.10, let original = row.11 { line = LineID(environment, original) }
      return ExportedGrant(
        id: row.1, accountID: row.0, entitlement: row.2, source: row.3, startsAt: row.4,
        endsAt: row.5, revokedAt: row.6, reason: row.7, recordedAt: row.8, submissionID: row.9,
        line: line)
    }
    return ExportPage(
      rows: grants,
      next: grants.count < Self.exportPage ? nil : grants.last.map { ($0.accountID, $0.id) })
  }
}
