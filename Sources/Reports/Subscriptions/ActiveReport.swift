/// Paid subscriptions, and how their number changed.
enum ActiveReport {
  static let shape = ReportShape(
    summary: "Paid subscriptions over time, and how their number changed: new, expired, returned.",
    parameters: ReportShape.dated + [.includeTrials, .includeGrants, .byProduct, .knownAt, .asOf],
    columns: [
      ReportColumn("from_day", .date), ReportColumn("to_day", .date),
      ReportColumn("product_id", .text), ReportColumn("opening", .number),
      ReportColumn("new", .number), ReportColumn("expired", .number),
      ReportColumn("resubscribed", .number), ReportColumn("churned", .number),
      ReportColumn("changed_in", .number), ReportColumn("changed_out", .number),
      ReportColumn("active", .number),
    ],
    order: "from_day, product_id",
    itemColumns: [
      ReportColumn("measure", .text), ReportColumn("from_day", .date),
      ReportColumn("product_id", .text), ReportColumn("original_transaction_id", .text),
      ReportColumn("transaction_id", .text), ReportColumn("at", .time),
      ReportColumn("origin_at", .time), ReportColumn("kind", .text), ReportColumn("cause", .text),
      ReportColumn("number", .number), ReportColumn("account_id", .text),
    ],
    itemOrder: "at DESC, original_transaction_id, transaction_id, measure",
    parametersOfNumbers: [.byProduct],
    cells: ReportShape.cells(
      "new", "expired", "resubscribed", "changed_in", "changed_out", "active"
    ).merging(["churned": ["expired", "resubscribed"]]) { first, _ in first })
}
