import HTTPTypes
import Hummingbird
import HummingbirdCore
package import LedgerStorage
import Subscriptions

/// Overrides the owner of a charge.
struct TransferController: Sendable {
  let transactions: TransactionController
  let entitlements: EntitlementReader

  private struct TransferRequest: Decodable {
    /// Nil to release the charge.
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
      // Releasing a charge needs an explicit null.
      accountID =
        try values.contains(.accountID) && values.decodeNil(forKey: .accountID)
        ? nil : values.decode(String.self, forKey: .accountID)
      reason = try values.decode(String.self, forKey: .reason)
      effectiveFrom = try values.decodeIfPresent(String.self, forKey: .effectiveFrom)
    }
  }

  /// Assigns a charge to an account, or releases it, and shows the result.
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
    try await transactions.ledger.ownership.transfer(
      report.charge.id, to: accountID, effectiveFrom: effectiveFrom, by: administrator,
      terms: entitlements.terms, at: transactions.now())
    return try await transactions.show(request, context: context)
  }

  /// Releases a charge, and shows the result.
  @Sendable
  func release(_ request: Request, context: APIContext) async throws -> Response {
    let effectiveFrom = try Query(request.uri)?.moment("effective_from")
    let administrator = try context.administrator(reason: try await request.reason())
    let (report, _) = try await transactions.find(request, context)
    try await transactions.ledger.ownership.transfer(
      report.charge.id, to: nil, effectiveFrom: effectiveFrom, by: administrator,
      terms: entitlements.terms, at: transactions.now())
    return try await transactions.show(request, context: context)
  }
}

extension APIContext {
  /// The administrator for the audit log, by the name of the API key.
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

  /// The required reason of a DELETE, from the query or the body, because some clients and proxies
  /// drop the body of a DELETE.
  package func reason() async throws -> String {
    if let reason = try Query(uri)?.text(.reason) { return reason }
    guard let body = try await jsonIfPresent(ReasonRequest.self) else {
      throw Problem.invalid(TextField.reason.name, "is missing")
    }
    return try TextField.reason.checked(body.reason)
  }
}
