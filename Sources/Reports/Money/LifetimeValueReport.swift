extension Report {
  package static let lifetimeValue = Report(
    "lifetime-value", label: "Lifetime value", group: .money,
    summary: "Revenue per subscription by the month of the first payment: ARPU by month, and LTV.",
    sql: PackageResources.lifetime_value_sql,
    drillDown: .columns("cohort_size", sums: ["revenue_milliunits": .init("revenue")]),
    order: "cohort, period, segment, currency")
}
