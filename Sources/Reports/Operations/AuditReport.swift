extension Report {
  package static let audit = Report(
    "audit", label: "Administrator actions", group: .operations,
    summary: "What administrators did, to whom, and why.", sql: PackageResources.audit_sql,
    order: "from_day DESC, administrator, action", itemOrder: "at DESC, subject",
    itemTieBreak: "action, data")
}
