/// What is to renew, and for how much.
enum RenewalsDueReport {
  static let shape = ReportShape(
    summary:
      "Subscriptions set to renew in the next days, per day and product, with the money expected.",
    parameters: [
      .days, .timeZone, .product, .environment, .includeFamilyShared, .includeTrials, .knownAt,
      .asOf,
    ],
    columns: [
      ReportColumn("day", .date), ReportColumn("product_id", .text),
      ReportColumn("renews_as", .text), ReportColumn("currency", .text),
      ReportColumn("number", .number), ReportColumn("amount_milliunits", .money),
      ReportColumn("from_catalogue_milliunits", .money),
    ],
    order: "day, product_id, renews_as, currency",
    itemColumns: [
      ReportColumn("day", .date), ReportColumn("product_id", .text),
      ReportColumn("renews_as", .text), ReportColumn("original_transaction_id", .text),
      ReportColumn("transaction_id", .text), ReportColumn("due_at", .time),
      ReportColumn("number", .number), ReportColumn("currency", .text),
      ReportColumn("amount_milliunits", .money), ReportColumn("price_source", .text),
      ReportColumn("account_id", .text),
    ],
    itemOrder: "due_at, original_transaction_id, transaction_id")
}
