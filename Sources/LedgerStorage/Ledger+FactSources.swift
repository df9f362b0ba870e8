package import Foundation
import Postgres
package import Subscriptions

/// What a notification was about, for those who see that it brought something.
package struct NotificationSummary: Hashable, Sendable {
  package let id: String
  package let type: String?
  package let subtype: String?
  package let receivedAt: Timestamp
  package let signedAt: Timestamp?
}

/// What brought entries of the ledger, by the ids of their sources.
extension Ledger {
  /// The notifications of some ids; those that were aged out are left out.
  package func notificationSummaries(_ ids: [String]) async throws
    -> [ExactText: NotificationSummary]
  {
    guard !ids.isEmpty else { return [:] }
    let summaries = try await database.query(
      """
      SELECT notification_id, notification_type, subtype, received_at, signed_at
      FROM tenure.notification WHERE notification_id = ANY (\(ids))
      """
    ).decode(String.self, String?.self, String?.self, Timestamp.self, Timestamp?.self).map {
      NotificationSummary(id: $0, type: $1, subtype: $2, receivedAt: $3, signedAt: $4)
    }
    return Dictionary(uniqueKeysWithValues: summaries.map { (ExactText($0.id), $0) })
  }

  /// The accounts whose apps sent some submissions.
  package func submitters(of ids: [UUID]) async throws -> [UUID: String] {
    guard !ids.isEmpty else { return [:] }
    let rows = try await database.query(
      """
      SELECT submission_id, account_key FROM tenure.submission
      WHERE submission_id = ANY (\(ids))
      """
    ).decode(UUID.self, AccountKey.self)
    let accounts = try await accountIDs(of: Set(rows.map(\.1)))
    return Dictionary(uniqueKeysWithValues: rows.map { ($0, $1) }).compactMapValues { accounts[$0] }
  }
}
