extension Report {
  package static let orders = Report(
    "orders", label: "Orders", group: .money,
    summary:
      "Orders and payments reconciled: never paid, matched, paid without an order, not delivered.",
    sql: PackageResources.orders_sql,
    drillDown: .columns(
      "opened", "open", "expired", "paid", "refunded", "paid_without_order", "not_delivered"),
    itemOrder: "at DESC, order_id, original_transaction_id, transaction_id, measure",
    charts: [
      .bars("Orders", .init("Paid", "paid"), .init("Open", "open"), .init("Expired", "expired"))
    ], measure: .init("Opened", "opened"), isPartlyFrozen: true,
    countsAllProducts: true)
}
