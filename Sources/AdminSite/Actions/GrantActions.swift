import Foundation
import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

struct GrantController: ActionController {
  let api: API

  private static let otherName = TextField(
    name: "other_entitlement", maximumLength: TextField.entitlement.maximumLength)
  private static let durations: [(value: String, label: String)] = [
    ("P7D", "7 days"), ("P1M", "1 month"), ("P1Y", "1 year"), ("day", "Until the last day below"),
    ("", "No end date"),
  ]

  func perform(_ sent: SentForm, on account: Account) async throws -> Response {
    let name = try name(in: sent.fields)
    let lastDay = try lastDay(in: sent.fields)
    let administrator = try sent.context.actingAdministrator()
    // Of the form, so that a double click grants once.
    let id = sent.fields["grant_id"].flatMap { UUID(uuidString: $0.rawValue) } ?? UUID()
    let end = lastDay.map { ($0 + .days(1)).lastDayName } ?? "until it is revoked"
    let warnings = try await warnings(about: name, for: account)
    let isUsual = warnings.isEmpty && sent.fields["unknown"] == nil
    if !isUsual, !sent.isConfirmed, try await ledger.grants.storedGrant(id) == nil {
      return try await sent.confirm(
        consequences: [
          "“\(account.id)” gets “\(name)” \(end).", "Your app server will receive an event.",
        ],
        warnings: warnings,
        unseen: [
          ("grant_id", id.text),
          // The day that was confirmed, also if midnight passes.
          ("confirmed_day", lastDay.map { String($0.description.prefix(10)) } ?? ""),
        ])
    }
    _ = try await ledger.grants.grant(
      as: id, name, to: account.id, until: lastDay.map { $0 + .days(1) }, by: administrator,
      terms: terms, at: now())
    return sent.done("“\(name)” was granted \(end).", then: AdminURL.account(account.id))
  }

  func form(for account: Account) -> ActionForm {
    let names = Set(catalogue.products.flatMap(\.entitlements)).sorted().map(\.rawValue)
    return ActionForm(
      title: "Grant entitlement", action: AdminURL.account(account.id, form: "grant"),
      lead: "Grants add to purchases and last until they expire or are revoked.",
      properties: [Property("Account", account.id, isCode: true)],
      fields: [
        FormField(
          id: "entitlement", name: TextField.entitlement.name, label: "Entitlement", isSelect: true,
          // The only one, but no guess among several.
          value: names.count == 1 ? names[0] : "",
          options: ([""] + names).map { ($0, $0.isEmpty ? "Choose…" : $0, false) }),
        FormField(
          id: "duration", name: "duration", label: "Duration", isSelect: true, value: "P1M",
          options: Self.durations.map { ($0.value, $0.label, $0.value == "P1M") }),
        FormField(
          id: "expires-at", name: "expires_at", label: "Last day", isInput: true, type: "date",
          maximumLength: 255, hint: "In UTC."),
      ],
      rareFields: [
        FormField(
          id: "other-entitlement", name: Self.otherName.name, label: "Name", isInput: true,
          maximumLength: Self.otherName.maximumLength,
          hint: "Granted instead of the entitlement chosen above."),
        FormField(
          id: "unknown", name: "unknown", label: "Grant it although no product does",
          isCheckbox: true),
      ], rareTitle: "Another entitlement",
      buttonLabel: "Grant", subject: .account(account.id), hidden: [("grant_id", UUID().text)])
  }

  /// An entitlement of the catalogue, or another one if that is confirmed.
  private func name(in fields: EncodedFields) throws -> String {
    let isOther = fields[Self.otherName.name].map { !$0.rawValue.isEmpty } ?? false
    let field = isOther ? Self.otherName : TextField.entitlement
    let name = try fields.entered(field)
    let isKnown = catalogue.products.contains { $0.entitlements.contains(ExactText(name)) }
    guard isKnown || fields["unknown"] != nil else {
      throw Problem(
        .invalidRequest,
        "No product grants “\(name)”: check the spelling, or tick the box below.",
        field: field.name)
    }
    return name
  }

  /// The beginning of the last day in UTC; nil: no end.
  private func lastDay(in fields: EncodedFields) throws -> Timestamp? {
    let today = Timestamp(now().dayAndTime.date, millisecondOfDay: 0)
    func day(_ name: String) throws -> Timestamp {
      guard let day = Timestamp(rfc3339: "\(fields[name]?.rawValue ?? "")T00:00:00Z") else {
        throw Problem.invalid(name, "must be a date such as 2026-12-31")
      }
      guard today <= day else { throw Problem.invalid(name, "must not be in the past") }
      return day
    }
    if let confirmed = fields["confirmed_day"]?.rawValue, !confirmed.isEmpty {
      return try day("confirmed_day")
    }
    let duration = fields["duration"]?.rawValue ?? ""
    if duration == "day" { return try day("expires_at") }
    guard Self.durations.contains(where: { $0.value == duration }) else {
      throw Problem.invalid("duration", "must be one of the list")
    }
    return CalendarPeriod(iso8601: duration)?.end(from: today)
  }

  private func warnings(about name: String, for account: Account) async throws -> [String] {
    try await entitlements.entitlements(of: account.id, now: now())
      .filter { ExactText($0.name) == ExactText(name) && $0.isActive }
      .map { "The account already has “\(name)”: \($0.inWords)" }
  }
}

struct RevocationController: ActionController {
  let api: API

  func perform(_ sent: SentForm, on stored: StoredGrant) async throws -> Response {
    _ = try await ledger.grants.revokeGrant(
      stored.grant.id, by: try sent.context.actingAdministrator(), terms: terms,
      at: now())
    return sent.done(
      "The grant of “\(stored.grant.entitlement)” was revoked.",
      then: AdminURL.account(stored.accountID))
  }

  func subject(of request: Request, _ context: APIContext) async throws -> StoredGrant {
    let id = try context.uuidParameter("grant_id")
    guard let stored = try await ledger.grants.storedGrant(id) else {
      throw LedgerError.unknownGrant(id)
    }
    return stored
  }

  func form(for stored: StoredGrant) async throws -> ActionForm {
    let (id, name) = (stored.accountID, stored.grant.entitlement)
    let held = try await ledger.holdings.allHoldings(of: id, knownAt: nil)
    let rest = terms.entitlements(
      of: id, holding: held.holdings, granted: held.grants.filter { $0.id != stored.grant.id },
      at: now()
    ).first { $0.isActive && ExactText($0.name) == ExactText(name) }
    let grant = stored.grant
    let end = grant.accessEnd.flatMap { $0 <= now() ? $0 : nil }
    return ActionForm(
      title: "Revoke grant",
      action: AdminURL.revocation(ofGrant: stored.grant.id.text),
      lead: end.map { end in
        "This grant \(grant.revokedAt == end ? "was revoked" : "ended") on \(end.dayName)."
      } ?? "Ends this grant. Purchases and other grants stay.",
      properties: [
        Property("Account", stored.accountID, isCode: true),
        Property("Entitlement", stored.grant.entitlement), Property("Start", stored.grant.startsAt),
        Property("Reason for the grant", stored.reason),
      ],
      buttonLabel: "Revoke", isDanger: true, isOver: end != nil, subject: .account(id),
      consequences: [
        rest.map { "“\(id)” keeps “\(name)”\($0.until): \($0.inWords)" }
          ?? "“\(id)” loses “\(name)” at once."
      ])
  }
}
