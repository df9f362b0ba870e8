/// Free trials, and how many of them convert.
enum TrialsReport {
  static let shape = ReportShape(
    summary:
      "Free trials: started, expired, unexpired, and the conversion of those that began together.",
    parameters: ReportShape.dated + [.byProduct, .knownAt, .asOf],
    columns: [
      ReportColumn("from_day", .date), ReportColumn("to_day", .date),
      ReportColumn("product_id", .text), ReportColumn("opening", .number),
      ReportColumn("started", .number), ReportColumn("converted", .number),
      ReportColumn("expired", .number), ReportColumn("trials", .number),
      ReportColumn("cohort_started", .number), ReportColumn("cohort_converted", .number),
      ReportColumn("cohort_expired", .number), ReportColumn("conversion_rate", .rate),
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
      "started", "converted", "expired", "trials", "cohort_started", "cohort_converted",
      "cohort_expired"))
}
