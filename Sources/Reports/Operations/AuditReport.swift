/// What administrators did.
enum AuditReport {
  static let shape = ReportShape(
    summary: "What administrators did, to whom, and why.",
    parameters: [.from, .to, .bucket, .timeZone, .knownAt, .asOf],
    columns: [
      ReportColumn("from_day", .date), ReportColumn("administrator", .text),
      ReportColumn("action", .text), ReportColumn("number", .number),
      ReportColumn("last_at", .time),
    ],
    order: "from_day DESC, administrator, action",
    itemColumns: [
      ReportColumn("from_day", .date), ReportColumn("administrator", .text),
      ReportColumn("action", .text), ReportColumn("at", .time), ReportColumn("subject", .text),
      ReportColumn("account_id", .text), ReportColumn("previous_account_id", .text),
      ReportColumn("reason", .text), ReportColumn("data", .text), ReportColumn("number", .number),
    ],
    itemOrder: "at DESC, subject")
}
