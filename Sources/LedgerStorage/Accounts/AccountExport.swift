package import Foundation
import Postgres
package import Subscriptions

extension AccountStore {
  package func erasedAt(_ account: AccountKey) async throws -> Timestamp? {
    try await database.read(KnownAccount.query([account]))[account]?
      .erasedAt
  }

  /// Reads orders of an account by ID, after `last`.
  package func orders(of account: Account, after last: UUID?, limit: Int) async throws
    -> [StoredOrder]
  {
    let rest = last.map { "order_id > \($0)" as SQL } ?? "true"
    return try await orders(of: account, "\(rest) ORDER BY order_id LIMIT \(limit)")
  }

  /// Reads IDs of an account's submissions in order of arrival, after `last`.
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

  /// Reads events of an account that the feed still keeps, in order, after `last`, and returns the
  /// events with their IDs, each as a JSON object in the form of the HTTP API.
  package func events(of account: AccountKey, after last: Int64?, limit: Int) async throws
    -> [(id: Int64, text: String)]
  {
    let start = last ?? 0
    let name = try await ownership.accountIDs(of: [account])[account]
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
