/// What was charged and refunded.
enum RevenueReport {
  static let shape = ReportShape(
    summary:
      "Charges and refunds per currency; refunds by their own date and by that of the charge.",
    parameters: ReportShape.dated + [.byProduct, .reportingCurrency, .knownAt, .asOf],
    columns: [
      ReportColumn("from_day", .date), ReportColumn("to_day", .date),
      ReportColumn("product_id", .text), ReportColumn("currency", .text),
      ReportColumn("charges", .number), ReportColumn("offers", .number),
      ReportColumn("trials", .number), ReportColumn("family_shared", .number),
      ReportColumn("charged_milliunits", .money), ReportColumn("from_catalogue_milliunits", .money),
      ReportColumn("refunds", .number), ReportColumn("refunded_milliunits", .money),
      ReportColumn("refunds_of_charges", .number),
      ReportColumn("refunded_of_charges_milliunits", .money),
      ReportColumn("net_by_charge_milliunits", .money),
      ReportColumn("net_by_refund_milliunits", .money),
    ],
    order: "from_day, product_id, currency",
    itemColumns: [
      ReportColumn("measure", .text), ReportColumn("from_day", .date),
      ReportColumn("product_id", .text), ReportColumn("original_transaction_id", .text),
      ReportColumn("transaction_id", .text), ReportColumn("at", .time),
      ReportColumn("origin_at", .time), ReportColumn("cause", .text),
      ReportColumn("period_type", .text), ReportColumn("offer_id", .text),
      ReportColumn("ownership_type", .text), ReportColumn("number", .number),
      ReportColumn("currency", .text), ReportColumn("amount_milliunits", .money),
      ReportColumn("price_source", .text), ReportColumn("account_id", .text),
    ],
    itemOrder: "at DESC, original_transaction_id, transaction_id, measure",
    parametersOfNumbers: [.byProduct, .reportingCurrency],
    cells: ReportShape.cells(
      "charges", "offers", "trials", "family_shared", "refunds", "refunds_of_charges"
    ).merging([
      "charged_milliunits": ["charges", "trials", "family_shared"],
      "refunded_milliunits": ["refunds"],
      "refunded_of_charges_milliunits": ["refunds_of_charges"],
      "net_by_charge_milliunits": ["charges", "trials", "family_shared", "refunds_of_charges"],
      "net_by_refund_milliunits": ["charges", "trials", "family_shared", "refunds"],
    ]) { first, _ in first })
}
