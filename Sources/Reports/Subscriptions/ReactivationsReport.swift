extension Report {
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
