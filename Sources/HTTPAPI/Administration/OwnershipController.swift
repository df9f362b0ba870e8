import HTTPTypes
import Hummingbird
import HummingbirdCore
package import LedgerStorage
import Subscriptions

/// Charges that administrators place.
struct TransferController: Sendable {
  let transactions: TransactionController
  let entitlements: EntitlementReader

  private struct TransferRequest: Decodable {
    /// Nil: the charge is released.
    var accountID: String?
    var reason: String
    var effectiveFrom: String?

    enum CodingKeys: String, CodingKey {
      case accountID = "account_id"
      case reason
      case effectiveFrom = "effective_from"
    }

    init(from decoder: any Decoder) throws {
      let values = try decoder.container(keyedBy: CodingKeys.self)
      // To release a charge is said, and not forgotten.
      accountID =
        try values.contains(.accountID) && values.decodeNil(forKey: .accountID)
        ? nil : values.decode(String.self, forKey: .accountID)
      reason = try values.decode(String.self, forKey: .reason)
      effectiveFrom = try values.decodeIfPresent(String.self, forKey: .effectiveFrom)
    }
  }

  /// Says whose a charge is; answers what there is to know of it then.
  @Sendable
  func transfer(_ request: Request, context: APIContext) async throws -> Response {
    let body = try await request.json(TransferRequest.self)
    let accountID = try body.accountID.map(TextField.accountID.checked)
    let effectiveFrom = try body.effectiveFrom.map {
      try Timestamp(parsing: $0, field: "effective_from")
    }
    let administrator = try context.administrator(
      reason: try TextField.reason.checked(body.reason))
    let (report, _) = try await transactions.find(request, context)
    try await transactions.ledger.transfer(
      report.charge.id, to: accountID, effectiveFrom: effectiveFrom, by: administrator,
      terms: entitlements.terms, at: transactions.now())
    return try await transactions.show(request, context: context)
  }

  /// Takes a charge away from whoever has it; answers what there is to know of it then.
  @Sendable
  func release(_ request: Request, context: APIContext) async throws -> Response {
    let effectiveFrom = try Query(request.uri)?.moment("effective_from")
    let administrator = try context.administrator(reason: try await request.reason())
    let (report, _) = try await transactions.find(request, context)
    try await transactions.ledger.transfer(
      report.charge.id, to: nil, effectiveFrom: effectiveFrom, by: administrator,
      terms: entitlements.terms, at: transactions.now())
    return try await transactions.show(request, context: context)
  }
}

extension APIContext {
  /// Who acts, for the record of administrators' acts.
  ///
  /// - Parameter reason: Why, in the administrator's own words.
  /// - Returns: The administrator, by the name of the key.
  /// - Throws: A ``Problem`` where nobody is known to call.
  package func administrator(reason: String? = nil) throws -> Administrator {
    guard let caller else { throw Problem.unauthorized }
    return Administrator(name: caller.name, reason: reason)
  }
}

extension TextField {
  /// A few sentences, in one paragraph.
  package static let reason = TextField(
    name: "reason", maximumLength: Administrator.maximumReasonLength)
}

extension Request {
  private struct ReasonRequest: Decodable {
    var reason: String
  }

  /// Reads why something is to be deleted: from the query, or from the body, which not every client
  /// and proxy lets pass with DELETE.
  ///
  /// - Throws: A ``Problem`` where there is no reason.
  package func reason() async throws -> String {
    if let reason = try Query(uri)?.text(.reason) { return reason }
    guard let body = try await jsonIfPresent(ReasonRequest.self) else {
      throw Problem.invalid(TextField.reason.name, "is missing")
    }
    return try TextField.reason.checked(body.reason)
  }
}
