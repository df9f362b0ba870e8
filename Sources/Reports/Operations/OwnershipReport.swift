extension Report {
  package static let ownership = Report(
    "ownership", label: "Ownership", group: .operations,
    summary:
      "Charges by the rule that decided their owner, and subscriptions that moved or are shared.",
    sql: PackageResources.ownership_sql,
    drillDown: .rows("measure", "decided", "corrected", "moved", "shared"),
    charts: [.bars("Decided and corrected charges", .init("Charges", "number"))],
    isPartlyFrozen: true,
    countsAllProducts: true)
}
