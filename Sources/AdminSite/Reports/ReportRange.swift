import Foundation
import HTTPAPI
import Reports
import Subscriptions

/// Days from the first to the last, inclusive.
struct DayRange: Hashable, Sendable {
  var first: CalendarDate
  var last: CalendarDate

  /// The days of both, and those between them.
  func joined(to other: DayRange) -> DayRange {
    DayRange(
      first: other.first.daysSince1970 < first.daysSince1970 ? other.first : first,
      last: other.last.daysSince1970 > last.daysSince1970 ? other.last : last)
  }

  /// As in `25 Nov 2026`, `Nov 2026`, `1–25 Nov 2026` or `28 Dec 2025 – 3 Jan 2026`.
  var text: String {
    let isOfOneMonth = (first.year, first.month) == (last.year, last.month)
    let end = last.name
    if first == last { return end }
    if isOfOneMonth, first.day == 1, last.adding(days: 1).day == 1 {
      return "\(last.monthName) \(last.year)"
    }
    if isOfOneMonth { return "\(first.day)–\(end)" }
    let year = first.year == last.year ? "" : " \(first.year)"
    return "\(first.day) \(first.monthName)\(year) – \(end)"
  }
}

extension CalendarDate {
  /// A day of ISO 8601 for people; another text as it is.
  static func name(_ text: String) -> String { CalendarDate(iso8601: text)?.name ?? text }

  func adding(days: Int) -> CalendarDate {
    CalendarDate(daysSince1970: daysSince1970 + days)
  }

  /// The first day of its week (a Monday) or month.
  func start(of bucket: ReportChoices.Bucket) -> CalendarDate {
    switch bucket {
    case .day: self
    // 5 January 1970 was a Monday.
    case .week: adding(days: -(((daysSince1970 - 4) % 7 + 7) % 7))
    case .month: CalendarDate(year: year, month: month, day: 1)
    }
  }

  func adding(_ count: Int, _ bucket: ReportChoices.Bucket) -> CalendarDate {
    switch bucket {
    case .day: adding(days: count)
    case .week: adding(days: 7 * count)
    case .month: adding(months: count)
    }
  }
}

extension Timestamp {
  /// The day in a time zone of the IANA database; in UTC for an unknown name.
  func day(in timeZone: String) -> CalendarDate {
    let offset =
      TimeZone(identifier: timeZone)?.secondsFromGMT(
        for: Date(timeIntervalSince1970: Double(milliseconds) / 1000)) ?? 0
    return (self + .seconds(offset)).dayAndTime.date
  }
}

extension Report {
  /// The days, weeks or months of its rows, unless others are chosen; nil: the rows have no days, or
  /// one row has all of them.
  var usualBucket: ReportChoices.Bucket? {
    switch self {
    case .ownership, .audit: .day
    case .intake: nil
    default: parameters.contains(.from) ? .month : nil
    }
  }

  /// Whether its days are those on which customers began, by whole months.
  var hasCohorts: Bool { columns.contains { $0.name == "cohort" } }
}

extension ReportRequest {
  /// The latest moment that is counted.
  private var moment: Timestamp {
    let asOf = choices.asOf ?? now
    return min(asOf, choices.knownAt ?? asOf)
  }

  private var today: CalendarDate { moment.day(in: choices.timeZone) }

  var bucket: ReportChoices.Bucket? { choices.bucket ?? report.usualBucket }

  /// The days in force, as `calendar_bucket` has them; nil for a report of a moment.
  var range: DayRange? {
    guard report.parameters.contains(.from) else { return nil }
    var last = today
    if let to = choices.to, to.daysSince1970 < last.daysSince1970 { last = to }
    let usual =
      switch report == .intake ? nil : bucket {
      case .day?: last.adding(days: -27)
      case .week?: last.start(of: .week).adding(days: -77)
      case .month?: last.start(of: .month).adding(months: -11)
      case nil: last.adding(days: 1 - choices.days)
      }
    return DayRange(first: choices.from ?? usual, last: last)
  }

  /// The days of a chart, with those without rows; nil if the rows have no periods.
  var charted: DayRange? {
    report == .renewalsDue
      ? DayRange(first: today, last: today.adding(days: choices.days)) : bucket == nil ? nil : range
  }

  /// The choices in force in words, as in `1 Dec 2025 – 25 Nov 2026, by month, UTC`.
  var rangeText: String {
    let filters = [
      choices.product.map { productNames[$0] ?? $0 },
      choices.by.map { "by \(EnumText.sentence($0.rawValue).lowercased())" },
      choices.dateOf == .charge ? "by the date of the purchase" : nil,
      choices.knownAt.map { "as known at \(Moment($0).text) UTC" },
      choices.environment == .sandbox ? "sandbox (no real payments)" : nil,
    ]
    guard let range else {
      let moment = Moment(moment).text
      let start =
        report.parameters.contains(.days)
        ? "The next \(Count.text(choices.days, "day")), as of \(moment) UTC"
        : "As of \(moment) UTC"
      return ([start] + filters).compactMap(\.self).joined(separator: ", ")
    }
    let parts = [
      report.hasCohorts
        ? "Subscriptions first paid \(range.first.start(of: .month).monthName) "
          + "\(range.first.year) – \(range.last.monthName) \(range.last.year)" : range.text,
      report.parameters.contains(.bucket) ? bucket.map { "by \($0.rawValue)" } : nil,
      choices.timeZone,
    ]
    return (parts + filters).compactMap(\.self).joined(separator: ", ")
  }

  /// The name of a file with its days, as in `revenue-2026-01-01-to-2026-01-31.csv`.
  func fileName(_ name: String) -> String {
    let days = range.map { "\($0.first.text)-to-\($0.last.text)" } ?? today.text
    return "\(name)-\(days).csv"
  }

  // MARK: Links

  /// Common ranges, which replace the chosen one.
  var presets: [(label: String, href: String, isCurrent: Bool)] {
    guard let range else {
      guard report.parameters.contains(.days) else { return [] }
      return [7, 30, 90].map { days in
        link("Next \(days) days", isCurrent: choices.days == days) { $0.days = days }
      }
    }
    let (day, month) = (today, today.start(of: .month))
    // The usual days of each.
    let days = report == .intake ? ReportChoices().days : 28
    let all: [(String, CalendarDate, ReportChoices.Bucket)] = [
      ("Last 7 days", day.adding(days: -6), .day),
      ("Last \(days) days", day.adding(days: 1 - days), .day),
      ("Last 3 months", month.adding(months: -2), .week),
      ("Last 12 months", month.adding(months: -11), .month),
      ("Year to date", CalendarDate(year: day.year, month: 1, day: 1), .month),
    ]
    // Cohorts are whole months.
    return all.dropFirst(report.hasCohorts ? 2 : 0).map { label, first, bucket in
      let hasBucket = report.parameters.contains(.bucket) && report.usualBucket != nil
      return link(
        label, isCurrent: range == DayRange(first: first, last: day)
      ) { choices in
        (choices.from, choices.to, choices.days) = (first, nil, ReportChoices().days)
        if hasBucket { choices.bucket = bucket }
      }
    }
  }

  private func link(
    _ label: String, isCurrent: Bool, _ choose: (inout ReportChoices) -> Void
  ) -> (label: String, href: String, isCurrent: Bool) {
    var other = choices
    choose(&other)
    return (label, href(other), isCurrent)
  }

  /// The report's page with other choices, compared as now.
  func href(_ other: ReportChoices) -> String {
    let compare = comparesPrevious ? [(Self.compare, "true")] : []
    return AdminURL.report(report.name, choices: other.query(of: report) + compare)
  }

  // MARK: Comparison

  /// The name of the page's own parameter, which the report does not have.
  static let compare = "compare"

  /// Whether a period before can be compared with the range; the counts of ownership are of
  /// different things.
  var isComparable: Bool {
    report.usualBucket != nil && !report.hasCohorts && report != .ownership
  }

  /// Segments are not compared.
  var comparesPrevious: Bool {
    isComparable && choices.by == nil && fields[Self.compare]?.rawValue == "true"
  }

  /// The same number of days, weeks or months before the range; nil unless it is asked for.
  var previousRange: DayRange? {
    guard comparesPrevious, let range, let bucket else { return nil }
    return DayRange(
      first: range.first.adding(-starts(of: range).count, bucket),
      last: range.first.adding(days: -1))
  }

  /// The first days of the rows of a range.
  func starts(of range: DayRange) -> [CalendarDate] {
    let bucket = bucket ?? .day
    var starts: [CalendarDate] = []
    var next = range.first
    while next.daysSince1970 <= range.last.daysSince1970 {
      starts.append(next)
      next = next.start(of: bucket).adding(1, bucket)
    }
    return starts
  }

  /// Whether a row's last day was over at the moment of the answer.
  func hasEnded(_ row: ReportRow, of table: ReportTable) -> Bool {
    if let isPartial = row["is_partial"] { return isPartial != .flag(true) }
    let from = row.periodStart.flatMap { CalendarDate(iso8601: $0) }
    let last =
      row["to_day"]?.text.flatMap { CalendarDate(iso8601: $0) }
      ?? from?.start(of: bucket ?? .day).adding(1, bucket ?? .day).adding(days: -1)
    return last.map { hasEnded($0, of: table) } ?? true
  }

  /// Whether the last period was not over at the moment of the answer.
  func hasUnfinished(_ table: ReportTable) -> Bool {
    bucket != nil && range.map { !hasEnded($0.last, of: table) } ?? false
  }

  /// What a total leaves out, as in `without the open month`.
  func openNote(_ table: ReportTable) -> String? {
    bucket.flatMap { hasUnfinished(table) ? "without the open \($0.rawValue)" : nil }
  }

  /// Whether a day was over at the moment of the answer.
  func hasEnded(_ last: CalendarDate, of table: ReportTable) -> Bool {
    let moment = min(table.asOf, choices.knownAt ?? table.asOf) + .milliseconds(1)
    return last.daysSince1970 < moment.day(in: choices.timeZone).daysSince1970
  }

  var previousChoices: ReportChoices? {
    previousRange.map { range in
      var previous = choices
      (previous.from, previous.to) = (range.first, range.last)
      return previous
    }
  }
}
