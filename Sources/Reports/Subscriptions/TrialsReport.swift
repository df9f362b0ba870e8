extension Report {
  package static let trials = Report(
    "trials", label: "Trials", group: .subscriptions,
    summary:
      "Free trials: started, expired, unexpired, and the conversion of those that began together.",
    sql: PackageResources.trials_sql,
    drillDown: .columns(
      "started", "recovered", "converted", "expired", "trials", "cohort_started",
      "cohort_converted",
      "cohort_expired"), stock: "trials",
    shares: [
      "conversion_rate": .init(
        "cohort_converted", of: "cohort_started", settled: "cohort_converted", "cohort_expired")
    ],
    charts: [
      .lines("Open trials", .init("Open trials", "trials")),
      .bars("Started", .init("Started", "started"), .init("Recovered", "recovered")),
      .bars("Outcome", .init("Converted", "converted"), .init("Expired", minus: "expired")),
    ], measure: .init("Started", "started"))
}
