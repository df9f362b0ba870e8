/// Orders against payments.
enum OrdersReport {
  static let shape = ReportShape(
    summary:
      "Orders and payments reconciled: never paid, matched, paid without an order, not delivered.",
    parameters: [
      .from, .to, .bucket, .timeZone, .product, .environment, .byProduct, .knownAt, .asOf,
    ],
    columns: [
      ReportColumn("from_day", .date), ReportColumn("to_day", .date),
      ReportColumn("product_id", .text), ReportColumn("opened", .number),
      ReportColumn("open", .number), ReportColumn("expired", .number),
      ReportColumn("paid", .number), ReportColumn("refunded", .number),
      ReportColumn("longest_wait_ms", .duration), ReportColumn("average_wait_ms", .duration),
      ReportColumn("paid_without_order", .number), ReportColumn("not_delivered", .number),
    ],
    order: "from_day, product_id",
    itemColumns: [
      ReportColumn("measure", .text), ReportColumn("from_day", .date),
      ReportColumn("product_id", .text), ReportColumn("order_id", .text),
      ReportColumn("original_transaction_id", .text), ReportColumn("transaction_id", .text),
      ReportColumn("at", .time), ReportColumn("charged_at", .time),
      ReportColumn("wait_ms", .duration), ReportColumn("number", .number),
      ReportColumn("currency", .text), ReportColumn("amount_milliunits", .money),
      ReportColumn("price_source", .text), ReportColumn("account_id", .text),
    ],
    itemOrder: "at DESC, order_id, original_transaction_id, transaction_id, measure",
    parametersOfNumbers: [.byProduct],
    cells: ReportShape.cells(
      "opened", "open", "expired", "paid", "refunded", "paid_without_order", "not_delivered"))
}
