extension Report {
  package static let retention = Report(
    "retention", label: "Retention", group: .subscriptions,
    summary: "Of the subscriptions first paid in a month, those still paid in each following one.",
    sql: PackageResources.retention_sql, drillDown: .columns("cohort_size", "retained"),
    order: "cohort, period", shares: ["retention_rate": .init("retained", of: "cohort_size")])
}
