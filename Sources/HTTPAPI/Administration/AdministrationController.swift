import Foundation
import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSONText
package import LedgerStorage
import NIOCore
import Subscriptions

/// Administrators' changes and the audit log of them.
struct AdministrationController: Sendable {
  let ledger: Ledger
  let transactions: TransactionController
  let entitlements: EntitlementReader
  let now: @Sendable () -> Timestamp

  // MARK: Owners

  private struct TransferRequest: Decodable {
    /// Nil to release the charge.
    var accountID: String?
    var reason: String
    var effectiveFrom: String?

    private enum CodingKeys: String, CodingKey {
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
  func transfer(_ request: Request, context: APIContext) async throws -> Response {
    let body = try await request.json(TransferRequest.self)
    let accountID = try body.accountID.map(TextField.accountID.checked)
    let effectiveFrom = try body.effectiveFrom.map {
      try Timestamp(parsing: $0, field: "effective_from")
    }
    let administrator = try context.administrator(reason: try TextField.reason.checked(body.reason))
    return try await transfer(request, context, to: accountID, effectiveFrom, administrator)
  }

  /// Releases a charge, and shows the result.
  func release(_ request: Request, context: APIContext) async throws -> Response {
    let effectiveFrom = try Query(request.uri)?.moment("effective_from")
    let administrator = try context.administrator(reason: try request.reason())
    return try await transfer(request, context, to: nil, effectiveFrom, administrator)
  }

  private func transfer(
    _ request: Request, _ context: APIContext, to accountID: String?,
    _ effectiveFrom: Timestamp?, _ administrator: Administrator
  ) async throws -> Response {
    let (report, _) = try await transactions.find(request, context)
    try await ledger.ownership.transfer(
      report.charge.id, to: accountID, effectiveFrom: effectiveFrom, by: administrator,
      terms: entitlements.terms, at: now())
    return try await transactions.show(request, context: context)
  }

  // MARK: Accounts

  private struct MergeRequest: Decodable {
    var into: String
    var reason: String
  }

  /// Merges an account into another; 202 while a worker still has charges to move.
  func merge(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let body = try await request.json(MergeRequest.self)
    let into = try TextField.into.checked(body.into)
    let administrator = try context.administrator(reason: try TextField.reason.checked(body.reason))
    let merger = try await ledger.accounts.merge(
      id, into: into, by: administrator, terms: entitlements.terms, at: now())
    return Response(merger, status: merger.completedAt == nil ? .accepted : .ok)
  }

  func erase(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let administrator = try context.administrator(reason: try request.reason())
    return Response(try await ledger.accounts.erase(id, by: administrator, at: now()))
  }

  // MARK: Grants

  private struct GrantRequest: Decodable {
    var accountID: String
    var entitlement: String
    var expiresAt: String?
    var reason: String
    /// Chosen by the client so that it can repeat the request.
    var grantID: String?

    private enum CodingKeys: String, CodingKey {
      case accountID = "account_id"
      case entitlement
      case expiresAt = "expires_at"
      case reason
      case grantID = "grant_id"
    }
  }

  func grant(_ request: Request, context: APIContext) async throws -> Response {
    let body = try await request.json(GrantRequest.self)
    let accountID = try TextField.accountID.checked(body.accountID)
    let entitlement = try TextField.entitlement.checked(body.entitlement)
    let administrator = try context.administrator(reason: try TextField.reason.checked(body.reason))
    let id = try body.grantID.map { try UUID(parsing: $0, field: "grant_id") }
    let now = now()
    let endsAt = try body.expiresAt.map { try Timestamp(parsing: $0, field: "expires_at") }
    // A request may be repeated after the grant's end.
    var isKnown = false
    if let id { isKnown = try await ledger.grants.storedGrant(id) != nil }
    guard isKnown || (endsAt.map { now < $0 } ?? true) else {
      throw Problem.invalid("expires_at", "must be in the future")
    }
    let (grant, isNew) = try await ledger.grants.grant(
      as: id ?? UUID(), entitlement, to: accountID, until: endsAt, by: administrator,
      terms: entitlements.terms, at: now)
    return Response(grant, status: isNew ? .created : .ok)
  }

  func revoke(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.uuidParameter("grant_id")
    let administrator = try context.administrator(reason: try request.reason())
    return Response(
      try await ledger.grants.revokeGrant(
        id, by: administrator, terms: entitlements.terms, at: now()))
  }

  // MARK: Audit log

  func actions(_ request: Request, context: APIContext) async throws -> Response {
    let page = try Page(request.uri)
    let last = try page.after.map { text in
      guard let id = Int64(text), id > 0 else { throw Page.malformedCursor }
      return id
    }
    var account: Account?
    if let id = try Query(request.uri)?.text(.accountID) {
      account = try await ledger.accounts.account(id)
      guard account != nil else {
        throw Problem(.unknownAccount, "No account has this ID.")
      }
    }
    // One more than is shown reveals whether there is a next page.
    let found = try await ledger.administration.administratorActions(
      on: account?.key, before: last, limit: page.limit + 1)
    let actions = Array(found.prefix(page.limit))
    return Response(capacity: 64 + actions.count * 400) { json in
      json.member("acts", actions)
      json.member("next", actions.count < found.count ? actions.last.map { "\($0.id)" } : nil)
    }
  }
}

extension APIContext {
  /// The administrator for the audit log, by the name of the API key.
  package func administrator(reason: String? = nil) throws -> Administrator {
    guard let caller else { throw Problem.unauthorized(hasKey: false) }
    return Administrator(name: caller.name, reason: reason)
  }
}

extension TextField {
  /// A few sentences, in one paragraph.
  package static let reason = TextField(
    name: "reason", maximumLength: Administrator.maximumReasonLength)
  /// The account that remains after a merge.
  package static let into = TextField(name: "into", maximumLength: 255)
  fileprivate static let entitlement = TextField(name: "entitlement", maximumLength: 255)
}

extension Request {
  /// The required reason of a DELETE, in the query, because some proxies drop its body.
  fileprivate func reason() throws -> String {
    guard let reason = try Query(uri)?.text(.reason) else {
      throw Problem.invalid(TextField.reason.name, "is missing in the query")
    }
    return reason
  }
}

extension Erasure: JSONObjectWritable {
  func writeMembers(to json: inout JSONWriter) {
    json.member("account_id", pseudonym)
    json.member("erased_at", erasedAt)
    json.member("removed", removed)
  }
}

extension StoredGrant: JSONObjectWritable {
  func writeMembers(to json: inout JSONWriter) {
    json.member("grant_id", grant.id)
    json.member("account_id", accountID)
    json.member("entitlement", grant.entitlement)
    json.member("source", grant.source)
    json.member("starts_at", grant.startsAt)
    json.member("expires_at", grant.endsAt)
    json.member("revoked_at", grant.revokedAt)
    json.member("recorded_at", recordedAt)
    json.member("reason", reason)
  }
}

extension AdministratorAction: JSONObjectWritable {
  func writeMembers(to json: inout JSONWriter) {
    json.member("id", String(id))
    json.member("acted_at", actedAt)
    json.member("administrator", administrator)
    json.member("action", action)
    json.member("subject", subject)
    json.member("account_id", accountID)
    json.member("previous_account_id", previousAccountID)
    json.member("reason", reason)
    json.key("data")
    json.write(json: data)
  }
}
