import HTTPTypes
import Hummingbird
import HummingbirdCore
import LedgerStorage
import Subscriptions

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
