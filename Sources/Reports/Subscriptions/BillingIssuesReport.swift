extension Report {
  package static let billingIssues = Report(
    "billing-issues", label: "Billing issues", group: .subscriptions,
    summary: "Subscriptions in a grace period or in billing retry, and how many of them recover.",
    sql: PackageResources.billing_issues_sql,
    drillDown: .columns(
      "in_grace_period", "in_billing_retry", "entered", "recovered", "lost", "cohort_recovered",
      "cohort_lost"),
    itemOrder: "since DESC, original_transaction_id, transaction_id, measure",
    shares: [
      "recovery_rate": .init(
        "cohort_recovered", of: "entered", settled: "cohort_recovered", "cohort_lost")
    ],
    charts: [
      .lines(
        "Billing issues over time", .init("In grace period", "in_grace_period"),
        .init("In billing retry", "in_billing_retry")),
      .bars(
        "New and resolved", .init("Entered", "entered"), .init("Recovered", minus: "recovered"),
        .init("Lost", minus: "lost"),
        net: .init("Net change", "entered", minus: "recovered", "lost")),
    ], measure: .init("Open issues", "in_grace_period", "in_billing_retry"))
}
