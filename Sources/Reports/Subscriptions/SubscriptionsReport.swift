/// Subscriptions by product and state.
enum SubscriptionsReport {
  static let shape = ReportShape(
    summary: "Subscriptions by product and state, as of a moment.",
    parameters: [.product, .environment, .includeFamilyShared, .includeGrants, .knownAt, .asOf],
    columns: [
      ReportColumn("product_id", .text), ReportColumn("state", .text),
      ReportColumn("number", .number),
    ],
    order: "product_id, state",
    itemColumns: [
      ReportColumn("product_id", .text), ReportColumn("state", .text),
      ReportColumn("original_transaction_id", .text), ReportColumn("transaction_id", .text),
      ReportColumn("since", .time), ReportColumn("number", .number),
      ReportColumn("account_id", .text),
    ],
    itemOrder: "since DESC, original_transaction_id, transaction_id",
    cellColumn: "state",
    cells: ReportShape.cells(
      "active_renewing", "active_cancelled", "trial_renewing", "trial_cancelled", "in_grace_period",
      "in_billing_retry", "expired", "revoked", "granted"))
}
