import Foundation
import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSONText
package import LedgerStorage
import Subscriptions

struct AdministrationController: Controller {
  let api: API

  // MARK: Owners

  /// Assigns a charge to an account, or releases it, and shows the result.
  func transfer(_ request: Request, context: APIContext) async throws -> Response {
    let body = try await request.json()
    // Releasing a charge needs an explicit null.
    let accountID = body[TextField.accountID.name] == .null ? nil : try body.required(.accountID)
    return try await transfer(
      request, context, to: accountID, try body.moment("effective_from"),
      try context.administrator(reason: try body.required(.reason)))
  }

  func release(_ request: Request, context: APIContext) async throws -> Response {
    try await transfer(
      request, context, to: nil, try request.query.moment("effective_from"),
      try context.administrator(reason: try request.reason()))
  }

  private func transfer(
    _ request: Request, _ context: APIContext, to accountID: String?,
    _ effectiveFrom: Timestamp?, _ administrator: Administrator
  ) async throws -> Response {
    let transactions = TransactionController(api: api)
    let (report, _) = try await transactions.find(request, context)
    try await ledger.ownership.transfer(
      report.charge.id, to: accountID, effectiveFrom: effectiveFrom, by: administrator,
      terms: terms, at: now())
    return try await transactions.show(request, context: context)
  }

  // MARK: Accounts

  /// Merges an account into another; 202 while a worker still has charges to move.
  func merge(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let body = try await request.json()
    let merger = try await ledger.accounts.merge(
      id, into: try body.required(.into),
      by: try context.administrator(reason: try body.required(.reason)), terms: terms, at: now())
    return Response(merger, status: merger.completedAt == nil ? .accepted : .ok)
  }

  func erase(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let administrator = try context.administrator(reason: try request.reason())
    return Response(try await ledger.accounts.erase(id, by: administrator, at: now()))
  }

  func export(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let administrator = try context.administrator(reason: try request.query.text(.reason))
    return try await AccountExport(
      of: try await ledger.account(id), by: administrator, from: ledger, terms: terms, at: now()
    ).response
  }

  // MARK: Grants

  func grant(_ request: Request, context: APIContext) async throws -> Response {
    let body = try await request.json()
    let (accountID, entitlement) = (try body.required(.accountID), try body.required(.entitlement))
    let administrator = try context.administrator(reason: try body.required(.reason))
    // Chosen by the client so that it can repeat the request.
    let id = try body.uuid("grant_id")
    let (now, endsAt) = (now(), try body.moment("expires_at"))
    // A request may be repeated after the grant's end.
    var isKnown = false
    if let id { isKnown = try await ledger.grants.storedGrant(id) != nil }
    guard isKnown || (endsAt.map { now < $0 } ?? true) else {
      throw Problem.invalid("expires_at", "must be in the future")
    }
    let (grant, isNew) = try await ledger.grants.grant(
      as: id ?? UUID(), entitlement, to: accountID, until: endsAt, by: administrator,
      terms: terms, at: now)
    return Response(grant, status: isNew ? .created : .ok)
  }

  func revoke(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.uuidParameter("grant_id")
    let administrator = try context.administrator(reason: try request.reason())
    return Response(
      try await ledger.grants.revokeGrant(id, by: administrator, terms: terms, at: now()))
  }

  // MARK: Audit log

  func actions(_ request: Request, context: APIContext) async throws -> Response {
    let page = try Page(request.query)
    let last = try page.cursor { text in Int64(text).flatMap { $0 > 0 ? $0 : nil } }
    var account: Account?
    if let id = try request.query.text(.accountID) { account = try await ledger.account(id) }
    // One more than is shown reveals whether there is a next page.
    let found = try await ledger.administration.administratorActions(
      on: account?.key, before: last, limit: page.limit + 1)
    let actions = Array(found.prefix(page.limit))
    return Response(capacity: 64 + actions.count * 400) { json in
      json.member("actions", actions)
      json.member("next", actions.count < found.count ? actions.last.map { "\($0.id)" } : nil)
    }
  }

  // MARK: Proof

  func checkpoints(_ request: Request, context: APIContext) async throws -> Response {
    let page = try Page(request.query)
    let last = try page.cursor { text in Int(text).flatMap { $0 > 0 ? $0 : nil } }
    let found = try await ledger.auditor.checkpoints(before: last ?? .max, limit: page.limit + 1)
    let checkpoints = Array(found.prefix(page.limit))
    return Response(capacity: 64 + checkpoints.count * 400) { json in
      json.member("checkpoints", checkpoints)
      json.member(
        "next", checkpoints.count < found.count ? checkpoints.last.map { "\($0.number)" } : nil)
    }
  }

  /// Shows the hashed entries of a charge's original transaction, with `proof=1` as a proof.
  func evidence(_ request: Request, context: APIContext) async throws -> Response {
    let (report, _) = try await TransactionController(api: api).find(request, context)
    let proof = request.query.text("proof")
    guard proof == nil || proof == "1" else { throw Problem.invalid("proof", "must be 1") }
    return Response(
      try await ledger.auditor.proof(of: report.charge.id.line, isProven: proof != nil))
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
  package static let entitlement = TextField(name: "entitlement", maximumLength: 255)
}

extension Request {
  /// The required reason of a DELETE, in the query, because some proxies drop its body.
  fileprivate func reason() throws -> String {
    guard let reason = try query.text(.reason) else {
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
