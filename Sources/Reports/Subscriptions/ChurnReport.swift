extension Report {
  package static let churn = Report(
    "churn", label: "Churn", group: .subscriptions,
    summary: "Churned subscriptions by cause, compared with those active at the start.",
    sql: PackageResources.churn_sql,
    drillDown: .columns(
      "active_at_start", "voluntary", "price_not_consented", "involuntary", "product_withdrawn",
      "unknown", "expired", "refunded", "resubscribed",
      sums: ["churned": .init("expired", "refunded")]),
    shares: [
      "churn_rate": .init("churned", per: "active_at_start"),
      "expiry_rate": .init("expired", per: "active_at_start"),
    ],
    charts: [
      .bars(
        "Churned by cause", .init("Voluntary", "voluntary"), .init("Involuntary", "involuntary"),
        .init("Product withdrawn", "product_withdrawn"), .init("Unknown", "unknown"),
        .init("Refunded", "refunded"))
    ], measure: .init("Churned", "churned"))
}
