import Foundation
import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

struct GrantController: ActionController {
  let api: API

  func perform(_ sent: SentForm, on account: Account) async throws -> Response {
    let name = try sent.fields.entered(.entitlement)
    let end = try Self.end(sent.fields["expires_at"]?.rawValue, after: now())
    let administrator = try sent.context.actingAdministrator()
    guard sent.isConfirmed else {
      return try await sent.confirm(
        consequences: [
          "“\(account.id)” gets “\(name)” "
            + (end.map { "until \(Moment($0).text) UTC." } ?? "until it is revoked."),
          "Your app server will receive an event.",
        ],
        warnings: try await warnings(about: name, for: account),
        // A double click on the confirmation grants once.
        unseen: [("grant_id", UUID().uuidString.lowercased())])
    }
    _ = try await ledger.grants.grant(
      as: sent.fields["grant_id"].flatMap { UUID(uuidString: $0.rawValue) } ?? UUID(), name,
      to: account.id, until: end, by: administrator, terms: terms, at: now())
    return sent.done(
      "“\(name)” was granted.", then: AdminURL.account(account.id))
  }

  func form(for account: Account) -> ActionForm {
    ActionForm(
      title: "Grant entitlement", action: AdminURL.account(account.id, form: "grant"),
      lead: "Grants add to purchases and last until they expire or are revoked.",
      properties: [Property("Account", account.id, isCode: true)],
      fields: [
        FormField(
          id: "entitlement", name: TextField.entitlement.name, label: "Entitlement", isInput: true,
          maximumLength: TextField.entitlement.maximumLength, isRequired: true,
          hint: "The name used in the catalogue."),
        FormField(
          id: "expires-at", name: "expires_at", label: "Last day", isInput: true, type: "date",
          maximumLength: 255, hint: "In UTC. Leave empty for no end date."),
      ],
      buttonLabel: "Grant", subject: .account(account.id))
  }

  private static func end(_ text: String?, after now: Timestamp) throws -> Timestamp? {
    guard let text else { return nil }
    guard let day = Timestamp(rfc3339: "\(text)T00:00:00Z") else {
      throw Problem.invalid("expires_at", "must be a date such as 2026-12-31")
    }
    let end = day + .days(1)
    guard now < end else { throw Problem.invalid("expires_at", "must not be in the past") }
    return end
  }

  private func warnings(about name: String, for account: Account) async throws -> [String] {
    let held = try await entitlements.entitlements(of: account.id, now: now())
    var warnings = held.filter { ExactText($0.name) == ExactText(name) && $0.isActive }
      .map { "The account already has “\(name)”: \($0.inWords)" }
    let products = catalogue.products
    if !products.contains(where: { $0.entitlements.contains(ExactText(name)) }) {
      warnings.append("No product grants “\(name)”. Check the spelling.")
    }
    return warnings
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

  func form(for stored: StoredGrant) -> ActionForm {
    ActionForm(
      title: "Revoke grant",
      action: AdminURL.revocation(ofGrant: stored.grant.id.uuidString.lowercased()),
      lead: "The account loses this entitlement unless a purchase or another grant provides it.",
      properties: [
        Property("Account", stored.accountID, isCode: true),
        Property("Entitlement", stored.grant.entitlement), Property("Start", stored.grant.startsAt),
        Property("Reason", stored.reason),
      ],
      buttonLabel: "Revoke", isDanger: true, subject: .account(stored.accountID))
  }
}
