import Foundation
import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// The forms that grant an entitlement and revoke a grant.
struct GrantPageController: Sendable {
  let pages: PageRenderer
  let ledger: Ledger
  let entitlements: EntitlementReader

  private static let entitlement = TextField(name: "entitlement", maximumLength: 255)

  // MARK: Grant

  @Sendable
  func ask(_ request: Request, context: APIContext) async throws -> Response {
    try await form(for: try await account(request, context)).ask(pages, context)
  }

  @Sendable
  func grant(_ request: Request, context: APIContext) async throws -> Response {
    let account = try await account(request, context)
    let form = form(for: account)
    do {
      let name = try context.admin.form.text(Self.entitlement)
      let end = try Self.end(context.admin.form["expires_at"]?.rawValue, after: pages.now())
      let administrator = try context.actingAdministrator()
      guard ActionForm.isConfirmed(context) else {
        return try await form.confirm(
          pages, context, consequences: Self.consequences(of: name, until: end, for: account),
          warnings: try await warnings(about: name, for: account),
          // A double click on the confirmation grants once.
          unseen: [HiddenField(name: "grant_id", value: UUID().uuidString.lowercased())])
      }
      _ = try await ledger.grants.grant(
        as: context.admin.form["grant_id"].flatMap { UUID(uuidString: $0.rawValue) } ?? UUID(),
        name, to: account.id, until: end, by: administrator, terms: entitlements.terms,
        at: pages.now())
      return PageRenderer.done(
        Flash(message: "“\(name)” was granted.", tone: Tone.good),
        then: AdminURL.account(account.id), request, context)
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await form.ask(pages, context, fault: problem)
    }
  }

  private func account(_ request: Request, _ context: APIContext) async throws -> Account {
    try await AdminPath.account(request, context, in: ledger)
  }

  private func form(for account: Account) -> ActionForm {
    ActionForm(
      title: "Grant entitlement", action: AdminURL.account(account.id, form: "grant"),
      lead: "Grants add to purchases and last until they expire or are revoked.",
      properties: [Property(label: "Account", value: account.id, isCode: true)],
      fields: [
        ActionField(
          id: "entitlement", name: "entitlement", label: "Entitlement", isInput: true,
          hint: "The name used in the catalogue."),
        ActionField(
          id: "expires-at", name: "expires_at", label: "Last day", isInput: true, type: "date",
          isRequired: false, hint: "In UTC. Leave empty for no end date."),
        ActionForm.reason,
      ],
      buttonLabel: "Grant",
      subject: PageLink(label: account.id, href: AdminURL.account(account.id)))
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

  private static func consequences(of name: String, until end: Timestamp?, for account: Account)
    -> [String]
  {
    [
      "“\(account.id)” gets “\(name)” "
        + (end.map { "until \(Moment($0).text) UTC." } ?? "until it is revoked."),
      "Your app server will receive an event.",
    ]
  }

  private func warnings(about name: String, for account: Account) async throws -> [String] {
    let held = try await entitlements.entitlements(of: account.id, now: pages.now())
    var warnings = held.filter { ExactText($0.name) == ExactText(name) && $0.isActive }
      .map { "The account already has “\(name)”: \($0.inWords)" }
    if !entitlements.terms.catalogue.entitlementNames.contains(ExactText(name)) {
      warnings.append("No product grants “\(name)”. Check the spelling.")
    }
    return warnings
  }

  // MARK: Revoke

  @Sendable
  func askRevocation(_ request: Request, context: APIContext) async throws -> Response {
    try await revocationForm(try await stored(context)).ask(pages, context)
  }

  @Sendable
  func revoke(_ request: Request, context: APIContext) async throws -> Response {
    let stored = try await stored(context)
    do {
      _ = try await ledger.grants.revokeGrant(
        stored.grant.id, by: try context.actingAdministrator(), terms: entitlements.terms,
        at: pages.now())
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await revocationForm(stored).ask(pages, context, fault: problem)
    }
    return PageRenderer.done(
      Flash(message: "The grant of “\(stored.grant.entitlement)” was revoked.", tone: Tone.good),
      then: AdminURL.account(stored.accountID), request, context)
  }

  private func stored(_ context: APIContext) async throws -> StoredGrant {
    let id = try context.uuidParameter("grant_id")
    guard let stored = try await ledger.grants.storedGrant(id) else {
      throw LedgerError.unknownGrant(id)
    }
    return stored
  }

  private func revocationForm(_ stored: StoredGrant) -> ActionForm {
    let id = stored.grant.id.uuidString.lowercased()
    return ActionForm(
      title: "Revoke grant", action: AdminURL.revocation(ofGrant: id),
      lead: "The account loses this entitlement unless a purchase or another grant provides it.",
      properties: [
        Property(label: "Account", value: stored.accountID, isCode: true),
        Property(label: "Entitlement", value: stored.grant.entitlement),
        Property(label: "Start", value: Moment(stored.grant.startsAt).text),
        Property(label: "Reason", value: stored.reason),
      ],
      fields: [ActionForm.reason], buttonLabel: "Revoke", isDanger: true,
      subject: PageLink(
        label: stored.accountID, href: AdminURL.account(stored.accountID)))
  }
}

extension Catalogue {
  fileprivate var entitlementNames: Set<ExactText> {
    Set(products.lazy.flatMap(\.entitlements))
  }
}
