import Hummingbird
import JSONText
import LedgerStorage
import Subscriptions

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
