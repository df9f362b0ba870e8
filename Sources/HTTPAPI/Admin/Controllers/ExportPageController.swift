import HTTPTypes
import Hummingbird
import LedgerStorage

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
