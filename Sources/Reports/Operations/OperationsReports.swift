extension Report {
  package static let ownership = Report(
    "ownership", label: "Ownership", group: .operations,
    summary: "Charges by the rule that decided them, moved bindings, and shared subscriptions.",
    sql: PackageResources.ownership_sql,
    drillDown: .rows("measure", "decided", "corrected", "moved", "shared"),
    charts: [.bars("Decisions and changes of owners", .init("Charges", "number"))],
    isPartlyFrozen: true)

  package static let unclaimed = Report(
    "unclaimed", label: "Unclaimed charges", group: .operations,
    summary: "Recorded charges that no account owns, by age and money.",
    sql: PackageResources.unclaimed_sql,
    itemOrder: "first_seen_at DESC, original_transaction_id, transaction_id")

  package static let audit = Report(
    "audit", label: "Administrator actions", group: .operations,
    summary: "What administrators did, to whom, and why.", sql: PackageResources.audit_sql,
    order: "from_day DESC, administrator, action", itemOrder: "at DESC, subject",
    itemTieBreak: "action, data", charts: [.bars("Actions by kind", .init("Actions", "number"))])
}
