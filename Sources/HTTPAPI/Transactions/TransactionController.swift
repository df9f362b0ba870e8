import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

/// Single transactions: whose they are, why, and whether they were delivered.
struct TransactionController: Sendable {
  let ledger: Ledger
  let catalogue: CatalogueCache
  let now: @Sendable () -> Timestamp

  @Sendable
  func show(_ request: Request, context: APIContext) async throws -> Response {
    let (report, family) = try await find(request, context)
    return Response(
      ExplainedTransaction(
        report: report, evidence: DecisionEvidence(on: report, in: family),
        history: try await ledger.history(of: report.charge, in: family),
        catalogue: catalogue.catalogue),
      capacity: 4096)
  }

  private struct DeliveryRequest: Decodable {
    var accountID: String

    enum CodingKeys: String, CodingKey {
      case accountID = "account_id"
    }
  }

  /// Notes that an account got what a charge paid for: once, however often it is said.
  @Sendable
  func acknowledgeDelivery(_ request: Request, context: APIContext) async throws -> Response {
    let accountID = try TextField.accountID.checked(
      try await request.json(DeliveryRequest.self).accountID)
    let (report, _) = try await find(request, context)
    // What was a guest's may be delivered by the member that the guest became, and by either's app.
    guard let named = try await ledger.account(accountID),
      case let account = try await ledger.successor(of: named),
      let delivery = try await ledger.acknowledgeDelivery(
        of: report.charge.id, by: account.key, at: now())
    else {
      throw Problem(
        .notTheOwner,
        "Transaction \(report.charge.id.transactionID) is not the account's: there is nothing "
          + "to deliver to it.")
    }
    return Response(Delivery(deliveredAt: delivery.deliveredAt, isFirst: delivery.isFirst))
  }

  /// Finds the charge that a request's transaction id names, or is an alias of.
  ///
  /// - Throws: A ``Problem`` where there is none, or more than one.
  func find(_ request: Request, _ context: APIContext) async throws
    -> (ChargeReport, RecordedFamily)
  {
    let id = TransactionID(try context.parameter(.transactionID))
    let query = Query(request.uri)
    let environment = try query?.environment()
    let productID = try query?.text(.productID).map { ProductID($0) }
    let lines = try await ledger.lines(of: id)
      .filter { environment == nil || $0.environment == environment }
    guard let line = lines.first else {
      throw Problem(.unknownTransaction, "Transaction \(id) was never recorded.")
    }
    guard lines.allSatisfy({ $0.environment == line.environment }) else {
      throw Problem(
        .ambiguous,
        "Both environments have a transaction \(id): name one, as in "
          + "`?environment=sandbox`.")
    }
    guard let family = try await ledger.family(of: line) else {
      throw Problem(.unknownTransaction, "Transaction \(id) was never recorded.")
    }
    let keys = family.line.history.transactions.map(\.key).filter {
      $0.transactionID == id && (productID == nil || $0.productID == productID)
    }
    let positions = Set(keys.compactMap(family.rule.position(of:)))
    guard positions.count <= 1 else {
      throw Problem(
        .ambiguous, "Transaction \(id) is of more than one product: name one with `product_id`.")
    }
    guard let key = keys.first,
      let report = ChargeReport(of: key, in: family, catalogue: catalogue.catalogue)
    else { throw Problem(.unknownTransaction, "Transaction \(id) was never recorded.") }
    return (report, family)
  }
}

private struct ExplainedTransaction: JSONWritable {
  let report: ChargeReport
  let evidence: DecisionEvidence
  let history: [ChargeEvent]
  let catalogue: Catalogue

  func write(to json: inout JSONWriter) {
    json.object { json in
      json.transactionMembers(report, in: catalogue)
      json.member("order_id", report.orderID)
      json.member("delivered_at", report.deliveredAt)
      json.member("evidence", evidence)
      json.member("history", history)
    }
  }
}

private struct Delivery: JSONWritable {
  let deliveredAt: Timestamp
  let isFirst: Bool

  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("delivered_at", deliveredAt)
      json.member("first", isFirst)
    }
  }
}
