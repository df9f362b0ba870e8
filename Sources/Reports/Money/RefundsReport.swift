extension Report {
  package static let refunds = Report(
    "refunds", label: "Refunds", group: .money,
    summary:
      "Refunded charges by reason and days after the purchase, compared with all paid.",
    sql: PackageResources.refunds_sql,
    drillDown: .columns(
      "refunds",
      sums: [
        "refunded_milliunits": .init("refunds"),
        // Repeated for each reason of the refunds.
        "paid": .init("paid", rowColumns: ["from_day"]),
      ]), priced: "refunded_milliunits",
    itemOrder: "charged_at DESC, original_transaction_id, transaction_id, measure",
    shares: ["refund_rate": .init("refunds", of: "paid")],
    charts: [.bars("Refunded charges", .init("Refunds", "refunds"))],
    countsAllProducts: true)
}
