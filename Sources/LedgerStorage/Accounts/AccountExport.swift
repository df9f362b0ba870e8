package import Foundation
import Postgres
package import Subscriptions

/// All that is known of one account, page by page: it may be any amount.
extension Ledger {
  /// When the person was erased whose account this is; nil: it was not.
  package func erasedAt(_ account: AccountKey) async throws -> Timestamp? {
    try await database.read(KnownAccount.query([account]))[account]?
      .erasedAt
  }

  /// The orders of an account, by their ids.
  ///
  /// - Parameters:
  ///   - account: The account.
  ///   - last: The order behind which to read on; nil: from the first.
  ///   - limit: How many at the most.
  /// - Returns: The orders.
  /// - Throws: What the database says.
  package func orders(of account: Account, after last: UUID?, limit: Int) async throws
    -> [StoredOrder]
  {
    let rest = last.map { "order_id > \($0)" as SQL } ?? "true"
    return try await orders(of: account, "\(rest) ORDER BY order_id LIMIT \(limit)")
  }

  /// The ids of what an account submitted, in the order of arrival.
  ///
  /// - Parameters:
  ///   - account: The account.
  ///   - last: The submission behind which to read on; nil: from the first.
  ///   - limit: How many at the most.
  /// - Returns: The ids.
  /// - Throws: What the database says.
  package func submissionIDs(of account: AccountKey, after last: UUID?, limit: Int) async throws
    -> [UUID]
  {
    let condition = last.map { "AND submission_id > \($0)" as SQL } ?? ""
    return try await database.query(
      """
      SELECT submission_id FROM tenure.submission
      WHERE account_key = \(account) \(condition)
      ORDER BY submission_id LIMIT \(limit)
      """
    ).decode(UUID.self)
  }

  /// What the feed has told an account, as far as it is kept, in order.
  ///
  /// - Parameters:
  ///   - account: The account.
  ///   - last: The event behind which to read on; nil: from the first.
  ///   - limit: How many at the most.
  /// - Returns: The events with their ids, each as an object of JSON in the form of the HTTP API.
  /// - Throws: What the database says.
  package func events(of account: AccountKey, after last: Int64?, limit: Int) async throws
    -> [(id: Int64, text: String)]
  {
    let start = last ?? 0
    let name = try await accountIDs(of: [account])[account]
    return try await database.query(
      """
      SELECT e.event_id, \(SQL.eventInFeed)
      FROM tenure.event AS e
      WHERE e.account_key = \(account) AND e.event_id > \(start)
      ORDER BY e.event_id LIMIT \(limit)
      """
    ).decode(Int64.self, String.self, AccountKey?.self, String.self).map { id, beginning, _, data in
      (id: id, text: FeedPage.event(beginning, of: name, data))
    }
  }
}
