package import Foundation
import Postgres
package import Subscriptions

/// What an identifier names: each question is one look-up.
extension Ledger {
  /// The lines on which a line item is known, in whichever environment.
  package func lines(of lineItem: WebOrderLineItemID) async throws -> [LineID] {
    try await database.query(
      """
      SELECT environment, original_transaction_id FROM tenure.web_order_line_item
      WHERE web_order_line_item_id = \(lineItem)
      ORDER BY environment, original_transaction_id
      """
    ).decode(Environment.self, OriginalTransactionID.self).map { LineID($0, $1) }
  }

  /// What an administrator gave, by its id; nil: nothing of this id, or it was given provisionally.
  package func storedGrant(_ id: UUID) async throws -> StoredGrant? {
    let holder = try await database.query(
      "SELECT account_key FROM tenure.account_grant_account WHERE grant_id = \(id)"
    ).decodeFirst(AccountKey.self)
    guard let holder, let name = try await accountIDs(of: [holder])[holder] else { return nil }
    return try await storedGrants(of: name).first { $0.grant.id == id }
  }

  /// How many jobs and deliveries were given up, counted as far as `limit` each.
  package func parkedCount(upTo limit: Int) async throws -> Int {
    try await database.query(
      """
      SELECT
        (SELECT count(*) FROM (
          SELECT FROM tenure.job WHERE parked_at IS NOT NULL LIMIT \(limit)) AS j)
        + (SELECT count(*) FROM (
          SELECT FROM tenure.webhook_delivery WHERE parked_at IS NOT NULL LIMIT \(limit)) AS d)
      """
    ).decodeOnly(Int.self)
  }
}
