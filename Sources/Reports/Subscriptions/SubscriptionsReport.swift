extension Report {
  package static let subscriptions = Report(
    "subscriptions", label: "Subscriptions by state", group: .subscriptions,
    summary: "Subscriptions by product and state, as of a moment.",
    sql: PackageResources.subscriptions_sql,
    drillDown: .rows(
      "state", "active_renewing", "active_cancelled", "trial_renewing", "trial_cancelled",
      "in_grace_period", "in_billing_retry", "expired", "revoked", "granted"),
    itemOrder: "since DESC, original_transaction_id, transaction_id")
}
