import Reports
import Subscriptions

extension Report {
  /// The report's heading.
  var label: String {
    switch self {
    case .subscriptions: "Subscriptions by state"
    case .active: "Active subscriptions"
    case .trials: "Trials"
    case .mrr: "Monthly recurring revenue"
    case .churn: "Churn"
    case .renewalsDue: "Renewals due"
    case .billingIssues: "Billing issues"
    case .retention: "Retention"
    case .revenue: "Revenue"
    case .refunds: "Refunds"
    case .reactivations: "Reactivations"
    case .ownership: "Ownership"
    case .unclaimed: "Unclaimed charges"
    case .orders: "Orders"
    case .intake: "Intake"
    case .audit: "Acts of administrators"
    }
  }

  /// The reports as the list shows them, by what they are about.
  static let groups: [(heading: String, reports: [Report])] = [
    (
      "Subscriptions",
      [.subscriptions, .active, .trials, .churn, .retention, .reactivations, .billingIssues]
    ),
    ("Money", [.mrr, .revenue, .refunds, .renewalsDue, .orders]),
    ("Ownership and intake", [.ownership, .unclaimed, .intake, .audit]),
  ]

  /// The shares among its columns: which part of which other column each is.
  var shares: [String: (part: String, whole: String)] {
    switch self {
    case .churn:
      [
        "churn_rate": ("churned", "active_at_start"), "expiry_rate": ("expired", "active_at_start"),
      ]
    case .trials: ["conversion_rate": ("cohort_converted", "cohort_started")]
    case .billingIssues: ["recovery_rate": ("cohort_recovered", "entered")]
    case .retention: ["retention_rate": ("retained", "cohort_size")]
    case .refunds: ["refund_rate": ("refunded", "paid")]
    default: [:]
    }
  }
}

extension ReportColumn {
  /// The column's heading, as in `Refunded of charges`.
  var label: String {
    if name == "mrr_milliunits" { return "MRR" }
    if name == "mrr_twelfths" { return "MRR, twelfths of a milliunit" }
    let unit = ["_milliunits", "_ms"].first { name.hasSuffix($0) } ?? ""
    return Self.sentence(String(name.dropLast(unit.count)))
  }

  /// Words of a name, as in `In grace period`.
  static func sentence(_ name: String) -> String {
    let words = name.replacing("_", with: " ")
    return words.prefix(1).uppercased() + words.dropFirst()
  }

  /// Whether its values are set flush right.
  var isNumber: Bool {
    switch kind {
    case .number, .duration, .money, .fraction, .rate: true
    case .text, .time, .date, .flag: false
    }
  }
}

extension ReportValue {
  /// As people read it, exactly.
  var words: String {
    switch self {
    case .text(let text): text
    case .number(let number): ChartUnit.count.text(number)
    case .time(let moment): Moment(moment).text
    case .duration(let milliseconds):
      (milliseconds < 0 ? "−" : "")
        + Age.text(.milliseconds(Int64(clamping: milliseconds.magnitude)))
    case .money(let milliunits, let currency?): ChartUnit.money(currency: currency).text(milliunits)
    case .money(let milliunits, nil): ChartUnit.money(currency: "").text(milliunits).trimmed
    case .date(let text), .fraction(let text): text
    case .rate(let text): ChartUnit.share.text(Self.hundredthsOfPercent(text))
    case .flag(let isSet): isSet ? "yes" : "no"
    case .none: ""
    }
  }

  /// A count, or an amount in milliunits.
  var integer: Int64? {
    switch self {
    case .number(let number), .money(let number, _): number
    case .text, .time, .duration, .date, .fraction, .rate, .flag, .none: nil
    }
  }

  /// Text as it is; nil for what is none.
  var text: String? {
    switch self {
    case .text(let text), .date(let text): text
    case .number, .time, .duration, .money, .fraction, .rate, .flag, .none: nil
    }
  }

  /// A part of a whole in hundredths of a percent, rounded half away from zero; nil without a whole.
  static func hundredthsOfPercent(of part: Int64, in whole: Int64) -> Int64? {
    guard whole > 0, !part.multipliedReportingOverflow(by: 20_000).overflow else { return nil }
    let doubled = part.magnitude * 20_000 / UInt64(whole)
    return Int64((doubled + 1) / 2) * (part < 0 ? -1 : 1)
  }

  /// Six digits, as the database rounds a share, to the four that are shown.
  private static func hundredthsOfPercent(_ decimal: String) -> Int64 {
    let millionths = Int64(decimal.replacing(".", with: "")) ?? 0
    return Int64((millionths.magnitude + 50) / 100) * (millionths < 0 ? -1 : 1)
  }
}

extension String {
  /// Without the space that stood before a currency which there is not.
  fileprivate var trimmed: String { hasSuffix(" ") ? String(dropLast()) : self }
}
