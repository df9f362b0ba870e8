package import Subscriptions

extension Entitlement: JSONObjectWritable {
  package func writeMembers(to json: inout JSONWriter) {
    json.member("entitlement", name)
    json.member("active", isActive)
    json.member("state", state)
    json.member("product_id", productID)
    json.member("expires_at", expiresAt)
    json.member("access_ends_at", accessEndsAt)
    json.member("will_renew", willRenew)
    json.member("period_type", periodType)
    json.member("environment", environment)
    json.member("original_transaction_id", originalTransactionID)
    json.member("transaction_id", transactionID)
    json.member("source", source)
  }
}
