/// Subscriptions that ended, by the reason.
enum ChurnReport {
  static let shape = ReportShape(
    summary: "Churned subscriptions by cause, compared with those active at the start.",
    parameters: ReportShape.dated + [.includeTrials, .byProduct, .knownAt, .asOf],
    columns: [
      ReportColumn("from_day", .date), ReportColumn("to_day", .date),
      ReportColumn("product_id", .text), ReportColumn("active_at_start", .number),
      ReportColumn("voluntary", .number), ReportColumn("price_not_consented", .number),
      ReportColumn("involuntary", .number), ReportColumn("product_withdrawn", .number),
      ReportColumn("unknown", .number), ReportColumn("expired", .number),
      ReportColumn("resubscribed", .number), ReportColumn("churned", .number),
      ReportColumn("refunded", .number), ReportColumn("churn_rate", .rate),
      ReportColumn("expiry_rate", .rate),
    ],
    order: "from_day, product_id",
    itemColumns: [
      ReportColumn("measure", .text), ReportColumn("from_day", .date),
      ReportColumn("product_id", .text), ReportColumn("original_transaction_id", .text),
      ReportColumn("transaction_id", .text), ReportColumn("at", .time),
      ReportColumn("origin_at", .time), ReportColumn("cause", .text),
      ReportColumn("number", .number), ReportColumn("account_id", .text),
    ],
    itemOrder: "at DESC, original_transaction_id, transaction_id, measure",
    parametersOfNumbers: [.byProduct],
    cells: ReportShape.cells(
      "active_at_start", "voluntary", "price_not_consented", "involuntary", "product_withdrawn",
      "unknown", "expired", "resubscribed", "refunded"
    ).merging(["churned": ["expired", "resubscribed"]]) { first, _ in first })
}
