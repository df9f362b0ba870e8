import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

/// Creates and shows accounts and their consents, and lists their charges.
struct AccountController: Sendable {
  let ledger: Ledger
  let catalogue: CatalogueCache
  let now: @Sendable () -> Timestamp

  func put(_ request: Request, context: APIContext) async throws -> Response {
    Response(
      try await ledger.accounts.findOrCreateAccount(try context.parameter(.accountID), at: now()))
  }

  func show(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    guard let account = try await ledger.accounts.account(id) else { throw Self.unknownAccount }
    return Response(account)
  }

  private static let unknownAccount = Problem(
    .unknownAccount, "No account has this ID. PUT creates it.")

  /// The charges that the account owns, latest first.
  func transactions(_ request: Request, context: APIContext) async throws -> Response {
    let (id, page) = (try context.parameter(.accountID), try Page(request.uri))
    let owned = try await ownedCharges(of: id)
    let (charges, next) = try page.slice(of: owned) { Self.cursor($0.charge) }
    let catalogue = catalogue.catalogue
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
      reports += original.charges(of: account.key, in: catalogue.catalogue)
    }
    return reports.sorted {
      ($0.charge.date, $0.charge.id) > ($1.charge.date, $1.charge.id)
    }
  }

  private static func cursor(_ charge: Charge) -> String {
    "\(charge.id.line)/\(charge.id.transactionID)/\(charge.id.productID)"
  }

  // MARK: Consent

  /// A customer's consent to sending Apple consumption data when they ask for refunds.
  private struct ConsentRequest: Decodable {
    var consented: Bool
  }

  func putConsent(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let body = try await request.json(ConsentRequest.self)
    return Response(
      try await ledger.writeBacks.setConsumptionConsent(body.consented, of: id, at: now()))
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
  /// The charges, by date.
  func charges(in catalogue: Catalogue) -> [ChargeReport] {
    rule.charges.compactMap { ChargeReport(of: $0.id, in: self, catalogue: catalogue) }
  }

  /// The charges that an account owns.
  func charges(of account: AccountKey, in catalogue: Catalogue) -> [ChargeReport] {
    charges(in: catalogue).filter { $0.recorded.decision.owner == account }
  }
}

extension Account: JSONObjectWritable {
  func writeMembers(to json: inout JSONWriter) {
    json.member("account_id", id)
    json.member("app_account_token", appAccountToken)
    json.member("created_at", createdAt)
  }
}

extension ConsumptionConsent: JSONObjectWritable {
  func writeMembers(to json: inout JSONWriter) {
    json.member("account_id", accountID)
    json.member("consented", isGiven)
    json.member("decided_at", decidedAt)
  }
}
