/// Monthly recurring revenue, and how it changed.
enum RevenueRateReport {
  static let shape = ReportShape(
    summary:
      "Monthly recurring revenue per currency, and how it came: new, changed, churned.",
    parameters: ReportShape.dated + [.byProduct, .reportingCurrency, .knownAt, .asOf],
    columns: [
      ReportColumn("from_day", .date), ReportColumn("to_day", .date),
      ReportColumn("product_id", .text), ReportColumn("currency", .text),
      ReportColumn("opening_milliunits", .money), ReportColumn("new_milliunits", .money),
      ReportColumn("reactivated_milliunits", .money), ReportColumn("expansion_milliunits", .money),
      ReportColumn("contraction_milliunits", .money), ReportColumn("churned_milliunits", .money),
      ReportColumn("currency_changed_milliunits", .money),
      ReportColumn("exchange_milliunits", .money), ReportColumn("mrr_milliunits", .money),
      ReportColumn("from_catalogue_milliunits", .money), ReportColumn("mrr_twelfths", .fraction),
    ],
    order: "from_day, product_id, currency",
    itemColumns: [
      ReportColumn("measure", .text), ReportColumn("from_day", .date),
      ReportColumn("product_id", .text), ReportColumn("original_transaction_id", .text),
      ReportColumn("transaction_id", .text), ReportColumn("at", .time),
      ReportColumn("origin_at", .time), ReportColumn("kind", .text),
      ReportColumn("currency", .text), ReportColumn("price_source", .text),
      ReportColumn("mrr_twelfths", .number), ReportColumn("account_id", .text),
    ],
    itemOrder: "at DESC, original_transaction_id, transaction_id, measure",
    parametersOfNumbers: [.reportingCurrency],
    cells: [
      "new_milliunits": ["new"], "reactivated_milliunits": ["reactivated"],
      "expansion_milliunits": ["expansion"], "contraction_milliunits": ["contraction"],
      "churned_milliunits": ["churned"], "currency_changed_milliunits": ["currency_changed"],
      "mrr_milliunits": ["mrr"],
    ])
}
