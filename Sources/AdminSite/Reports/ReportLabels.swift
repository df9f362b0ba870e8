import JSONText
import Reports
import Subscriptions

extension ReportColumn {
  /// The name for people, as in `In grace period`.
  func label(in report: Report) -> String {
    // Those that customers or Apple brought back, unlike those of `reactivations`.
    if name == "resubscribed", report != .reactivations { return "Returned" }
    return Self.labels[name] ?? EnumText.sentence(title)
  }

  // Names that are not words for people by themselves.
  private static let labels = [
    "account_id": "Account", "from_account_id": "Previous account",
    "previous_account_id": "Previous account", "product_id": "Product",
    "original_transaction_id": "Original transaction", "transaction_id": "Transaction",
    "order_id": "Order", "bundle_id": "App", "offer_id": "Offer", "number": "Count",
    "from_day": "Period", "at": "Date", "origin_at": "Started", "charged_at": "Charged",
    "refunded_at": "Refunded", "due_at": "Due", "first_seen_at": "First seen",
    "decided_at": "Decided", "expires_at": "Expires", "oldest_at": "Oldest",
    "first_at": "First", "last_at": "Latest", "last_detail": "Latest detail",
    "oldest_age_ms": "Oldest", "delay_ms": "Delay", "wait_ms": "Time to pay",
    "longest_wait_ms": "Longest time to pay", "average_wait_ms": "Average time to pay",
    "mrr_milliunits": "MRR", "mrr_twelfths": "MRR", "opening": "At start",
    "opening_milliunits": "At start", "exchange_milliunits": "Exchange rates",
    "from_catalogue_milliunits": "At catalogue prices", "price_source": "Price from",
    "days_after": "Days after purchase", "was_over": "Ended when first seen", "age": "Waiting",
    "measure": "Event", "data": "Details", "arpu_milliunits": "ARPU", "ltv_milliunits": "LTV",
    "cohort_started": "Started (cohort)", "cohort_converted": "Converted (cohort)",
    "cohort_expired": "Expired (cohort)", "cohort_recovered": "Recovered (cohort)",
    "cohort_lost": "Lost (cohort)", "cohort_size": "Cohort size",
    "net_by_charge_milliunits": "Net (refunds by purchase date)",
    "net_by_refund_milliunits": "Net", "refunds_of_charges": "Refunded later",
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

  /// The label of an event that has one.
  static func event(_ name: String) -> String? { labels["measure"]?[name] }

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

  /// Makes words of the names in a text, as in `Receipt rejected 21003` and of Apple's `EXPIRED`; a
  /// sentence or URL stays as it is.
  private static func words(_ value: String) -> String {
    if value.contains("://") { return value }
    if value.wholeMatch(of: /[A-Z][A-Z_]+/) != nil { return sentence(value.lowercased()) }
    let words = value.split(separator: " ", omittingEmptySubsequences: false).map { word in
      word.contains("_") ? word.replacing("_", with: " ").lowercased() : String(word)
    }
    return sentence(words.joined(separator: " "))
  }

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
      "notifications_refused": "Invalid posts refused",
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
      "poll_status": "Poll a subscription's status", "billing": "Billing problem",
    ],
    "price_source": ["app_store": "App Store"],
    "reason": ["": "No reason given", "0": "Other reason", "1": "Problem with the app"],
    "days_after": [
      "000": "Same day", "001": "1 day", "002-003": "2–3 days", "004-007": "4–7 days",
      "008-014": "8–14 days", "015-030": "15–30 days", "031-060": "31–60 days",
      "061-090": "61–90 days", "091-": "More than 90 days",
    ],
  ]
}

/// A definition with the names of columns in words, and of choices and events as the page has them.
struct DefinitionText: Sendable {
  /// Each with the identifier that it stands for, if any.
  var pieces: [(text: String, identifier: String?)] = []

  init(_ definition: String) {
    var rest = definition[...]
    while let match = rest.firstMatch(of: /[a-z]+(?:_[a-z]+)+/) {
      pieces.append((String(rest[..<match.range.lowerBound]), nil))
      let name = String(match.output)
      pieces.append((Self.words(name), name))
      rest = rest[match.range.upperBound...]
    }
    pieces.append((String(rest), nil))
  }

  /// The label of a choice or event, in quotation marks, or else the words of the name.
  static func words(_ name: String) -> String {
    (ReportParameter(rawValue: name)?.label ?? EnumText.event(name)).map { "“\($0)”" }
      ?? name.replacing("_", with: " ")
  }
}
