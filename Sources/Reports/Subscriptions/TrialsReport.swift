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
      .lines("Open trials", .init("Trials", "trials")),
      .bars(
        "Started and ended", .init("Started", "started"), .init("Recovered", "recovered"),
        .init("Converted", minus: "converted"),
        .init("Expired", minus: "expired"),
        net: .init("Change in open trials", "trials", minus: "opening")),
    ], measure: .init("Started", "started"))
}
