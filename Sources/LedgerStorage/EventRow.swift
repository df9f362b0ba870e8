import JSONText
import Postgres
import Subscriptions

/// How events are stored: what they tell as JSON, in the names and forms of the HTTP API.
enum EventRow {
  /// Appends events in their order in one statement; none if there are none.
  static func insert(_ events: [LedgerEvent]) -> [SQL] {
    guard !events.isEmpty else { return [] }
    return [
      """
      INSERT INTO tenure.event (type, occurred_at, account_key, data)
      SELECT type, occurred_at, account_key, data
      FROM unnest(\(events.map(\.kind.rawValue)), \(events.map(\.occurredAt)),
        \(events.map(\.account)), \(events.map { text($0.data) }))
        WITH ORDINALITY AS event (type, occurred_at, account_key, data, number)
      ORDER BY number
      """
    ]
  }

  /// What an event tells, without what does not concern it.
  static func text(_ data: EventData) -> String {
    var json = JSONWriter(capacity: 256)
    json.object { json in
      json.memberIfPresent("environment", data.line?.environment)
      json.memberIfPresent("original_transaction_id", data.line?.originalTransactionID)
      json.memberIfPresent("transaction_id", data.transactionID)
      json.memberIfPresent("product_id", data.productID)
      json.memberIfPresent("previous_product_id", data.previousProductID)
      json.memberIfPresent("order_id", data.orderID)
      json.memberIfPresent("purchased_at", data.purchasedAt)
      json.memberIfPresent("expires_at", data.expiresAt)
      json.memberIfPresent("revoked_at", data.revokedAt)
      json.memberIfPresent("grace_ends_at", data.graceEndsAt)
      json.memberIfPresent("auto_renewing", data.autoRenewing)
      json.memberIfPresent("auto_renew_product_id", data.autoRenewProductID)
      json.memberIfPresent("owned", data.isOwner)
      json.memberIfPresent("rule", data.rule)
      json.memberIfPresent("because", data.because)
      json.memberIfPresent("counterpart", data.counterpart?.rawValue)
      json.memberIfPresent("entitlement", data.entitlement)
      json.memberIfPresent("entitlements", data.entitlements)
      json.memberIfPresent("app_account_token", data.appAccountToken)
    }
    return json.text
  }
}
