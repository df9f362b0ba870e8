extension Report {
  package static let retention = Report(
    "retention", label: "Retention", group: .subscriptions,
    summary: "How many of the subscriptions first paid in a month are still paid in later months.",
    sql: PackageResources.retention_sql, drillDown: .columns("cohort_size", "retained"),
    order: "cohort, period", shares: ["retention_rate": .init("retained", of: "cohort_size")])
}
