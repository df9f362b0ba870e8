import HTTPAPI
import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

/// Merging an account into another, as a page.
struct MergePageController: Sendable {
  let pages: PageMaker
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
        let preview = try await ledger.previewMerge(
          of: account.id, into: into, terms: entitlements.terms, at: pages.now())
        return try await form.confirm(
          pages, context,
          consequences: Self.consequences(of: preview, from: account.id, into: into),
          warnings: ["Nobody can undo this: what was merged can only be transferred one by one."])
      }
      let merger = try await ledger.merge(
        account.id, into: into, by: administrator, terms: entitlements.terms, at: pages.now())
      let rest =
        merger.completedAt == nil
        ? " It has many charges: a worker is placing them, some at a time." : ""
      return PageMaker.done(
        Flash(message: "“\(account.id)” is merged into this account.\(rest)", tone: Tone.good),
        then: PageAddress.account(into), request, context)
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await form.ask(pages, context, fault: problem)
    } catch let error as LedgerError {
      let fault = Problem.invalid(TextField.into.name, "does not do: \(error.description)")
      return try await form.ask(pages, context, fault: fault)
    }
  }

  private func form(for account: Account) -> ActionForm {
    ActionForm(
      title: "Merge an account", action: PageAddress.account(account.id, form: "merge"),
      lead: "Makes a guest a part of the member that he has become: charges, orders and grants go "
        + "over, and so does what comes later for the guest.",
      properties: [
        Property(label: "Account", value: account.id, isCode: true),
        Property(label: "First seen", value: Moment(account.createdAt).text),
      ],
      fields: [
        ActionField(
          id: "into", name: TextField.into.name, label: "Into the account", isInput: true,
          hint: "The one that remains. Whole, as the app names it."),
        ActionForm.reason,
      ],
      buttonLabel: "Merge", isDanger: true,
      subject: PageLink(label: account.id, href: PageAddress.account(account.id)))
  }

  /// How much goes over, and who loses and gets what.
  private static func consequences(of preview: MergePreview, from id: String, into other: String)
    -> [String]
  {
    func number(_ count: Int, _ noun: String) -> String {
      "\(ChartUnit.count.text(Int64(count))) \(noun)\(count == 1 ? "" : "s")"
    }
    let held = Set(preview.held.map(\.name))
    return [
      "\(number(preview.charges, "charge")), \(number(preview.orders, "order")) and "
        + "\(number(preview.grants, "grant")) of “\(id)” go to “\(other)”."
    ]
      + preview.lost.map { entitlement in
        let until = entitlement.accessEndsAt.map { " until \(Moment($0).text)" } ?? ""
        let gain = held.contains(entitlement.name) ? ", which has it already" : ""
        return "“\(entitlement.name)”, which “\(id)” may use\(until), goes to “\(other)”\(gain)."
      }
      + ["What is submitted or ordered for “\(id)” from then on is for “\(other)”."]
  }
}

/// Erasing a person, as a page.
struct ErasurePageController: Sendable {
  let pages: PageMaker
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
        throw Problem.invalid("typed_account_id", "must be the account's id, exactly")
      }
      let administrator = try context.actingAdministrator()
      guard ActionForm.isConfirmed(context) else {
        return try await form.confirm(
          pages, context, consequences: Self.consequences(for: account),
          warnings: ["Nobody can undo this."])
      }
      let erasure = try await ledger.erase(account.id, by: administrator, at: pages.now())
      return try await done(erasure, context)
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await form.ask(pages, context, fault: problem)
    }
  }

  private static func consequences(for account: Account) -> [String] {
    [
      "A pseudonym takes the place of “\(account.id)” wherever it stands.",
      "What its app submitted, and what Apple answered to that, is deleted.",
      "Its charges stay in the books under the pseudonym; later renewals are nobody's until "
        + "somebody submits them.",
      "Its app is told by an event, without the id, and of nothing more from then on.",
      "Whoever uses the id next is a new account.",
    ]
  }

  private func form(for account: Account) -> ActionForm {
    ActionForm(
      title: "Erase a person", action: PageAddress.account(account.id, form: "erase"),
      lead: "Removes what tells who it was, and keeps the books.",
      properties: [
        Property(label: "Account", value: account.id, isCode: true),
        Property(label: "First seen", value: Moment(account.createdAt).text),
      ],
      fields: [
        ActionField(
          id: "typed-account-id", name: "typed_account_id", label: "The account's id, once more",
          isInput: true),
        ActionForm.reason,
      ],
      buttonLabel: "Erase", isDanger: true,
      subject: PageLink(label: account.id, href: PageAddress.account(account.id)))
  }

  /// Shown at once: there is no page to go back to.
  private func done(_ erasure: Erasure, _ context: APIContext) async throws -> Response {
    let removed = erasure.removed
    func number(_ label: String, _ value: Int) -> Property {
      Property(label: label, value: ChartUnit.count.text(Int64(value)))
    }
    return pages.response(
      DonePage(
        page: try await pages.frame("The person is erased", context),
        message: "A pseudonym has taken the place of the account's name.",
        properties: [
          Property(
            label: "Pseudonym", value: erasure.pseudonym,
            href: PageAddress.account(erasure.pseudonym), isCode: true),
          number("Holdings under it", removed.holdings),
          number("Submissions emptied", removed.submissions),
          number("Payloads deleted", removed.payloads),
          number("Exchanges deleted", removed.exchanges),
        ],
        links: [PageLink(label: "Overview", href: PageAddress.overview)]),
      .done)
  }
}

/// Giving out all that is known of an account, as a page: a form that asks why, and a file.
struct ExportPageController: Sendable {
  let pages: PageMaker
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
      title: "Export what is known", action: PageAddress.account(account.id, form: "export"),
      lead: "Gives out all that is known of the account as a file of JSON, with what was submitted "
        + "and what Apple answered.",
      properties: [Property(label: "Account", value: account.id, isCode: true)],
      fields: [ActionForm.reason], buttonLabel: "Export", isFile: true,
      subject: PageLink(label: account.id, href: PageAddress.account(account.id)))
  }
}
