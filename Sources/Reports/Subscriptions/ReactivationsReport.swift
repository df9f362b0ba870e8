/// Who came back, before the end and after it.
enum ReactivationsReport {
  static let shape = ReportShape(
    summary: "Renewal switched on again, and subscriptions paid again after a lapse.",
    parameters: ReportShape.dated + [.includeTrials, .byProduct, .knownAt, .asOf],
    columns: [
      ReportColumn("from_day", .date), ReportColumn("to_day", .date),
      ReportColumn("product_id", .text), ReportColumn("switched_off", .number),
      ReportColumn("switched_on", .number), ReportColumn("resubscribed", .number),
    ],
    order: "from_day, product_id",
    itemColumns: [
      ReportColumn("measure", .text), ReportColumn("from_day", .date),
      ReportColumn("product_id", .text), ReportColumn("original_transaction_id", .text),
      ReportColumn("transaction_id", .text), ReportColumn("at", .time),
      ReportColumn("origin_at", .time), ReportColumn("number", .number),
      ReportColumn("account_id", .text),
    ],
    itemOrder: "at DESC, original_transaction_id, transaction_id, measure",
    parametersOfNumbers: [.byProduct],
    cells: ReportShape.cells("switched_off", "switched_on", "resubscribed"))
}
