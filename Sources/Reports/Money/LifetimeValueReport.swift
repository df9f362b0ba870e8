extension Report {
  package static let lifetimeValue = Report(
    "lifetime-value", label: "Lifetime value", group: .money,
    summary: "What a subscription has brought in so far, by the month of its first payment.",
    sql: PackageResources.lifetime_value_sql,
    drillDown: .columns("cohort_size", sums: ["revenue_milliunits": .init("revenue")]),
    order: "cohort, period, segment, currency")
}
