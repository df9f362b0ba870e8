import JSONText
import Reports
import Subscriptions

extension ReportColumn {
  /// The name for people, as in `In grace period`.
  func label(in report: Report) -> String {
    // Those that customers or Apple brought back, unlike those of `reactivations`.
    if ["resubscribed", "reactivated_milliunits"].contains(name), report != .reactivations {
      return "Returned"
    }
    if report == .intake, let label = Self.ofIntake[name] { return label }
    // One number has one name in all reports.
    if name == "paid", report == .refunds { return "Charges" }
    if name == "trials", report == .trials { return "Open trials" }
    return Self.labels[name] ?? EnumText.sentence(title)
  }

  private static let ofIntake = [
    "at": "Recorded", "subject": "ID", "delay_ms": "Received late by",
  ]

  // Names that are not words for people by themselves.
  private static let labels = [
    "account_id": "Account", "from_account_id": "Previous account",
    "previous_account_id": "Previous account", "product_id": "Product",
    "original_transaction_id": "Original transaction", "transaction_id": "Transaction",
    "order_id": "Order", "charged_product_id": "Charged product", "bundle_id": "App",
    "offer_id": "Offer", "number": "Count",
    "from_day": "Period", "period": "Month", "at": "Date", "origin_at": "Started",
    "charged_at": "Charged",
    "refunded_at": "Refunded", "due_at": "Due", "first_seen_at": "First seen",
    "decided_at": "Decided", "expires_at": "Expires", "oldest_at": "Oldest",
    "first_at": "First", "last_at": "Latest", "last_detail": "Latest detail",
    "oldest_age_ms": "Oldest", "delay_ms": "Delay", "wait_ms": "Time to pay",
    "longest_wait_ms": "Longest time to pay", "average_wait_ms": "Average time to pay",
    "mrr_milliunits": "MRR", "mrr_twelfths": "MRR", "opening": "At start",
    "opening_milliunits": "At start", "exchange_milliunits": "Exchange rates",
    "from_catalogue_milliunits": "At catalogue prices", "price_source": "Price from",
    "days_after": "Days after purchase", "was_over": "Ended when first seen",
    "has_ended": "Period ended", "age": "Waiting", "not_delivered": "Delivery not reported",
    "measure": "Event", "data": "Details", "arpu_milliunits": "Revenue per subscription",
    "ltv_milliunits": "LTV",
    "cohort_started": "Started (cohort)", "cohort_converted": "Converted (cohort)",
    "cohort_expired": "Expired (cohort)", "cohort_recovered": "Recovered (cohort)",
    "cohort_lost": "Lost (cohort)", "cohort_size": "Cohort size",
    "net_by_charge_milliunits": "Net revenue (refunds by purchase date)",
    "net_by_refund_milliunits": "Net revenue", "revenue_milliunits": "Net revenue",
    "refunds_of_charges": "Refunded later",
    "refunded_of_charges_milliunits": "Amount refunded later",
    "refunded_milliunits": "Refunded amount",
  ]
}

extension ReportValue {
  /// The value for people, with the identifier that it stands for if that differs.
  func label(in column: String, of report: Report) -> (text: String, identifier: String?) {
    switch self {
    case .text(let value) where Self.isEnum(column, of: report):
      let text = EnumText.label(value, in: column)
      return (text, text == value || value.isEmpty ? nil : value)
    case .date(let month) where column == "cohort":
      return (CohortTable.name(month), month)
    case .text(let value) where column == "data": return (EnumText.details(value), value)
    case .money(let milliunits, let currency?):
      return (words, ChartUnit.exact(milliunits, currency: currency))
    case .money(0, nil): return ("", nil)
    // On one line.
    case .time: return (words.replacing(" ", with: "\u{A0}"), nil)
    default: return (words, nil)
    }
  }

  private static func isEnum(_ column: String, of report: Report) -> Bool {
    column == "reason"
      ? report == .refunds
      : [
        "action", "age", "cause", "days_after", "detail", "environment", "kind", "last_detail",
        "measure", "offer_type", "ownership_type", "period_type", "price_source", "rule", "state",
      ].contains(column)
  }
}

/// The names of enumerated values for people.
enum EnumText {
  /// The label of a value in a column; a value that has none is written as words.
  static func label(_ value: String, in column: String) -> String {
    // The digits before the colon sort the classes.
    let value = column == "age" ? String(value.split(separator: ": ").last ?? "") : value
    return labels[column]?[value] ?? words(value)
  }

  /// The labels of events by their names.
  static var events: [String: String] { labels["measure"] ?? [:] }

  /// The members of a JSON object, as in `Entitlement: pro; expires at: 23 Dec 2026, 00:00`.
  static func details(_ json: String) -> String {
    guard case .object(let members)? = try? JSONValue(parsing: json.utf8) else { return json }
    let words = members.filter { $0.value != .null }.map { member in
      let value = member.value.string ?? String(decoding: member.value.bytes, as: UTF8.self)
      return "\(member.key.rawValue.replacing("_", with: " ")): \(value.withTimesForPeople)"
    }.joined(separator: "; ")
    return words.prefix(1).uppercased() + words.dropFirst()
  }

  /// As in `In grace period`.
  static func sentence(_ name: String) -> String {
    let words = name.replacing("_", with: " ")
    return words.prefix(1).uppercased() + words.dropFirst()
  }

  /// Makes words of the names in a text, as in `Receipt rejected 21003` and `Consumption request`; a
  /// sentence and a URL stay as they are.
  private static func words(_ value: String) -> String {
    if value.contains("://") { return value }
    if value.wholeMatch(of: /[A-Z][A-Z_]+/) != nil {
      return appleTypes[value] ?? sentence(value.lowercased())
    }
    let words = value.split(separator: " ", omittingEmptySubsequences: false).map { word in
      word.contains("_") ? word.replacing("_", with: " ").lowercased() : String(word)
    }
    return sentence(words.joined(separator: " "))
  }

  /// Types of Apple's notifications that are not words for people by themselves.
  private static let appleTypes = [
    "DID_CHANGE_RENEWAL_PREF": "Renewal product changed",
    "DID_CHANGE_RENEWAL_STATUS": "Auto-renew switched", "DID_FAIL_TO_RENEW": "Failed to renew",
    "DID_RECOVER": "Recovered", "DID_RENEW": "Renewed", "REVOKE": "Family Sharing ended",
    "AUTO_RENEW_DISABLED": "Auto-renew turned off", "AUTO_RENEW_ENABLED": "Auto-renew turned on",
    "ONE_TIME_CHARGE": "One-time purchase",
  ]

  private static let labels: [String: [String: String]] = [
    "state": [
      "active_renewing": "Active, renews", "active_cancelled": "Active, cancelled",
      "trial_renewing": "Trial, renews", "trial_cancelled": "Trial, cancelled",
      "in_grace_period": "Grace period", "in_billing_retry": "Billing retry",
      "revoked": "Refunded",
    ],
    "rule": [
      "administrator": "Assigned by an administrator",
      "actively_auto_renewing": "Had auto-renew on", "submitter": "Submitted first",
      "app_account_token": "App account token",
    ],
    "measure": [
      "moved": "Renewals moved", "shared": "Shared with a second account",
      "submissions_open": "Receipts in progress", "submissions_rejected": "Rejected receipts",
      "apple_failures": "Failed requests to Apple",
      "notifications_open": "Notifications in progress",
      "notifications_refused": "Forged or malformed notifications refused",
      "notifications_rejected": "Rejected notifications",
      "notifications_listed": "Notifications in Apple's history",
      "notifications_missed": "Missed notifications",
      "notifications_unbelievable": "Notifications with invalid signatures",
      "deliveries_waiting": "Webhook deliveries waiting",
      "deliveries_parked": "Failed webhook deliveries", "jobs_parked": "Failed jobs",
      "jobs_overdue": "Overdue jobs", "write_backs_open": "Pending write-backs to Apple",
      "write_backs_accepted": "Write-backs accepted by Apple",
      "write_backs_refused": "Write-backs refused by Apple",
      "write_backs_skipped": "Write-backs not sent",
    ],
    // Of a refund, Apple's reason.
    "cause": [
      "0": "Other reason", "1": "Problem with the app",
      "poll_status": "Poll a subscription's status", "billing": "Involuntary",
    ],
    "price_source": ["app_store": "App Store"],
    "date_of": ["charge": "Date of the purchase", "refund": "Date of the refund"],
    "reason": ["": "No reason given", "0": "Other reason", "1": "Problem with the app"],
    "days_after": [
      "000": "Same day", "001": "1 day", "002-003": "2–3 days", "004-007": "4–7 days",
      "008-014": "8–14 days", "015-030": "15–30 days", "031-060": "31–60 days",
      "061-090": "61–90 days", "091-": "More than 90 days",
    ],
  ]
}

/// A definition as a list of terms and sentences in the page's words: labels instead of the names of
/// columns, choices and events, and nothing about the formats of files.
struct DefinitionText: Sendable {
  /// With what is defined, if it is one thing.
  var lines: [(term: String?, pieces: [TextPiece])] = []

  init(_ definition: String, of report: Report) {
    // What files have for an empty cell, and how they round.
    let text = definition.replacing(/\ \([^()]*\bnull\b[^()]*\)/, with: "")
      .replacing(
        /; null if[^.;]*|, rounded to 6 digits|, likewise|\ Amounts are milliunits[^.]*\./,
        with: ""
      )
      .replacing("; final only when none is open", with: "; those still open are left out here")
      .replacing(/\bnull\b/, with: "empty").replacing(/\bby splits/, with: "“Split by” splits")
      // Of cohorts, whose columns are named after the months.
      .replacing(/\bperiod (?=[0-9])/, with: "month ")
    let labels = Self.labels(of: report)
    // As in `expired: …`, `new and changed: …`, `paid (once): …` and `active = …`.
    let start = /([a-z_]+(?:(?:, | and )[a-z_]+)*)(?: \([^()]*\))?(?:: | (?== ))/
    for sentence in text.split(separator: #/\.(?: |$)|; (?=[a-z_, ]+(?: \([^()]*\))?(?:: | = ))/#) {
      var (term, rest) = (String?.none, sentence)
      if let match = sentence.prefixMatch(of: start) {
        let found = match.1.split(separator: #/, | and /#).map { labels[String($0)] }
        if !found.contains(nil) {
          rest = sentence[match.range.upperBound...]
          term = found.compactMap(\.self).joined(separator: ", ") + (rest.first == "=" ? "" : ":")
        }
      }
      lines.append((term, Self.pieces("\(rest).", labels)))
    }
  }

  /// By the names of columns, also without the unit, and of states and events.
  private static func labels(of report: Report) -> [String: String] {
    var labels = EnumText.events
    let values = report.columns.contains { $0.name == "state" } ? "state" : "measure"
    for name in report.itemizedColumns { labels[name] = EnumText.label(name, in: values) }
    for column in report.itemColumns + report.columns {
      labels[column.title.replacing(" ", with: "_")] = column.label(in: report)
      labels[column.name] = column.label(in: report)
    }
    return labels
  }

  /// Names of columns that are not words of the pages, and are one word.
  private static let rawNames: Set<String> = ["opening", "resubscribed"]

  private static func pieces(_ text: String, _ labels: [String: String]) -> [TextPiece] {
    var (pieces, rest): ([TextPiece], Substring) = ([], text[...])
    // In a formula, every word can be a name.
    let isFormula = text.hasPrefix("= ")
    while let match = rest.firstMatch(of: /\b([a-z]+(?:_[a-z]+)*)\b(?: => '([a-z_]+)')?/) {
      let name = String(match.1)
      let report = Report.all.first { $0.relation == name }
      let label =
        switch name {
        case "as_of": "the moment of the report"
        case "known_at": "the moment in “As known on”"
        case "from_date", "to_date": "“\(name == "to_date" ? "To" : "From")”"
        case _ where match.2 != nil:
          "“\(match.2.map { EnumText.label(String($0), in: name) } ?? name)”"
        case _ where isFormula || name.contains("_") || Self.rawNames.contains(name):
          (labels[name] ?? ReportParameter(rawValue: name)?.label).map { "“\($0)”" }
            ?? name.replacing("_", with: " ")
        default: name
        }
      pieces.append((String(rest[..<match.range.lowerBound]), nil))
      pieces.append((report?.label ?? label, report.map { AdminURL.report($0.name) }))
      rest = rest[match.range.upperBound...]
    }
    return pieces + [(String(rest), nil)]
  }
}
