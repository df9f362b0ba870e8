import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

struct MergePageController: Sendable {
  let pages: PageRenderer
  let ledger: Ledger
  let entitlements: EntitlementReader

  @Sendable
  func ask(_ request: Request, context: APIContext) async throws -> Response {
    let account = try await AdminPath.account(request, context, in: ledger)
    return try await form(for: account).ask(pages, context)
  }

  @Sendable
  func merge(_ request: Request, context: APIContext) async throws -> Response {
    let account = try await AdminPath.account(request, context, in: ledger)
    let form = form(for: account)
    do {
      let into = try context.admin.form.text(.into)
      let administrator = try context.actingAdministrator()
      guard ActionForm.isConfirmed(context) else {
        let preview = try await ledger.accounts.previewMerge(
          of: account.id, into: into, terms: entitlements.terms, at: pages.now())
        return try await form.confirm(
          pages, context,
          consequences: Self.consequences(of: preview, from: account.id, into: into),
          warnings: [
            "This cannot be undone. Merged charges can only be transferred one at a time."
          ])
      }
      let merger = try await ledger.accounts.merge(
        account.id, into: into, by: administrator, terms: entitlements.terms, at: pages.now())
      let rest =
        merger.completedAt == nil
        ? " A worker is moving its remaining charges." : ""
      return PageRenderer.done(
        Flash(message: "“\(account.id)” was merged into this account.\(rest)", tone: Tone.good),
        then: AdminURL.account(into), request, context)
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await form.ask(pages, context, fault: problem)
    } catch let error as LedgerError {
      let fault = Problem.invalid(TextField.into.name, "can't be used: \(error.description)")
      return try await form.ask(pages, context, fault: fault)
    }
  }

  private func form(for account: Account) -> ActionForm {
    ActionForm(
      title: "Merge account", action: AdminURL.account(account.id, form: "merge"),
      lead: "Merges a guest account into a member account. Charges, orders and grants move to the "
        + "member, including future ones.",
      properties: [
        Property(label: "Account", value: account.id, isCode: true),
        Property(label: "First seen", value: Moment(account.createdAt).text),
      ],
      fields: [
        ActionField(
          id: "into", name: TextField.into.name, label: "Target account", isInput: true,
          hint: "The full account ID, exactly as your app uses it. This account remains."),
        ActionForm.reason,
      ],
      buttonLabel: "Merge", isDanger: true,
      subject: PageLink(label: account.id, href: AdminURL.account(account.id)))
  }

  private static func consequences(of preview: MergePreview, from id: String, into other: String)
    -> [String]
  {
    let held = Set(preview.held.map(\.name))
    return [
      "\(Count.text(preview.charges, "charge")), \(Count.text(preview.orders, "order")) and "
        + "\(Count.text(preview.grants, "grant")) move from “\(id)” to “\(other)”."
    ]
      + preview.lost.map { entitlement in
        let until = entitlement.accessEndsAt.map { " (until \(Moment($0).text))" } ?? ""
        let gain = held.contains(entitlement.name) ? ", which already has it" : ""
        return "“\(entitlement.name)”\(until) moves from “\(id)” to “\(other)”\(gain)."
      }
      + ["Later submissions and orders for “\(id)” count for “\(other)”."]
  }
}

struct ErasurePageController: Sendable {
  let pages: PageRenderer
  let ledger: Ledger

  @Sendable
  func ask(_ request: Request, context: APIContext) async throws -> Response {
    let account = try await AdminPath.account(request, context, in: ledger)
    return try await form(for: account).ask(pages, context)
  }

  @Sendable
  func erase(_ request: Request, context: APIContext) async throws -> Response {
    let account = try await AdminPath.account(request, context, in: ledger)
    let form = form(for: account)
    do {
      guard context.admin.form["typed_account_id"] == ExactText(account.id) else {
        throw Problem.invalid("typed_account_id", "must be exactly the account ID")
      }
      let administrator = try context.actingAdministrator()
      guard ActionForm.isConfirmed(context) else {
        return try await form.confirm(
          pages, context, consequences: Self.consequences(for: account),
          warnings: ["This cannot be undone."])
      }
      let erasure = try await ledger.accounts.erase(account.id, by: administrator, at: pages.now())
      return try await done(erasure, context)
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await form.ask(pages, context, fault: problem)
    }
  }

  private static func consequences(for account: Account) -> [String] {
    [
      "A pseudonym replaces “\(account.id)” everywhere.",
      "The account's submissions and Apple's responses to them are deleted.",
      "Its charges are kept under the pseudonym; later renewals are unclaimed until an app submits "
        + "them.",
      "Your app server will receive one last event, without the ID.",
      "If the ID is used again, it is a new account.",
    ]
  }

  private func form(for account: Account) -> ActionForm {
    ActionForm(
      title: "Erase customer data", action: AdminURL.account(account.id, form: "erase"),
      lead: "Deletes personal data; keeps financial records under a pseudonym.",
      properties: [
        Property(label: "Account", value: account.id, isCode: true),
        Property(label: "First seen", value: Moment(account.createdAt).text),
      ],
      fields: [
        ActionField(
          id: "typed-account-id", name: "typed_account_id",
          label: "Type the account ID to confirm", isInput: true),
        ActionForm.reason,
      ],
      buttonLabel: "Erase", isDanger: true,
      subject: PageLink(label: account.id, href: AdminURL.account(account.id)))
  }

  /// The result, shown without a redirect: the account's page no longer exists.
  private func done(_ erasure: Erasure, _ context: APIContext) async throws -> Response {
    let removed = erasure.removed
    func number(_ label: String, _ value: Int) -> Property {
      Property(label: label, value: ChartUnit.count.text(Int64(value)))
    }
    return pages.response(
      DonePage(
        page: try await pages.frame("Customer data erased", context),
        message: "A pseudonym has replaced the account ID.",
        properties: [
          Property(
            label: "Pseudonym", value: erasure.pseudonym,
            href: AdminURL.account(erasure.pseudonym), isCode: true),
          number("Holdings kept", removed.holdings),
          number("Submissions cleared", removed.submissions),
          number("Payloads deleted", removed.payloads),
          number("Apple responses deleted", removed.exchanges),
        ],
        links: [PageLink(label: "Overview", href: AdminURL.overview)]),
      .done)
  }
}

struct ExportPageController: Sendable {
  let pages: PageRenderer
  let exports: ExportController

  @Sendable
  func ask(_ request: Request, context: APIContext) async throws -> Response {
    try await form(for: try await account(request, context)).ask(pages, context)
  }

  @Sendable
  func export(_ request: Request, context: APIContext) async throws -> Response {
    let account = try await account(request, context)
    do {
      var response = try await exports.document(
        of: account, by: try context.actingAdministrator())
      response.headers[.contentDisposition] = "attachment; filename=\"account.json\""
      return response
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await form(for: account).ask(pages, context, fault: problem)
    }
  }

  private func account(_ request: Request, _ context: APIContext) async throws -> Account {
    try await AdminPath.account(request, context, in: exports.ledger)
  }

  private func form(for account: Account) -> ActionForm {
    ActionForm(
      title: "Export account data", action: AdminURL.account(account.id, form: "export"),
      lead: "Downloads everything stored about this account as a JSON file, including submissions "
        + "and Apple's responses.",
      properties: [Property(label: "Account", value: account.id, isCode: true)],
      fields: [ActionForm.reason], buttonLabel: "Export", isFile: true,
      subject: PageLink(label: account.id, href: AdminURL.account(account.id)))
  }
}
