package import Subscriptions

/// The choices of a report: which days, which products, as known when.
package struct ReportChoices: Hashable, Sendable {
  package enum Bucket: String, CaseIterable, Sendable {
    case day
    /// From Monday to Sunday.
    case week
    case month
  }

  package enum Segmentation: String, CaseIterable, Sendable {
    case product
    case storefront
    case offerType = "offer_type"
    case periodType = "period_type"

    /// The column of the items that has the row's segment.
    package var column: String { self == .product ? "product_id" : rawValue }
  }

  package enum DateOf: String, CaseIterable, Sendable {
    case refund
    case charge
  }

  /// The first and the last day that are counted; nil: the report's default.
  package var from: CalendarDate?
  package var to: CalendarDate?
  package var bucket: Bucket?
  /// By its name in the IANA database.
  package var timeZone = Self.utc
  package var product: String?
  package var environment = Environment.production
  package var includesFamilyShared = false
  package var includesTrials = false
  package var includesGrants = false
  /// Nil: one row for all.
  package var by: Segmentation?
  /// The date by which `refunds` counts.
  package var dateOf = DateOf.refund
  /// ISO 4217; nil: amounts are not summed across currencies.
  package var reportingCurrency: String?
  /// As the ledger knew it then; nil: as it is known now.
  package var knownAt: Timestamp?
  /// Leaves out later dates; nil: now.
  package var asOf: Timestamp?
  /// `intake`: the days up to the last one, unless the first is chosen; `renewals-due`: days ahead.
  package var days = 30
  /// `retention`: the month after the first one whose items are listed.
  package var period: Int?
  package var includesSandbox = false
  /// Lists the items that are counted instead of the numbers.
  package var listsItems = false
  /// Only the items that one column counts; nil: all.
  package var column: String?
  /// The most rows; nil: ``usualLimit`` in a table, all in a file.
  package var limit: Int?

  package static let utc = "UTC"
  package static let dayRange = 1...3660
  package static let periodRange = 0...600
  package static let usualLimit = 1000
  package static let limitRange = 1...10_000
  /// In days: more than a chart can show.
  static let longestRange = 36_600

  package init() {}

  /// Checks everything but the time zone, which the database knows.
  package func check(for report: Report) throws(ReportFault) {
    if let from, let to {
      guard from.daysSince1970 <= to.daysSince1970 else {
        throw ReportFault(.from, "is after the last day, \(to.text)")
      }
      guard to.daysSince1970 - from.daysSince1970 <= Self.longestRange else {
        throw Self.tooLongRange
      }
    }
    if let product, product.isEmpty || product.count > 255 {
      throw ReportFault(.product, "must have 1 to 255 characters")
    }
    if let reportingCurrency,
      reportingCurrency.utf8.count != 3
        || !reportingCurrency.utf8.allSatisfy((UInt8(ascii: "A")...UInt8(ascii: "Z")).contains)
    {
      throw ReportFault(.reportingCurrency, "must be a code of ISO 4217, as in EUR")
    }
    if let column {
      let columns = report.itemizedColumns
      guard listsItems else { throw ReportFault(.column, "is only for lists of items") }
      guard columns.contains(column) else {
        throw ReportFault(
          .column,
          columns.isEmpty
            ? "is not accepted by this report" : "must be one of \(columns.joined(separator: ", "))"
        )
      }
    }
  }
}

extension ReportChoices {
  func moment(at now: Timestamp) -> Timestamp { min(asOf ?? now, knownAt ?? asOf ?? now) }

  /// Checks the number of days up to the moment, where no earlier last day is chosen.
  func checkRange(at now: Timestamp) throws(ReportFault) {
    guard let from else { return }
    let moment = moment(at: now).dayAndTime.date.daysSince1970
    let last = min(to?.daysSince1970 ?? moment, moment)
    guard last - from.daysSince1970 <= Self.longestRange else { throw Self.tooLongRange }
  }

  private static let tooLongRange = ReportFault(
    .from, "is more than \(longestRange) days before the last day")
}

extension ReportChoices {
  /// Makes a choice, written as ``text(of:)`` does; refuses one that the report does not accept.
  package mutating func set(
    _ parameter: ReportParameter, of report: Report, to text: String
  ) throws(ReportFault) {
    guard report.parameters.contains(parameter) else {
      throw ReportFault(parameter, "is not accepted by this report")
    }
    guard !text.unicodeScalars.contains(where: { $0.properties.generalCategory == .control }) else {
      throw ReportFault(parameter, "must not contain control characters")
    }
    func checked<Value>(_ value: Value?, _ fault: String) throws(ReportFault) -> Value {
      guard let value else { throw ReportFault(parameter, fault) }
      return value
    }
    func day() throws(ReportFault) -> CalendarDate {
      try checked(CalendarDate(iso8601: text), "must be an ISO 8601 date, as in 2026-11-21")
    }
    func moment() throws(ReportFault) -> Timestamp {
      try checked(
        Timestamp(rfc3339: text), "must be an RFC 3339 time, such as 2026-11-21T09:30:00Z")
    }
    func flag() throws(ReportFault) -> Bool { try checked(Bool(text), "must be true or false") }
    func integer(in range: ClosedRange<Int>) throws(ReportFault) -> Int {
      try checked(
        Int(text).flatMap { range.contains($0) ? $0 : nil },
        "must be a number from \(range.lowerBound) to \(range.upperBound)")
    }
    switch parameter {
    case .from: from = try day()
    case .to: to = try day()
    case .bucket: bucket = try checked(Bucket(exactly: text), "must be day, week or month")
    case .timeZone: timeZone = text
    case .product: product = text
    case .environment:
      environment = try checked(Environment(exactly: text), "must be production or sandbox")
    case .includeFamilyShared: includesFamilyShared = try flag()
    case .includeTrials: includesTrials = try flag()
    case .includeGrants: includesGrants = try flag()
    case .by:
      let accepted = report.segmentations
      by = try checked(
        Segmentation(exactly: text).flatMap { accepted.contains($0) ? $0 : nil },
        "must be one of \(accepted.map(\.rawValue).joined(separator: ", "))")
    case .dateOf: dateOf = try checked(DateOf(exactly: text), "must be refund or charge")
    case .reportingCurrency: reportingCurrency = text
    case .knownAt: knownAt = try moment()
    case .asOf: asOf = try moment()
    case .days: days = try integer(in: Self.dayRange)
    case .period: period = try integer(in: Self.periodRange)
    case .includeSandbox: includesSandbox = try flag()
    case .column: column = text
    }
  }

  /// A choice as text, for a URL or a statement; nil for the default.
  package func text(of parameter: ReportParameter) -> String? {
    let usual = ReportChoices()
    return switch parameter {
    case .from: from?.text
    case .to: to?.text
    case .bucket: bucket?.rawValue
    case .timeZone: timeZone == usual.timeZone ? nil : timeZone
    case .product: product
    case .environment: environment == usual.environment ? nil : environment.rawValue
    case .includeFamilyShared: includesFamilyShared ? "true" : nil
    case .includeTrials: includesTrials ? "true" : nil
    case .includeGrants: includesGrants ? "true" : nil
    case .by: by?.rawValue
    case .dateOf: dateOf == usual.dateOf ? nil : dateOf.rawValue
    case .reportingCurrency: reportingCurrency
    case .knownAt: knownAt.map { "\($0)" }
    case .asOf: asOf.map { "\($0)" }
    case .days: days == usual.days ? nil : "\(days)"
    case .period: period.map { "\($0)" }
    case .includeSandbox: includesSandbox ? "true" : nil
    case .column: column
    }
  }
}

extension CalendarDate {
  /// Reads an ISO 8601 day, as in `2026-11-21`; nil for anything else.
  package init?(iso8601 text: String) {
    guard text.utf8.count == 10, let moment = Timestamp(rfc3339: text + "T00:00:00Z") else {
      return nil
    }
    self = moment.dayAndTime.date
  }

  /// ISO 8601.
  package var text: String { String("\(Timestamp(self))".prefix(10)) }
}
