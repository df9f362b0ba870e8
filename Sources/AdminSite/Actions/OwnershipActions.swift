import HTTPAPI
import HTTPTypes
import Hummingbird
import LedgerStorage
import Subscriptions

/// The forms that transfer a charge to another account, and release it.
struct OwnershipController: ActionController {
  let api: API
  let isRelease: Bool

  func subject(of request: Request, _ context: APIContext) async throws -> ChargeReport {
    try await TransactionController(api: api).find(request, context).0
  }

  func form(for report: ChargeReport) -> ActionForm {
    let id = report.charge.id
    let subject = PageLink(label: id.line.originalTransactionID.rawValue, href: id.href)
    return isRelease
      ? ActionForm(
        title: "Release charge", action: id.href(form: "release"),
        lead: "Removes this charge from its owner. It stays unclaimed until an app submits it.",
        properties: report.facts, buttonLabel: "Release", isDanger: true, subject: subject)
      : ActionForm(
        title: "Transfer charge", action: id.href(form: "transfer"),
        lead: "Assigns this charge to another account, overriding the ownership rule. Later "
          + "charges of the same original transaction follow the new owner.",
        properties: report.facts,
        fields: [
          FormField(
            id: "account-id", name: TextField.accountID.name, label: "New owner", isInput: true,
            maximumLength: 255, isRequired: true,
            hint: "The full account ID, exactly as your app uses it.")
        ],
        buttonLabel: "Transfer", subject: subject)
  }

  func perform(_ sent: SentForm, on report: ChargeReport) async throws -> Response {
    let accountID = isRelease ? nil : try sent.fields.entered(.accountID)
    let administrator = try sent.context.actingAdministrator()
    var account: String?
    if let accountID {
      guard let found = try await ledger.accounts.account(accountID), !found.isErased
      else {
        throw Problem(
          .invalidRequest, "No account with this ID.", field: TextField.accountID.name)
      }
      account = found.id
    }
    guard sent.isConfirmed else {
      return try await sent.confirm(
        consequences: try await consequences(of: report, to: account),
        warnings: warnings(of: report, to: account))
    }
    let id = report.charge.id
    try await ledger.ownership.transfer(
      id, to: account, by: administrator, terms: terms, at: now())
    return sent.done(
      "Transaction \(id.transactionID) was "
        + (account.map { "transferred to “\($0)”." } ?? "released."),
      link: account.map { PageLink(label: "View account", href: AdminURL.account($0)) },
      then: id.href)
  }

  private func warnings(of report: ChargeReport, to account: String?) -> [String] {
    guard report.ownerAccountID.map(AccountID.init(_:)) == account.map(AccountID.init(_:)) else {
      return []
    }
    return [
      account.map {
        "“\($0)” already owns this charge. An administrator override is recorded."
      } ?? "No account owns this charge; nothing would change."
    ]
  }

  private func consequences(of report: ChargeReport, to account: String?) async throws -> [String] {
    let (id, now, loser) = (report.charge.id.transactionID, now(), report.ownerAccountID)
    var losses: [String] = []
    if let loser, loser != account {
      losses = report.losses(
        of: loser, holding: try await entitlements.entitlements(of: loser, now: now))
    }
    if let account {
      let owner = loser.map { "owner: “\($0)”" } ?? "unclaimed"
      return ["Transaction \(id) (\(owner)) will be assigned to “\(account)”."] + losses + [
        "Other charges made before \(Moment(now).text) keep their owner.",
        "Renewals of this charge will belong to “\(account)”.",
      ]
    }
    guard let loser else { return ["Transaction \(id) stays unclaimed."] }
    return ["Transaction \(id) (owner: “\(loser)”) will be unclaimed."] + losses + [
      "Renewals after \(Moment(now).text) are unclaimed, too, until an account claims this "
        + "charge.",
      "If the app of “\(loser)” is the first to submit it again, “\(loser)” owns it again.",
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
