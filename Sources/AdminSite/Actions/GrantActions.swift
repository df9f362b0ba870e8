import Foundation
import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// Giving an entitlement, and taking it back, as pages.
struct GrantPageController: Sendable {
  let pages: PageMaker
  let ledger: Ledger
  let entitlements: EntitlementReader

  private static let entitlement = TextField(name: "entitlement", maximumLength: 255)

  // MARK: Giving

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
          // What is confirmed twice, by a double click, is granted once.
          unseen: [HiddenField(name: "grant_id", value: UUID().uuidString.lowercased())])
      }
      _ = try await ledger.grant(
        as: context.admin.form["grant_id"].flatMap { UUID(uuidString: $0.rawValue) } ?? UUID(),
        name,
        to: account.id, until: end, by: administrator, terms: entitlements.terms,
        at: pages.now())
      return PageMaker.done(
        Flash(message: "The account may use “\(name)”.", tone: Tone.good),
        then: PageAddress.account(account.id), request, context)
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await form.ask(pages, context, fault: problem)
    }
  }

  private func account(_ request: Request, _ context: APIContext) async throws -> Account {
    try await AdminPath.account(request, context, in: ledger)
  }

  private func form(for account: Account) -> ActionForm {
    ActionForm(
      title: "Grant an entitlement", action: PageAddress.account(account.id, form: "grant"),
      lead: "What is granted counts beside what was bought, until it ends or is taken back.",
      properties: [Property(label: "Account", value: account.id, isCode: true)],
      fields: [
        ActionField(
          id: "entitlement", name: "entitlement", label: "Entitlement", isInput: true,
          hint: "As the catalogue names it."),
        ActionField(
          id: "expires-at", name: "expires_at", label: "Until", isInput: true, type: "date",
          isRequired: false, hint: "The end of that day in UTC. Empty: until it is taken back."),
        ActionForm.reason,
      ],
      buttonLabel: "Grant",
      subject: PageLink(label: account.id, href: PageAddress.account(account.id)))
  }

  /// The end of a day.
  private static func end(_ text: String?, after now: Timestamp) throws -> Timestamp? {
    guard let text else { return nil }
    guard let day = Timestamp(rfc3339: "\(text)T00:00:00Z") else {
      throw Problem.invalid("expires_at", "must be a day, as in 2026-12-31")
    }
    let end = day + .days(1)
    guard now < end else { throw Problem.invalid("expires_at", "must not be over") }
    return end
  }

  private static func consequences(of name: String, until end: Timestamp?, for account: Account)
    -> [String]
  {
    [
      "“\(account.id)” may use “\(name)” from now on, "
        + (end.map { "until \(Moment($0).text) UTC." } ?? "until somebody takes it back."),
      "Its app is told by an event.",
    ]
  }

  private func warnings(about name: String, for account: Account) async throws -> [String] {
    let held = try await entitlements.entitlements(of: account.id, now: pages.now())
    var warnings = held.filter { ExactText($0.name) == ExactText(name) && $0.isActive }
      .map { "It may use “\(name)” already: \($0.inWords)" }
    if !entitlements.terms.catalogue.entitlementNames.contains(ExactText(name)) {
      warnings.append("No product of the catalogue grants “\(name)”: is it written as meant?")
    }
    return warnings
  }

  // MARK: Taking back

  @Sendable
  func askRevocation(_ request: Request, context: APIContext) async throws -> Response {
    try await revocationForm(try await stored(context)).ask(pages, context)
  }

  @Sendable
  func revoke(_ request: Request, context: APIContext) async throws -> Response {
    let stored = try await stored(context)
    do {
      _ = try await ledger.revokeGrant(
        stored.grant.id, by: try context.actingAdministrator(), terms: entitlements.terms,
        at: pages.now())
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await revocationForm(stored).ask(pages, context, fault: problem)
    }
    return PageMaker.done(
      Flash(message: "The grant of “\(stored.grant.entitlement)” was taken back.", tone: Tone.good),
      then: PageAddress.account(stored.accountID), request, context)
  }

  private func stored(_ context: APIContext) async throws -> StoredGrant {
    let id = try context.uuidParameter("grant_id")
    guard let stored = try await ledger.storedGrant(id) else { throw LedgerError.unknownGrant(id) }
    return stored
  }

  private func revocationForm(_ stored: StoredGrant) -> ActionForm {
    let id = stored.grant.id.uuidString.lowercased()
    return ActionForm(
      title: "Take a grant back", action: PageAddress.revocation(ofGrant: id),
      lead: "The account may not use it from now on, unless it bought it or was granted it twice.",
      properties: [
        Property(label: "Account", value: stored.accountID, isCode: true),
        Property(label: "Entitlement", value: stored.grant.entitlement),
        Property(label: "Since", value: Moment(stored.grant.startsAt).text),
        Property(label: "Reason", value: stored.reason),
      ],
      fields: [ActionForm.reason], buttonLabel: "Take back", isDanger: true,
      subject: PageLink(
        label: stored.accountID, href: PageAddress.account(stored.accountID)))
  }
}

extension Catalogue {
  /// Whatever any product grants.
  fileprivate var entitlementNames: Set<ExactText> {
    Set(products.lazy.flatMap(\.entitlements))
  }
}
