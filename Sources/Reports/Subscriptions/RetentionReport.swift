/// How many stay, month by month.
enum RetentionReport {
  static let shape = ReportShape(
    summary: "Of the subscriptions first paid in a month, those still paid in each following one.",
    parameters: [
      .from, .to, .timeZone, .product, .environment, .includeFamilyShared, .period, .knownAt, .asOf,
    ],
    columns: [
      ReportColumn("cohort", .date), ReportColumn("period", .number), ReportColumn("to_day", .date),
      ReportColumn("cohort_size", .number), ReportColumn("retained", .number),
      ReportColumn("retention_rate", .rate),
    ],
    order: "cohort, period",
    itemColumns: [
      ReportColumn("measure", .text), ReportColumn("cohort", .date),
      ReportColumn("product_id", .text), ReportColumn("original_transaction_id", .text),
      ReportColumn("transaction_id", .text), ReportColumn("at", .time),
      ReportColumn("number", .number), ReportColumn("account_id", .text),
    ],
    itemOrder: "at DESC, original_transaction_id, transaction_id, measure",
    parametersOfItems: [.period],
    cells: ReportShape.cells("cohort_size", "retained"))
}
