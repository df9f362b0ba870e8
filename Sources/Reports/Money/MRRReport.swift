extension Report {
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
        .init("Returned", "reactivated_milliunits"),
        .init("Expansion", "expansion_milliunits"), .init("Contraction", "contraction_milliunits"),
        .init("Churned", "churned_milliunits"),
        .init("Currency changed", "currency_changed_milliunits"),
        .init("Exchange rates", "exchange_milliunits"),
        net: .init("Net change", "mrr_milliunits", minus: "opening_milliunits")),
    ])
}
