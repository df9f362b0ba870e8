extension Report {
  package static let subscriptions = Report(
    "subscriptions", label: "Subscriptions by state", group: .subscriptions,
    summary: "Subscriptions by product and state, as of a moment.",
    sql: PackageResources.subscriptions_sql,
    drillDown: .rows(
      "state", "active_renewing", "active_cancelled", "trial_renewing", "trial_cancelled",
      "in_grace_period", "in_billing_retry", "expired", "revoked", "granted"),
    itemOrder: "since DESC, original_transaction_id, transaction_id")

  package static let active = Report(
    "active", label: "Active subscriptions", group: .subscriptions,
    summary: "Paid subscriptions over time, and how their number changed: new, expired, returned.",
    sql: PackageResources.active_sql,
    drillDown: .columns(
      "new", "resubscribed", "expired", "refunded", "changed_in", "changed_out", "active",
      sums: ["churned": .init("expired", "refunded")]), stock: "active",
    charts: [
      .lines("Active subscriptions", .init("Active", "active")),
      .bars(
        "Subscriber movement", .init("New", "new"), .init("Returned", "resubscribed"),
        .init("Expired", minus: "expired"), .init("Refunded", minus: "refunded"),
        .init("Changed in", "changed_in"),
        .init("Changed out", minus: "changed_out"),
        net: .init("Net change", "active", minus: "opening")),
    ])

  package static let churn = Report(
    "churn", label: "Churn", group: .subscriptions,
    summary: "Churned subscriptions by cause, compared with those active at the start.",
    sql: PackageResources.churn_sql,
    drillDown: .columns(
      "active_at_start", "voluntary", "price_not_consented", "involuntary", "product_withdrawn",
      "unknown", "expired", "refunded", "resubscribed",
      sums: ["churned": .init("expired", "refunded")]),
    shares: [
      "churn_rate": .init("churned", of: "active_at_start"),
      "expiry_rate": .init("expired", of: "active_at_start"),
    ],
    charts: [
      .bars(
        "Churned by cause", .init("Voluntary", "voluntary"), .init("Involuntary", "involuntary"),
        .init("Product withdrawn", "product_withdrawn"), .init("Unknown", "unknown"),
        .init("Refunded", "refunded"))
    ], measure: .init("Churned", "churned"))

  package static let retention = Report(
    "retention", label: "Retention", group: .subscriptions,
    summary: "Of the subscriptions first paid in a month, those still paid in each following one.",
    sql: PackageResources.retention_sql, drillDown: .columns("cohort_size", "retained"),
    order: "cohort, period", shares: ["retention_rate": .init("retained", of: "cohort_size")])

  package static let trials = Report(
    "trials", label: "Trials", group: .subscriptions,
    summary:
      "Free trials: started, expired, unexpired, and the conversion of those that began together.",
    sql: PackageResources.trials_sql,
    drillDown: .columns(
      "started", "recovered", "converted", "expired", "trials", "cohort_started",
      "cohort_converted", "cohort_expired"), stock: "trials",
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

  package static let billingIssues = Report(
    "billing-issues", label: "Billing issues", group: .subscriptions,
    summary: "Subscriptions in a grace period or in billing retry, and how many of them recover.",
    sql: PackageResources.billing_issues_sql,
    drillDown: .columns(
      "in_grace_period", "in_billing_retry", "entered", "recovered", "lost", "cohort_recovered",
      "cohort_lost"), itemOrder: "since DESC, original_transaction_id, transaction_id, measure",
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

  package static let reactivations = Report(
    "reactivations", label: "Reactivations", group: .subscriptions,
    summary:
      "Renewal switched on again, and subscriptions that customers paid again after a lapse; those "
      + "that Apple charged after retrying are in Billing issues.",
    sql: PackageResources.reactivations_sql,
    drillDown: .columns("switched_off", "switched_on", "resubscribed"),
    charts: [
      .bars(
        "Auto-renew changes", .init("Switched on", "switched_on"),
        .init("Resubscribed", "resubscribed"), .init("Switched off", minus: "switched_off"))
    ])
}
