extension Report {
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
}
