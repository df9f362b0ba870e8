import HTTPTypes
import Hummingbird
import LedgerStorage
import Subscriptions

/// Taking a charge away from whoever has it, as a page.
struct ReleasePageController: Sendable {
  let pages: PageMaker
  let transactions: TransactionController
  let entitlements: EntitlementReader

  @Sendable
  func ask(_ request: Request, context: APIContext) async throws -> Response {
    let (report, _) = try await transactions.find(request, context)
    return try await form(for: report).ask(pages, context)
  }

  @Sendable
  func release(_ request: Request, context: APIContext) async throws -> Response {
    let (report, _) = try await transactions.find(request, context)
    let form = form(for: report)
    do {
      let administrator = try context.actingAdministrator()
      guard ActionForm.isConfirmed(context) else {
        return try await form.confirm(
          pages, context, consequences: try await consequences(of: report),
          warnings: report.ownerAccountID == nil ? ["Nobody owns it: nothing would change."] : [])
      }
      try await transactions.ledger.transfer(
        report.charge.id, to: nil, by: administrator, terms: entitlements.terms, at: pages.now())
      return PageMaker.done(
        Flash(
          message: "Transaction \(report.charge.id.transactionID) is nobody's until it is claimed.",
          tone: Tone.good),
        then: report.charge.id.href, request, context)
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await form.ask(pages, context, fault: problem)
    }
  }

  private func form(for report: ChargeReport) -> ActionForm {
    let charge = report.charge
    return ActionForm(
      title: "Release a charge", action: charge.id.releaseHref,
      lead: "Takes the charge away from whoever has it. It is unclaimed then, and whoever's app "
        + "submits it next has it.",
      properties: report.facts,
      fields: [ActionForm.reason], buttonLabel: "Release", isDanger: true,
      subject: PageLink(
        label: charge.id.line.originalTransactionID.rawValue, href: charge.id.href))
  }

  private func consequences(of report: ChargeReport) async throws -> [String] {
    let charge = report.charge
    let (id, now) = (charge.id.transactionID, pages.now())
    guard let loser = report.ownerAccountID else { return ["Transaction \(id) stays nobody's."] }
    let held = try await entitlements.entitlements(of: loser, now: now)
    return ["Transaction \(id), owned by “\(loser)” now, is nobody's."]
      + held.filter {
        $0.isActive && $0.originalTransactionID == charge.id.line.originalTransactionID
          && $0.transactionID == id
      }.map { "“\(loser)” loses “\($0.name)”, unless it has it by another charge." }
      + [
        "It counts for what is charged from \(Moment(now).text) on: a renewal is nobody's, either, "
          + "until somebody has claimed this charge.",
        "If the app of “\(loser)” submits it again before anybody else, “\(loser)” has it again.",
      ]
  }
}
