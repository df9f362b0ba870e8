import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

struct AccountController: Controller {
  let api: API

  /// Creates the account if it is new, and takes over the names in the body, if there is one.
  func put(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let bytes = try await request.collectJSON()
    let body = bytes.readableBytes == 0 ? nil : try RequestBody(bytes)
    let (label, email) = (try body?.text(.label), try body?.text(.email))
    var account = try await ledger.accounts.findOrCreateAccount(id, at: now())
    if let body, body.names(.label) || body.names(.email) {
      account = try await ledger.accounts.setNames(
        label: body.names(.label) ? .some(label) : nil,
        email: body.names(.email) ? .some(email) : nil, of: account)
    }
    return Response(account)
  }

  func show(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    guard let account = try await ledger.accounts.account(id) else { throw Self.unknownAccount }
    return Response(account)
  }

  private static let unknownAccount = Problem(
    .unknownAccount, "No account has this ID. PUT creates it.")

  func transactions(_ request: Request, context: APIContext) async throws -> Response {
    let (id, page) = (try context.parameter(.accountID), try Page(request.query))
    let owned = try await ownedCharges(of: id)
    let (charges, next) = try page.slice(of: owned) { Self.cursor($0.charge) }
    let catalogue = catalogue
    return Response(capacity: 128 + charges.count * 800) { json in
      json.member("account_id", id)
      json.array("transactions", charges) { $0.transaction($1, in: catalogue) }
      json.member("next", next)
    }
  }

  private func ownedCharges(of accountID: String) async throws -> [ChargeReport] {
    guard let account = try await ledger.accounts.account(accountID) else { return [] }
    var reports: [ChargeReport] = []
    for try await (_, original) in try await ledger.ownership.originals(of: account.key) {
      reports += original.charges(of: account.key, in: catalogue)
    }
    return reports.sorted {
      ($0.charge.date, $0.charge.id) > ($1.charge.date, $1.charge.id)
    }
  }

  private static func cursor(_ charge: Charge) -> String {
    "\(charge.id.line)/\(charge.id.transactionID)/\(charge.id.productID)"
  }

  // MARK: Consent to sending Apple consumption data when the customer asks for refunds

  func putConsent(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let body = try await request.json()
    let isGiven = try body.required("consented", body.flag("consented"))
    return Response(try await ledger.writeBacks.setConsumptionConsent(isGiven, of: id, at: now()))
  }

  func showConsent(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    guard let consent = try await ledger.writeBacks.consumptionConsent(of: id) else {
      throw Self.unknownAccount
    }
    return Response(consent)
  }

  func deleteConsent(_ request: Request, context: APIContext) async throws -> Response {
    Response(
      try await ledger.writeBacks.forgetConsumptionConsent(of: try context.parameter(.accountID)))
  }
}

extension RecordedOriginalTransaction {
  func charges(in catalogue: Catalogue) -> [ChargeReport] {
    rule.charges.compactMap { ChargeReport(of: $0.id, in: self, catalogue: catalogue) }
  }

  func charges(of account: AccountKey, in catalogue: Catalogue) -> [ChargeReport] {
    charges(in: catalogue).filter { $0.recorded.decision.owner == account }
  }
}

extension Account: JSONObjectWritable {
  func writeMembers(to json: inout JSONWriter) {
    json.member("account_id", id)
    json.member("app_account_token", appAccountToken)
    json.member("created_at", createdAt)
    json.memberIfPresent("label", label)
    json.memberIfPresent("email", email)
  }
}

extension ConsumptionConsent: JSONObjectWritable {
  func writeMembers(to json: inout JSONWriter) {
    json.member("account_id", accountID)
    json.member("consented", isGiven)
    json.member("decided_at", decidedAt)
  }
}
