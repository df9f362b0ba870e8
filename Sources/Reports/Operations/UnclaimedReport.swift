/// Charges that nobody owns.
enum UnclaimedReport {
  static let shape = ReportShape(
    summary: "Recorded charges that no account owns, by age and money.",
    parameters: [.product, .environment, .includeFamilyShared, .includeTrials, .knownAt, .asOf],
    columns: [
      ReportColumn("was_over", .flag), ReportColumn("age", .text),
      ReportColumn("product_id", .text), ReportColumn("currency", .text),
      ReportColumn("number", .number), ReportColumn("amount_milliunits", .money),
      ReportColumn("from_catalogue_milliunits", .money), ReportColumn("oldest_at", .time),
    ],
    order: "was_over, age, product_id, currency",
    itemColumns: [
      ReportColumn("was_over", .flag), ReportColumn("age", .text),
      ReportColumn("product_id", .text), ReportColumn("original_transaction_id", .text),
      ReportColumn("transaction_id", .text), ReportColumn("charged_at", .time),
      ReportColumn("first_seen_at", .time), ReportColumn("expires_at", .time),
      ReportColumn("number", .number), ReportColumn("currency", .text),
      ReportColumn("amount_milliunits", .money), ReportColumn("price_source", .text),
    ],
    itemOrder: "first_seen_at DESC, original_transaction_id, transaction_id")
}
