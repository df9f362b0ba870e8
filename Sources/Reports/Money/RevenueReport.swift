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
        .init("Refunded", "refunded_milliunits"),
        net: .init("Net revenue", "net_by_refund_milliunits"))
    ], measure: .init("Net revenue", "net_by_refund_milliunits"),
    countsAllProducts: true)
}
