extension Report {
  package static let revenue = Report(
    "revenue", label: "Revenue", group: .money,
    summary:
      "Charges and refunds per currency; refunds by their own date and by that of the charge.",
    sql: PackageResources.revenue_sql,
    drillDown: .columns(
      "charges", "offers", "trials", "family_shared", "refunds", "refunds_of_charges",
      sums: [
        "charged_milliunits": .init("charges", "trials", "family_shared"),
        "refunded_milliunits": .init("refunds"),
        "refunded_of_charges_milliunits": .init("refunds_of_charges"),
        "net_by_charge_milliunits": .init(
          "charges", "trials", "family_shared", "refunds_of_charges"),
        "net_by_refund_milliunits": .init("charges", "trials", "family_shared", "refunds"),
      ]), priced: "charged_milliunits",
    charts: [
      .bars(
        "Charged and refunded", .init("Charged", "charged_milliunits"),
        .init("Refunded", "refunded_milliunits"), net: .init("Net", "net_by_refund_milliunits"))
    ], measure: .init("Net", "net_by_refund_milliunits"))

  package static let mrr = Report(
    "mrr", label: "Monthly recurring revenue", group: .money,
    summary: "Monthly recurring revenue per currency, and how it came: new, changed, churned.",
    sql: PackageResources.mrr_sql,
    drillDown: .columns(sums: [
      "new_milliunits": .init("new"), "reactivated_milliunits": .init("reactivated"),
      "expansion_milliunits": .init("expansion"), "contraction_milliunits": .init("contraction"),
      "churned_milliunits": .init("churned"),
      "currency_changed_milliunits": .init("currency_changed"), "mrr_milliunits": .init("mrr"),
    ]), stock: "mrr", priced: "mrr_milliunits",
    charts: [
      .lines("MRR", .init("MRR", "mrr_milliunits")),
      .bars(
        "MRR movement", .init("New", "new_milliunits"),
        .init("Reactivated", "reactivated_milliunits"),
        .init("Expansion", "expansion_milliunits"), .init("Contraction", "contraction_milliunits"),
        .init("Churned", "churned_milliunits"),
        // There are six colours, and most ledgers have neither of these two.
        .init("Currencies", "currency_changed_milliunits", "exchange_milliunits"),
        net: .init("Net change", "mrr_milliunits", minus: "opening_milliunits")),
    ])

  package static let refunds = Report(
    "refunds", label: "Refunds", group: .money,
    summary: "Refunded charges by reason and days after the purchase, compared with all paid.",
    sql: PackageResources.refunds_sql,
    drillDown: .columns(
      "refunds",
      sums: [
        "refunded_milliunits": .init("refunds"),
        // Repeated for each reason of the refunds.
        "paid": .init("paid", rowColumns: ["from_day"]),
      ]), priced: "refunded_milliunits",
    itemOrder: "charged_at DESC, original_transaction_id, transaction_id, measure",
    shares: ["refund_rate": .init("refunds", of: "paid")],
    charts: [.bars("Refunded charges", .init("Refunds", "refunds"))])

  package static let orders = Report(
    "orders", label: "Orders", group: .money,
    summary:
      "Orders and payments reconciled: never paid, matched, paid without an order, not delivered.",
    sql: PackageResources.orders_sql,
    drillDown: .columns(
      "opened", "open", "expired", "paid", "refunded", "paid_without_order", "not_delivered"),
    itemOrder: "at DESC, order_id, original_transaction_id, transaction_id, measure",
    charts: [
      .bars("Orders", .init("Paid", "paid"), .init("Open", "open"), .init("Expired", "expired"))
    ], measure: .init("Opened", "opened"), isPartlyFrozen: true)

  package static let renewalsDue = Report(
    "renewals-due", label: "Renewals due", group: .money,
    summary:
      "Subscriptions set to renew in the next days, per day and product, with the money expected.",
    sql: PackageResources.renewals_due_sql,
    itemOrder: "due_at, original_transaction_id, transaction_id",
    charts: [.bars("Renewals per day", .init("Renewals", "number"))])

  package static let lifetimeValue = Report(
    "lifetime-value", label: "Lifetime value", group: .money,
    summary: "Revenue per subscription by the month of the first payment: ARPU by month, and LTV.",
    sql: PackageResources.lifetime_value_sql,
    drillDown: .columns("cohort_size", sums: ["revenue_milliunits": .init("revenue")]),
    order: "cohort, period, segment, currency")
}
