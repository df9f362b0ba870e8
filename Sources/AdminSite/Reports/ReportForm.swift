import Foundation
import HTTPAPI
import Reports
import Subscriptions

/// The choices in a page's URL, and why some of them are refused.
struct ReportRequest: Sendable {
  let report: Report
  let now: Timestamp
  /// The form's values as they were entered.
  let fields: EncodedFields
  private let query: String?
  var choices = ReportChoices()
  /// By the IDs of products: names that no other product has.
  var productNames: [String: String] = [:]
  /// By the names of the fields.
  var faults: [String: String] = [:]

  /// The prefix of a drill-down's row values.
  private static let rowPrefix = "row_"
  /// The prefix of the choices of days of the report that a drill-down came from.
  private static let rangePrefix = "report_"
  private static let column = "cell"
  /// Parameters of the pages alone.
  private static let ofPages = [column, compare, "format", "offset"]
  /// The names of the row's columns without a value.
  private static let null = "row_null"

  /// Reads a query: forms also send empty fields, and a day means its end where a time is expected.
  init(_ report: Report, query: String?, at now: Timestamp) {
    (self.report, self.query, self.now) = (report, query, now)
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
    let known = ReportParameter.allCases.map(\.rawValue) + Self.ofPages
    for (name, _) in fields.all(beginningWith: "")
    where !known.contains(name)
      && ![Self.rowPrefix, Self.rangePrefix].contains(where: name.hasPrefix)
    {
      faults[name] = "is not a parameter of this report"
    }
    if let range, range.last.daysSince1970 < range.first.daysSince1970 {
      faults[ReportParameter.from.rawValue] = "is after the last day, \(range.last.name)"
      return
    }
    do {
      try choices.check(for: report)
    } catch {
      note(error)
    }
  }

  /// Shows products by their names.
  mutating func take(_ catalogue: Catalogue) { productNames = catalogue.productNames }

  mutating func note(_ fault: ReportFault) { faults[fault.parameter.rawValue] = fault.text }

  // MARK: Addresses

  func href(_ cell: ReportCell) -> String {
    // The days of the row replace those of the report.
    let range = choices.query(of: report).filter { Self.ofRange.contains($0.name) }
      .map { (name: Self.rangePrefix + $0.name, value: $0.value) }
    return AdminURL.drillDown(report.name, choices: query(cell) + range)
  }

  private static let ofRange = ["from", "to", "days", "bucket", "as_of"]

  /// The days of the report that the link to a number came from, as parameters of this page.
  var originRange: [(name: String, value: String)] {
    EncodedFields(query ?? "", .query).all(beginningWith: Self.rangePrefix)
      .filter { Self.ofRange.contains($0.name) }
      .map { (Self.rangePrefix + $0.name, $0.value) }
  }

  /// The page of the report that a link to a number came from.
  func origin(of cell: ReportCell) -> String {
    let range = originRange.map {
      (name: String($0.name.dropFirst(Self.rangePrefix.count)), value: $0.value)
    }
    let others = cell.choices.query(of: report).filter { choice in
      !(Self.ofRange + ["period"]).contains(choice.name)
    }
    return AdminURL.report(report.name, choices: range + others)
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

/// The form of a report's choices.
struct ReportForm: Sendable {
  var fields: [FormField] = []
  /// Folded, unless one of them has a fault.
  var rareFields: [FormField] = []
  /// How many of the folded ones are not as usual.
  var rareChoices: Int?
  var isRareOpen: Bool
  var timeZones: [String] = []

  private static let common: Set<ReportParameter> = [.from, .to, .bucket, .product, .days]

  /// - Parameter currencies: Those to convert to.
  init(_ request: ReportRequest, _ catalogue: Catalogue, currencies: [String]) {
    let parameters = request.report.parameters.filter { parameter in
      parameter != .column && parameter != .period
        // The first day says the same.
        && (parameter != .days || request.range == nil || request.faults["days"] != nil)
    }
    let rare = parameters.filter { !Self.common.contains($0) }
    let chosen = rare.count { request.choices.text(of: $0) != nil }
    rareChoices = chosen > 0 ? chosen : nil
    isRareOpen = rare.contains { request.faults[$0.rawValue] != nil }
    fields = parameters.filter(Self.common.contains).map {
      FormField($0, of: request, catalogue, currencies)
    }
    if request.isComparable {
      fields.append(
        FormField(
          id: "choice-compare", name: ReportRequest.compare, label: "Compare with previous period",
          isCheckbox: true, isChecked: request.comparesPrevious,
          hint: request.choices.by == nil ? nil : "Not with “Split by”."))
    }
    rareFields = rare.map { FormField($0, of: request, catalogue, currencies) }
    if parameters.contains(.timeZone) { timeZones = Self.timeZones }
  }

  /// Of the machine, which has those of PostgreSQL, or older ones.
  private static let timeZones = TimeZone.knownTimeZoneIdentifiers.sorted()
}

extension FormField {
  fileprivate init(
    _ parameter: ReportParameter, of request: ReportRequest, _ catalogue: Catalogue,
    _ currencies: [String]
  ) {
    let name = parameter.rawValue
    self.init(
      id: "choice-" + name.replacing("_", with: "-"), name: name, label: parameter.label)
    fault = request.faults[name].map { "\(parameter.label) \($0)." }
    // The value in force, unless another one was entered.
    value = request.fields[name]?.rawValue ?? request.inForce(parameter)
    if var values = parameter.values(of: request.report, catalogue, currencies) {
      isSelect = true
      if !values.contains(where: { ExactText($0.value) == ExactText(value) }) {
        // The first one is usual.
        if value.isEmpty { value = values[0].value } else { values.append((value, value)) }
      }
      options = values.map { ($0.value, $0.label, ExactText($0.value) == ExactText(value)) }
    } else if parameter.isFlag {
      isCheckbox = true
      isChecked = value == "true"
    } else {
      isInput = true
      // A date field would not show anything else.
      let isDay = value.isEmpty || CalendarDate(iso8601: value) != nil
      type =
        switch parameter {
        case .from, .to, .knownAt, .asOf: isDay ? "date" : "text"
        case .days: value.allSatisfy(\.isNumber) ? "number" : "text"
        default: "text"
        }
      if parameter == .timeZone { listID = "time-zones" }
    }
  }
}

extension ReportRequest {
  fileprivate func inForce(_ parameter: ReportParameter) -> String {
    switch parameter {
    case .from: range?.first.text ?? ""
    case .to: range?.last.text ?? ""
    case .bucket: bucket?.rawValue ?? ""
    case .timeZone: choices.timeZone
    case .days: "\(choices.days)"
    default: choices.text(of: parameter) ?? ""
    }
  }
}

extension ReportParameter {
  /// The name for people.
  var label: String { Self.labels[rawValue] ?? EnumText.sentence(rawValue) }

  private static let labels = [
    "bucket": "By", "reporting_currency": "Convert to", "known_at": "As known on",
    "as_of": "As of", "by": "Split by", "date_of": "Refunds by",
    "period": "Month",
  ]

  fileprivate var isFlag: Bool { rawValue.hasPrefix("include_") }

  /// The accepted values; nil: free text.
  fileprivate func values(of report: Report, _ catalogue: Catalogue, _ currencies: [String])
    -> [(value: String, label: String)]?
  {
    switch rawValue {
    case "bucket":
      (report.usualBucket == nil ? [("", "All days")] : [])
        + [("day", "Day"), ("week", "Week"), ("month", "Month")]
    case "product":
      [("", "All products")]
        + catalogue.products.filter {
          $0.type == .autoRenewable || report.countsAllProducts
        }.map { product in
          let id = product.id.rawValue
          return (id, product.displayName.map { "\($0) (\(id))" } ?? id)
        }
    case "environment": [("production", "Production"), ("sandbox", "Sandbox")]
    case "by":
      [("", "Nothing")]
        + report.segmentations.map { ($0.rawValue, EnumText.sentence($0.rawValue)) }
    case "date_of": [("refund", "Date of the refund"), ("charge", "Date of the purchase")]
    case "reporting_currency":
      [("", "No conversion")] + currencies.map { ($0, $0) }
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

extension Catalogue {
  /// The names of products by their IDs, without those that several products have.
  var productNames: [String: String] {
    let named = Dictionary(grouping: products.filter { $0.displayName != nil }) {
      $0.displayName ?? ""
    }
    return Dictionary(
      uniqueKeysWithValues: named.filter { $0.value.count == 1 }.map { ($1[0].id.rawValue, $0) })
  }
}
