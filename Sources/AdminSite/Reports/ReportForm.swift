import Foundation
import HTTPAPI
import Reports
import Subscriptions

/// The choices in a page's URL, and why some of them are refused.
struct ReportRequest: Sendable {
  let report: Report
  /// The form's values as they were entered.
  let fields: EncodedFields
  private let query: String?
  var choices = ReportChoices()
  /// By the names of the fields.
  var faults: [String: String] = [:]

  /// The prefix of a drill-down's row values.
  private static let rowPrefix = "row_"
  private static let column = "cell"
  /// The names of the row's columns without a value.
  private static let null = "row_null"

  /// Reads a query: forms also send empty fields, and a day means its end where a time is expected.
  init(_ report: Report, query: String?, at now: Timestamp) {
    (self.report, self.query) = (report, query)
    fields = EncodedFields(query ?? "", .html)
    for parameter in ReportParameter.allCases where parameter != .column {
      guard let text = fields[parameter.rawValue]?.rawValue else { continue }
      let day = parameter == .knownAt || parameter == .asOf ? CalendarDate(iso8601: text) : nil
      let end = day.map { Timestamp(endOf: $0, in: choices.timeZone) }
      // Today is the default, so that reloading asks the same.
      if let day, let end, now <= end,
        Timestamp(endOf: CalendarDate(daysSince1970: day.daysSince1970 - 1), in: choices.timeZone)
          < now
      {
        continue
      }
      do {
        // One at a time, so that each field has its own message.
        try choices.set(parameter, of: report, to: end.map { "\($0)" } ?? text)
      } catch {
        note(error)
      }
    }
    do {
      try choices.check(for: report)
    } catch {
      note(error)
    }
  }

  mutating func note(_ fault: ReportFault) { faults[fault.parameter.rawValue] = fault.text }

  // MARK: Addresses

  func href(_ cell: ReportCell) -> String {
    AdminURL.drillDown(report.name, choices: query(cell))
  }

  func query(_ cell: ReportCell) -> [(name: String, value: String)] {
    let row = cell.row.sorted { $0.key < $1.key }.map { name, value in
      value.map { (Self.rowPrefix + name, $0) } ?? (Self.null, name)
    }
    return [(Self.column, cell.column)] + cell.choices.query(of: report) + row
  }

  /// The number that the URL names; throws ``ReportFault`` for one that the report does not have.
  func cell() throws -> ReportCell {
    var row: [String: String?] = [:]
    // In a link, an empty value is kept; a form leaves it out. The names of columns are ASCII.
    let link = EncodedFields(query ?? "", .query)
    for name in link.all(Self.null).map(\.rawValue) where name.isASCII {
      row.updateValue(nil, forKey: name)
    }
    for (name, value) in link.all(beginningWith: Self.rowPrefix)
    where name.isASCII && Self.rowPrefix + name != Self.null && row[name] == nil {
      row[name] = value
    }
    let column = fields[Self.column]?.rawValue ?? ""
    return try ReportCell(of: report, choices, column: column.isASCII ? column : "", row: row)
  }
}

extension ReportChoices {
  /// The choices as a URL has them, without defaults.
  func query(of report: Report) -> [(name: String, value: String)] {
    report.parameters.filter { $0 != .column }.compactMap { parameter in
      text(of: parameter).map { (parameter.rawValue, $0) }
    }
  }
}

extension ReportRequest {
  var formFields: [FormField] {
    report.parameters.filter { $0 != .column && $0 != .period }.map { FormField($0, of: self) }
  }
}

extension FormField {
  fileprivate init(_ parameter: ReportParameter, of request: ReportRequest) {
    let name = parameter.rawValue
    let sent = request.fields[name] ?? ""
    let value = sent.rawValue
    self.init(id: "choice-" + name.replacing("_", with: "-"), name: name, label: parameter.label)
    fault = request.faults[name]
    if let values = parameter.values {
      isSelect = true
      options = values.map {
        ($0.value, $0.label, ExactText($0.value) == sent)
      }
    } else if parameter.isFlag {
      isCheckbox = true
      isChecked = sent == "true"
    } else {
      isInput = true
      // A date field would not show anything else.
      let isDay = value.isEmpty || CalendarDate(iso8601: value) != nil
      type =
        switch parameter {
        case .from, .to: isDay ? "date" : "text"
        case .days: value.allSatisfy(\.isNumber) ? "number" : "text"
        default: "text"
        }
      self.value = parameter == .days && value.isEmpty ? "\(ReportChoices().days)" : value
    }
  }
}

extension ReportParameter {
  fileprivate var label: String {
    switch self {
    case .from: "From"
    case .to: "To"
    case .bucket: "Rows"
    case .timeZone: "Time zone"
    case .product: "Product"
    case .environment: "Environment"
    case .includeFamilyShared: "Include family sharing"
    case .includeTrials: "Include trials"
    case .includeGrants: "Include grants"
    case .by: "By"
    case .dateOf: "Date"
    case .reportingCurrency: "Converted to"
    case .knownAt: "As known at (date or time; default: now)"
    case .asOf: "As of (date or time; default: now)"
    case .days: "Days"
    case .period: "Period"
    case .includeSandbox: "Include sandbox"
    case .column: "Column"
    }
  }

  fileprivate var isFlag: Bool {
    [.includeFamilyShared, .includeTrials, .includeGrants, .includeSandbox].contains(self)
  }

  /// The accepted values; nil: free text.
  fileprivate var values: [(value: String, label: String)]? {
    switch self {
    case .bucket: [("", "Default"), ("day", "Days"), ("week", "Weeks"), ("month", "Months")]
    case .environment: [("production", "Production"), ("sandbox", "Sandbox")]
    case .dateOf: [("refund", "Of the refund"), ("charge", "Of the charge")]
    case .by:
      [
        ("", "Combined"), ("product", "Product"), ("storefront", "Storefront"),
        ("offer_type", "Offer type"), ("period_type", "Period type"),
      ]
    default: nil
    }
  }
}

extension Timestamp {
  /// The last millisecond of a day in a time zone of the IANA database; in UTC for an unknown name.
  init(endOf day: CalendarDate, in timeZone: String) {
    let midnight = Timestamp(day) + .days(1)
    let zone = TimeZone(identifier: timeZone)
    // The offset at local midnight: the first pass is an estimate.
    let offset = [0, 1].reduce(0) { offset, _ in
      zone?.secondsFromGMT(
        for: Date(
          timeIntervalSince1970: Double((midnight - .seconds(offset)).milliseconds) / 1000)) ?? 0
    }
    self = midnight - .seconds(offset) - .milliseconds(1)
  }
}
