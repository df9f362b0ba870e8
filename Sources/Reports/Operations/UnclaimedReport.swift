extension Report {
  package static let unclaimed = Report(
    "unclaimed", label: "Unclaimed charges", group: .operations,
    summary: "Recorded charges that no account owns, by age and money.",
    sql: PackageResources.unclaimed_sql,
    itemOrder: "first_seen_at DESC, original_transaction_id, transaction_id",
    countsAllProducts: true)
}
