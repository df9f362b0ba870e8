/// By which rule charges found their owners.
enum OwnershipReport {
  static let shape = ReportShape(
    summary:
      "Charges by the rule that decided them, bindings that moved, and accounts that share a line.",
    parameters: ReportShape.dated + [.byProduct, .knownAt, .asOf],
    columns: [
      ReportColumn("from_day", .date), ReportColumn("to_day", .date),
      ReportColumn("product_id", .text), ReportColumn("measure", .text),
      ReportColumn("rule", .text), ReportColumn("number", .number),
    ],
    order: "from_day, product_id, measure, rule",
    itemColumns: [
      ReportColumn("measure", .text), ReportColumn("from_day", .date), ReportColumn("rule", .text),
      ReportColumn("product_id", .text), ReportColumn("original_transaction_id", .text),
      ReportColumn("transaction_id", .text), ReportColumn("at", .time),
      ReportColumn("number", .number), ReportColumn("account_id", .text),
      ReportColumn("from_account_id", .text), ReportColumn("decided_at", .time),
      ReportColumn("administrator", .text), ReportColumn("reason", .text),
    ],
    itemOrder: "at DESC, original_transaction_id, transaction_id, measure",
    parametersOfNumbers: [.byProduct],
    cells: ReportShape.cells("decided", "corrected", "moved", "shared"))
}
