import HTTPTypes
import Hummingbird
package import HummingbirdCore
package import JSONText
package import LedgerStorage
package import Subscriptions

package struct TransactionController: Controller {
  package let api: API

  package init(api: API) { self.api = api }

  package func show(_ request: Request, context: APIContext) async throws -> Response {
    let (report, original) = try await find(request, context)
    let history = try await ledger.ownership.history(of: report.charge, in: original)
    let catalogue = catalogue
    return Response(capacity: 4096) { json in
      json.transactionMembers(report, in: catalogue)
      json.member("order_id", report.orderID)
      json.member("delivered_at", report.deliveredAt)
      json.member("evidence", DecisionEvidence(on: report, in: original))
      json.member("history", history)
    }
  }

  /// Records the delivery of a charge; repeats return the first one.
  package func acknowledgeDelivery(_ request: Request, context: APIContext) async throws -> Response
  {
    let accountID = try await request.json().required(.accountID)
    let (report, _) = try await find(request, context)
    // After a merge, either account ID may acknowledge the delivery.
    guard let named = try await ledger.accounts.account(accountID),
      case let account = try await ledger.accounts.successor(of: named),
      let delivery = try await ledger.orders.acknowledgeDelivery(
        of: report.charge.id, by: account.key, at: now())
    else {
      throw Problem(
        .notTheOwner,
        "The account does not own transaction \(report.charge.id.transactionID).")
    }
    return Response { json in
      json.member("delivered_at", delivery.deliveredAt)
      json.member("first", delivery.isFirst)
    }
  }

  /// Finds the one charge with the request's transaction ID, which may be an alias.
  package func find(_ request: Request, _ context: APIContext) async throws
    -> (ChargeReport, RecordedOriginalTransaction)
  {
    let id = TransactionID(try context.parameter(.transactionID))
    let query = request.query
    let environment = try query.environment()
    let productID = try query.text(.productID).map { ProductID($0) }
    let lines = try await ledger.ownership.lines(of: id)
      .filter { environment == nil || $0.environment == environment }
    let unknown = Problem(.unknownTransaction, "Transaction \(id) is not recorded.")
    guard let line = lines.first else { throw unknown }
    guard lines.allSatisfy({ $0.environment == line.environment }) else {
      throw Problem(
        .ambiguous,
        "Transaction \(id) exists in both environments: add `environment=production` or "
          + "`environment=sandbox`.")
    }
    guard let original = try await ledger.ownership.original(of: line) else { throw unknown }
    let keys = original.line.history.transactions.map(\.key).filter {
      $0.transactionID == id && (productID == nil || $0.productID == productID)
    }
    let positions = Set(keys.compactMap(original.rule.position(of:)))
    guard positions.count <= 1 else {
      throw Problem(
        .ambiguous, "Transaction \(id) has charges of more than one product: add `product_id`.")
    }
    guard let key = keys.first,
      let report = ChargeReport(of: key, in: original, catalogue: catalogue)
    else { throw unknown }
    return (report, original)
  }
}

package struct DecisionEvidence: JSONObjectWritable {
  private let charge: Charge
  private let decision: Decision
  private let names: [AccountKey: String]
  private var renewal: RenewalEvidence { decision.renewal }

  package init(on report: ChargeReport, in original: RecordedOriginalTransaction) {
    (charge, decision, names) = (report.charge, report.recorded.decision, original.names)
  }

  package func writeMembers(to json: inout JSONWriter) {
    json.member("kind", charge.kind)
    json.member("charged_at", charge.date)
    json.member("ground", renewal.reason)
    json.member("renewing_account_id", renewal.account.map { names[$0] ?? "erased" })
    json.member("previous_transaction_id", renewal.previous?.transactionID)
    json.member("status_as_of", renewal.statusAsOf)
    json.member("switched_off_at", renewal.switchedOffAt)
    json.member("provisional", decision.isProvisional)
    json.member("in_words", sentences)
  }

  package var sentences: String {
    var sentences = ["Charged on \(charge.date). \(kind)."]
    sentences.append(
      renewal.previous.map { "Previous charge: transaction \($0.transactionID)." }
        ?? "No earlier charge counted.")
    if let statusAsOf = renewal.statusAsOf {
      sentences.append("Decided by the renewal status that Apple reported on \(statusAsOf).")
    }
    if let switchedOffAt = renewal.switchedOffAt {
      sentences.append("Auto-renew had been off since \(switchedOffAt).")
    }
    if decision.isProvisional { sentences.append("The first submission can change the owner.") }
    return sentences.joined(separator: " ")
  }

  private var kind: String {
    switch charge.kind {
    case .renewal: "Apple reports a renewal"
    case .purchase: "Apple reports a purchase"
    case .unknown: "Apple does not report whether it is a purchase or a renewal"
    }
  }
}

extension JSONWriter {
  /// Writes a `Transaction` of the OpenAPI document; the catalogue has non-renewing periods.
  mutating func transaction(_ report: ChargeReport, in catalogue: Catalogue) {
    object { $0.transactionMembers(report, in: catalogue) }
  }

  /// Writes the members of a `Transaction`, for objects that add their own.
  mutating func transactionMembers(_ report: ChargeReport, in catalogue: Catalogue) {
    let (charge, transaction) = (report.charge, report.transaction)
    member("transaction_id", charge.id.transactionID)
    memberIfPresent("submitted_transaction_id", report.submittedTransactionID)
    member("original_transaction_id", charge.id.line.originalTransactionID)
    member("product_id", charge.productID)
    member("product_type", report.productType)
    member("quantity", transaction.quantity)
    member("purchased_at", charge.date)
    member("expires_at", report.end(in: catalogue))
    member("revoked_at", charge.revocation?.at)
    member("environment", charge.id.line.environment)
    member("ownership_type", transaction.ownershipType)
    member("period_type", transaction.periodType)
    memberIfPresent("price_milliunits", transaction.priceMilliunits)
    memberIfPresent("currency", transaction.currency)
    member("aliases", charge.aliases.map(\.transactionID.rawValue))
    member("owner_account_id", report.ownerAccountID)
    object("decision") { json in
      json.member("rule", report.recorded.decision.rule)
      json.member("because", report.because)
      json.member("decided_at", report.recorded.decidedAt)
      json.memberIfPresent("corrected_at", report.recorded.correctedAt)
    }
    member("newly_owned", report.isNewlyOwned)
  }
}

extension ChargeReport {
  /// The end of the paid period, or nil without one.
  package func end(in catalogue: Catalogue) -> Timestamp? {
    guard charge.end == nil, productType == .nonRenewing else { return charge.end }
    return catalogue.product(charge.productID, at: charge.date)?.period?.end(from: charge.date)
  }
}
