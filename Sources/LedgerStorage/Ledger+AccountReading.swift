package import Foundation
import Postgres
package import Subscriptions

/// A submission as lists show it.
package struct SubmissionSummary: Hashable, Sendable {
  package let id: UUID
  /// Who sent it.
  package let accountID: String
  /// A receipt or signed transactions; nil: what was sent is not kept any more.
  package let kind: EntrySource.Kind?
  /// The transaction that the app named, if it named one.
  package let transactionID: TransactionID?
  package let isRestore: Bool
  package let receivedAt: Timestamp
  package let status: Submission.Status
  package let environment: Environment?
  package let decidedAt: Timestamp?
  package let retryAt: Timestamp?
  package let attempts: Int
  package let problem: SubmissionProblem?
  /// What was answered, in Intake's form; nil before the decision.
  package let outcome: String?
}

/// An event as the feed has told it.
package struct ToldEvent: Sendable {
  package let id: Int64
  /// The name of a ``LedgerEvent/Kind``, or of what a newer version tells.
  package let type: String
  package let occurredAt: Timestamp
  /// An object of JSON.
  package let data: String
}

/// How far the feed has forgotten what it told.
package struct FeedTrimming: Hashable, Sendable {
  /// When the last event that was deleted had been stored, by the database's clock; nil: that was
  /// not noted yet when it was deleted.
  package let storedAt: Timestamp?
}

/// What an account did and was told, the latest first.
extension Ledger {
  /// The orders that an account opened last.
  package func latestOrders(of account: Account, limit: Int) async throws -> [StoredOrder] {
    try await orders(of: account, "true ORDER BY created_at DESC, order_id LIMIT \(limit)")
  }

  /// The orders of an account that meet a condition, in its order.
  func orders(of account: Account, _ condition: SQL) async throws -> [StoredOrder] {
    try await database.query(
      """
      SELECT order_id, product_id, status, created_at, fulfilled_at, environment, transaction_id
      FROM tenure.purchase_order
      WHERE account_key = \(account.key) AND \(condition)
      """
    ).decode(
      UUID.self, ProductID.self, PurchaseOrder.Status.self, Timestamp.self, Timestamp?.self,
      Environment?.self, TransactionID?.self
    ).map { id, product, status, createdAt, fulfilledAt, environment, transaction in
      StoredOrder(
        order: PurchaseOrder(
          id: id, account: account.key, productID: product, createdAt: createdAt, status: status),
        accountID: account.id, appAccountToken: account.appAccountToken, fulfilledAt: fulfilledAt,
        environment: environment, transactionID: transaction,
        expiresAt: createdAt + orderLifetime)
    }
  }

  /// What an account's app submitted, the last one first.
  ///
  /// - Parameters:
  ///   - account: The account.
  ///   - last: Only what is before this submission; nil: from the last one on.
  ///   - limit: How many at the most.
  /// - Returns: The submissions.
  /// - Throws: What the database says.
  package func latestSubmissions(of account: AccountKey, before last: UUID? = nil, limit: Int)
    async throws -> [SubmissionSummary]
  {
    let rest = last.map { "s.submission_id < \($0)" as SQL } ?? "true"
    return try await submissions(
      """
      s.account_key = \(account) AND \(rest) ORDER BY s.submission_id DESC LIMIT \(limit)
      """)
  }

  /// What the feed has told an account.
  ///
  /// - Parameters:
  ///   - account: The account.
  ///   - last: Only what is before this event; nil: from the latest on.
  ///   - limit: How many at the most.
  /// - Returns: The events.
  /// - Throws: What the database says.
  package func latestEvents(of account: AccountKey, before last: Int64?, limit: Int) async throws
    -> [ToldEvent]
  {
    let end = last ?? .max
    return try await database.query(
      """
      SELECT event_id, type, occurred_at, data FROM tenure.event
      WHERE account_key = \(account) AND event_id < \(end)
      ORDER BY event_id DESC LIMIT \(limit)
      """
    ).decode(Int64.self, String.self, Timestamp.self, String.self).map {
      ToldEvent(id: $0, type: $1, occurredAt: $2, data: $3)
    }
  }

  /// How far the feed has forgotten what it told; nil: it has forgotten nothing.
  package func feedTrimming() async throws -> FeedTrimming? {
    let (trimmedTo, storedAt) = try await database.query(
      "SELECT trimmed_to, trimmed_stored_at FROM tenure.feed"
    ).decodeOnly(Int64.self, Timestamp?.self)
    return trimmedTo > 0 ? FeedTrimming(storedAt: storedAt) : nil
  }

  func submissions(_ condition: SQL) async throws -> [SubmissionSummary] {
    let rows = try await database.query(
      """
      SELECT s.submission_id, s.account_key,
        CASE WHEN p.receipt_data IS NOT NULL THEN 'receipt'
          WHEN p.signed_transactions IS NOT NULL THEN 'signed_transaction' END,
        s.transaction_id, s.restore, s.received_at, s.status, s.environment, s.decided_at,
        s.retry_at, s.attempts, s.problem, s.problem_detail, s.apple_status, s.outcome
      FROM tenure.submission AS s
      LEFT JOIN tenure.submission_payload AS p ON p.submission_id = s.submission_id
      WHERE \(condition)
      """
    ).decode(
      UUID.self, AccountKey.self, EntrySource.Kind?.self, TransactionID?.self, Bool.self,
      Timestamp.self, Submission.Status.self, Environment?.self, Timestamp?.self, Timestamp?.self,
      Int.self, String?.self, String?.self, Int?.self, String?.self)
    let accounts = try await accountIDs(of: Set(rows.map(\.1)))
    return rows.compactMap {
      id, account, kind, transaction, isRestore, receivedAt, status, environment, decidedAt,
      retryAt, attempts, problem, detail, appleStatus, outcome in
      guard let account = accounts[account] else { return nil }
      return SubmissionSummary(
        id: id, accountID: account, kind: kind, transactionID: transaction, isRestore: isRestore,
        receivedAt: receivedAt, status: status, environment: environment, decidedAt: decidedAt,
        retryAt: retryAt, attempts: attempts,
        problem: problem.map {
          SubmissionProblem(code: $0, detail: detail ?? "", appleStatus: appleStatus)
        }, outcome: outcome)
    }
  }
}
