extension Report {
  package static let renewalsDue = Report(
    "renewals-due", label: "Renewals due", group: .money,
    summary:
      "Subscriptions set to renew in the next days, per day and product, with the money expected.",
    sql: PackageResources.renewals_due_sql,
    itemOrder: "due_at, original_transaction_id, transaction_id",
    charts: [.bars("Renewals per day", .init("Renewals", "number"))])
}
