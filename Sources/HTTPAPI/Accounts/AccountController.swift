import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

/// The accounts of the app.
struct AccountController: Sendable {
  let ledger: Ledger
  let catalogue: CatalogueCache
  let now: @Sendable () -> Timestamp

  @Sendable
  func put(_ request: Request, context: APIContext) async throws -> Response {
    Response(
      try await ledger.findOrCreateAccount(try context.parameter(.accountID), at: now()))
  }

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    guard let account = try await ledger.account(id) else {
      throw Problem(.unknownAccount, "The account was never seen; PUT creates it.")
    }
    return Response(account)
  }

  /// What the account owns, latest first.
  @Sendable
  func transactions(_ request: Request, context: APIContext) async throws -> Response {
    let (id, page) = (try context.parameter(.accountID), try Page(request.uri))
    let owned = try await ownedCharges(of: id)
    let (charges, next) = try page.slice(of: owned) { Self.cursor($0.charge) }
    return Response(
      AccountTransactions(
        accountID: id, transactions: Array(charges), next: next, catalogue: catalogue.catalogue),
      capacity: 128 + charges.count * 800)
  }

  private func ownedCharges(of accountID: String) async throws -> [ChargeReport] {
    guard let account = try await ledger.account(accountID) else { return [] }
    let catalogue = catalogue.catalogue
    var reports: [ChargeReport] = []
    var seen: Set<LineID> = []
    for line in try await ledger.lines(of: account.key) where !seen.contains(line) {
      guard let family = try await ledger.family(of: line) else { continue }
      // Lines that Apple links come as one.
      seen.formUnion(family.line.heads.keys)
      reports += family.rule.charges.compactMap { charge in
        ChargeReport(of: charge.id, in: family, catalogue: catalogue)
      }
      .filter { $0.recorded.decision.owner == account.key }
    }
    return reports.sorted {
      ($0.charge.date, $0.charge.id) > ($1.charge.date, $1.charge.id)
    }
  }

  private static func cursor(_ charge: Charge) -> String {
    "\(charge.id.line)/\(charge.id.transactionID)/\(charge.id.productID)"
  }
}

extension Account: JSONWritable {
  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("account_id", id)
      json.member("app_account_token", appAccountToken)
      json.member("created_at", createdAt)
    }
  }
}

private struct AccountTransactions: JSONWritable {
  let accountID: String
  let transactions: [ChargeReport]
  let next: String?
  let catalogue: Catalogue

  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("account_id", accountID)
      json.key("transactions")
      json.array(transactions) { $0.transaction($1, in: catalogue) }
      json.member("next", next)
    }
  }
}

/// Whether customers let Apple be told what became of a purchase whose money they ask for.
struct ConsumptionConsentController: Sendable {
  let ledger: Ledger
  let now: @Sendable () -> Timestamp

  private struct ConsentRequest: Decodable {
    var consented: Bool
  }

  @Sendable
  func put(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let body = try await request.json(ConsentRequest.self)
    return Response(
      try await ledger.setConsumptionConsent(body.consented, of: id, at: now()))
  }

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    guard let consent = try await ledger.consumptionConsent(of: id) else {
      throw Problem(.unknownAccount, "The account was never seen; PUT creates it.")
    }
    return Response(consent)
  }

  /// Forgets what was said.
  @Sendable
  func delete(_ request: Request, context: APIContext) async throws -> Response {
    Response(try await ledger.forgetConsumptionConsent(of: try context.parameter(.accountID)))
  }
}

extension ConsumptionConsent: JSONWritable {
  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("account_id", accountID)
      json.member("consented", isGiven)
      json.member("decided_at", decidedAt)
    }
  }
}
