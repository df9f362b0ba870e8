/// Renewals that Apple could not charge.
enum BillingIssuesReport {
  static let shape = ReportShape(
    summary: "Subscriptions in a grace period or in billing retry, and how many of them recover.",
    parameters: ReportShape.dated + [.byProduct, .knownAt, .asOf],
    columns: [
      ReportColumn("from_day", .date), ReportColumn("to_day", .date),
      ReportColumn("product_id", .text), ReportColumn("in_grace_period", .number),
      ReportColumn("in_billing_retry", .number), ReportColumn("entered", .number),
      ReportColumn("recovered", .number), ReportColumn("lost", .number),
      ReportColumn("cohort_recovered", .number), ReportColumn("cohort_lost", .number),
      ReportColumn("recovery_rate", .rate),
    ],
    order: "from_day, product_id",
    itemColumns: [
      ReportColumn("measure", .text), ReportColumn("from_day", .date),
      ReportColumn("product_id", .text), ReportColumn("original_transaction_id", .text),
      ReportColumn("transaction_id", .text), ReportColumn("since", .time),
      ReportColumn("until", .time), ReportColumn("number", .number),
      ReportColumn("account_id", .text),
    ],
    itemOrder: "since DESC, original_transaction_id, transaction_id, measure",
    parametersOfNumbers: [.byProduct],
    cells: ReportShape.cells(
      "in_grace_period", "in_billing_retry", "entered", "recovered", "lost", "cohort_recovered",
      "cohort_lost"))
}
