/// What was refunded, why, and how soon.
enum RefundsReport {
  static let shape = ReportShape(
    summary:
      "Refunded charges by product, reason and days after the purchase, compared with all paid.",
    parameters: ReportShape.dated + [.includeTrials, .byProduct, .knownAt, .asOf],
    columns: [
      ReportColumn("from_day", .date), ReportColumn("to_day", .date),
      ReportColumn("product_id", .text), ReportColumn("reason", .text),
      ReportColumn("days_after", .text), ReportColumn("currency", .text),
      ReportColumn("refunded", .number), ReportColumn("refunded_milliunits", .money),
      ReportColumn("from_catalogue_milliunits", .money), ReportColumn("paid", .number),
      ReportColumn("refund_rate", .rate),
    ],
    order: "from_day, product_id, reason, days_after, currency",
    itemColumns: [
      ReportColumn("measure", .text), ReportColumn("from_day", .date),
      ReportColumn("product_id", .text), ReportColumn("reason", .text),
      ReportColumn("days_after", .text), ReportColumn("original_transaction_id", .text),
      ReportColumn("transaction_id", .text), ReportColumn("charged_at", .time),
      ReportColumn("refunded_at", .time), ReportColumn("number", .number),
      ReportColumn("currency", .text), ReportColumn("amount_milliunits", .money),
      ReportColumn("price_source", .text), ReportColumn("account_id", .text),
    ],
    itemOrder: "charged_at DESC, original_transaction_id, transaction_id, measure",
    parametersOfNumbers: [.byProduct],
    cells: ["refunded": ["refunded"], "refunded_milliunits": ["refunded"], "paid": ["paid"]])
}
