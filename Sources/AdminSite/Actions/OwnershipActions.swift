import HTTPAPI
import HTTPTypes
import Hummingbird
import LedgerStorage
import Subscriptions

/// Giving a charge to another account, as a page.
struct TransferPageController: Sendable {
  let pages: PageMaker
  let transactions: TransactionController
  let entitlements: EntitlementReader

  @Sendable
  func ask(_ request: Request, context: APIContext) async throws -> Response {
    let (report, _) = try await transactions.find(request, context)
    return try await form(for: report).ask(pages, context)
  }

  @Sendable
  func transfer(_ request: Request, context: APIContext) async throws -> Response {
    let (report, _) = try await transactions.find(request, context)
    let form = form(for: report)
    do {
      let accountID = try context.admin.form.text(.accountID)
      let administrator = try context.actingAdministrator()
      guard let account = try await transactions.ledger.account(accountID), !account.isErased else {
        throw Problem.invalid(TextField.accountID.name, "names no account that was ever seen")
      }
      guard ActionForm.isConfirmed(context) else {
        return try await form.confirm(
          pages, context, consequences: try await consequences(of: report, to: account.id),
          warnings: report.ownerAccountID.map(AccountID.init(_:)) == AccountID(account.id)
            ? ["“\(account.id)” owns it already: the decision becomes the administrator's."] : [])
      }
      try await transactions.ledger.transfer(
        report.charge.id, to: account.id, by: administrator, terms: entitlements.terms,
        at: pages.now())
      return PageMaker.done(
        Flash(
          message: "Transaction \(report.charge.id.transactionID) is owned by “\(account.id)” now.",
          tone: Tone.good,
          link: PageLink(label: "See the account", href: PageAddress.account(account.id))),
        then: report.charge.id.href, request, context)
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await form.ask(pages, context, fault: problem)
    }
  }

  private func form(for report: ChargeReport) -> ActionForm {
    let charge = report.charge
    return ActionForm(
      title: "Transfer a charge", action: charge.id.transferHref,
      lead: "Says whose the charge is, whatever the rule says. Charges of the same original "
        + "transaction that are made from now on follow the new owner.",
      properties: report.facts,
      fields: [
        ActionField(
          id: "account-id", name: "account_id", label: "To the account", isInput: true,
          hint: "Whole, as the app names it."),
        ActionForm.reason,
      ],
      buttonLabel: "Transfer",
      subject: PageLink(
        label: charge.id.line.originalTransactionID.rawValue, href: charge.id.href))
  }

  /// Who gets what, and who loses what until when.
  private func consequences(of report: ChargeReport, to accountID: String) async throws -> [String]
  {
    let charge = report.charge
    let owner = report.ownerAccountID.map { "“\($0)”" } ?? "nobody"
    var sentences = [
      "Transaction \(charge.id.transactionID), owned by \(owner) now, goes to “\(accountID)”."
    ]
    if let loser = report.ownerAccountID, loser != accountID {
      let held = try await entitlements.entitlements(of: loser, now: pages.now())
      sentences += held.filter {
        $0.isActive && $0.originalTransactionID == charge.id.line.originalTransactionID
          && $0.transactionID == charge.id.transactionID
      }.map { entitlement in
        let until = entitlement.accessEndsAt.map { " until \(Moment($0).text)" } ?? ""
        return "“\(loser)” loses “\(entitlement.name)”, which it could use\(until), unless it has "
          + "it by another charge."
      }
    }
    sentences.append(
      "It counts for what is charged from \(Moment(pages.now()).text) on; what was charged before "
        + "stays with whoever has it.")
    sentences.append(
      "If it renews, the renewal is “\(accountID)”'s: the charge before it is what counts.")
    return sentences
  }
}

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
