import HTTPTypes
import Hummingbird
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
