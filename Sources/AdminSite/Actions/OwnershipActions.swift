import HTTPAPI
import HTTPTypes
import Hummingbird
import LedgerStorage
import Subscriptions

struct TransferPageController: Sendable {
  let pages: PageRenderer
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
      guard let account = try await transactions.ledger.accounts.account(accountID),
        !account.isErased
      else {
        throw Problem(
          .invalidRequest, "No account with this ID.", field: TextField.accountID.name)
      }
      guard ActionForm.isConfirmed(context) else {
        return try await form.confirm(
          pages, context, consequences: try await consequences(of: report, to: account.id),
          warnings: report.ownerAccountID.map(AccountID.init(_:)) == AccountID(account.id)
            ? ["“\(account.id)” already owns this charge. An administrator override is recorded."]
            : [])
      }
      try await transactions.ledger.ownership.transfer(
        report.charge.id, to: account.id, by: administrator, terms: entitlements.terms,
        at: pages.now())
      return PageRenderer.done(
        Flash(
          message:
            "Transaction \(report.charge.id.transactionID) was transferred to “\(account.id)”.",
          tone: Tone.good,
          link: PageLink(label: "View account", href: AdminURL.account(account.id))),
        then: report.charge.id.href, request, context)
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await form.ask(pages, context, fault: problem)
    }
  }

  private func form(for report: ChargeReport) -> ActionForm {
    let charge = report.charge
    return ActionForm(
      title: "Transfer charge", action: charge.id.transferHref,
      lead: "Assigns this charge to another account, overriding the ownership rule. Later charges "
        + "of the same original transaction follow the new owner.",
      properties: report.facts,
      fields: [
        ActionField(
          id: "account-id", name: "account_id", label: "New owner", isInput: true,
          hint: "The full account ID, exactly as your app uses it."),
        ActionForm.reason,
      ],
      buttonLabel: "Transfer",
      subject: PageLink(
        label: charge.id.line.originalTransactionID.rawValue, href: charge.id.href))
  }

  private func consequences(of report: ChargeReport, to accountID: String) async throws -> [String]
  {
    let owner = report.ownerAccountID.map { "owner: “\($0)”" } ?? "unclaimed"
    var sentences = [
      "Transaction \(report.charge.id.transactionID) (\(owner)) will be assigned to "
        + "“\(accountID)”."
    ]
    if let loser = report.ownerAccountID, loser != accountID {
      let held = try await entitlements.entitlements(of: loser, now: pages.now())
      sentences += report.losses(of: loser, holding: held)
    }
    return sentences + [
      "Other charges made before \(Moment(pages.now()).text) keep their owner.",
      "Renewals of this charge will belong to “\(accountID)”.",
    ]
  }
}

extension ChargeReport {
  /// One sentence per active entitlement that an account loses together with the charge.
  fileprivate func losses(of account: String, holding held: [Entitlement]) -> [String] {
    held.filter {
      $0.isActive && $0.originalTransactionID == charge.id.line.originalTransactionID
        && $0.transactionID == charge.id.transactionID
    }.map { entitlement in
      let until = entitlement.accessEndsAt.map { " (until \(Moment($0).text))" } ?? ""
      return "“\(account)” loses “\(entitlement.name)”\(until) unless another purchase or a grant "
        + "provides it."
    }
  }
}

struct ReleasePageController: Sendable {
  let pages: PageRenderer
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
          warnings: report.ownerAccountID == nil
            ? ["No account owns this charge; nothing would change."] : [])
      }
      try await transactions.ledger.ownership.transfer(
        report.charge.id, to: nil, by: administrator, terms: entitlements.terms, at: pages.now())
      return PageRenderer.done(
        Flash(
          message: "Transaction \(report.charge.id.transactionID) was released.",
          tone: Tone.good),
        then: report.charge.id.href, request, context)
    } catch let problem as Problem where problem.code == .invalidRequest {
      return try await form.ask(pages, context, fault: problem)
    }
  }

  private func form(for report: ChargeReport) -> ActionForm {
    let charge = report.charge
    return ActionForm(
      title: "Release charge", action: charge.id.releaseHref,
      lead: "Removes this charge from its owner. It stays unclaimed until an app submits it.",
      properties: report.facts,
      fields: [ActionForm.reason], buttonLabel: "Release", isDanger: true,
      subject: PageLink(
        label: charge.id.line.originalTransactionID.rawValue, href: charge.id.href))
  }

  private func consequences(of report: ChargeReport) async throws -> [String] {
    let (id, now) = (report.charge.id.transactionID, pages.now())
    guard let loser = report.ownerAccountID else { return ["Transaction \(id) stays unclaimed."] }
    let held = try await entitlements.entitlements(of: loser, now: now)
    return ["Transaction \(id) (owner: “\(loser)”) will be unclaimed."]
      + report.losses(of: loser, holding: held)
      + [
        "Renewals after \(Moment(now).text) are unclaimed, too, until an account claims this "
          + "charge.",
        "If the app of “\(loser)” is the first to submit it again, “\(loser)” owns it again.",
      ]
  }
}
