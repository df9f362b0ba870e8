import Reports
import Subscriptions

extension ReportForm {
  /// The form of a report: what was chosen of it, and what is wrong with that.
  init(_ request: ReportRequest) {
    let report = request.report
    self.init(
      action: PageAddress.report(report.rawValue),
      fields: report.parameters.filter { $0 != .column && $0 != .period }.map { parameter in
        ReportField(parameter, of: request)
      }, hidden: [])
  }
}

extension ReportField {
  fileprivate init(_ parameter: ReportParameter, of request: ReportRequest) {
    let name = parameter.rawValue
    let sent = request.fields[name] ?? ""
    let value = sent.rawValue
    self.init(id: "choice-" + name.replacing("_", with: "-"), name: name, label: parameter.label)
    fault = request.faults[name]
    if let values = parameter.values {
      isSelect = true
      options = values.map {
        ReportOption(value: $0.value, label: $0.label, isSelected: ExactText($0.value) == sent)
      }
    } else if parameter.isFlag {
      isCheckbox = true
      isChecked = sent == "true"
    } else {
      isInput = true
      // What is no day would not be shown by a field for days.
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
    case .includeFamilyShared: "With family sharing"
    case .includeTrials: "With trials"
    case .includeGrants: "With grants"
    case .byProduct: "Products"
    case .reportingCurrency: "Converted to"
    case .knownAt: "As known at (day or time; empty: now)"
    case .asOf: "As of (day or time; empty: now)"
    case .days: "Days"
    case .period: "Period"
    case .includeSandbox: "With sandbox"
    case .column: "Column"
    }
  }

  fileprivate var isFlag: Bool {
    switch self {
    case .includeFamilyShared, .includeTrials, .includeGrants, .includeSandbox: true
    default: false
    }
  }

  /// What there is to choose from; nil: anything can be written.
  fileprivate var values: [(value: String, label: String)]? {
    switch self {
    case .bucket: [("", "as usual"), ("day", "Days"), ("week", "Weeks"), ("month", "Months")]
    case .environment: [("production", "Production"), ("sandbox", "Sandbox")]
    case .byProduct: [("", "as usual"), ("false", "all together"), ("true", "one by one")]
    default: nil
    }
  }
}
