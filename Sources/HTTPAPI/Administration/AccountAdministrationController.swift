import Foundation
import HTTPTypes
import Hummingbird
import JSONText
import LedgerStorage
import Subscriptions

struct MergeController: Sendable {
  let ledger: Ledger
  let entitlements: EntitlementReader
  let now: @Sendable () -> Timestamp

  private struct MergeRequest: Decodable {
    var into: String
    var reason: String
  }

  /// Merges an account into another; 202 while a worker still has charges to move.
  @Sendable
  func merge(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let body = try await request.json(MergeRequest.self)
    let into = try TextField.into.checked(body.into)
    let administrator = try context.administrator(
      reason: try TextField.reason.checked(body.reason))
    let merger = try await ledger.accounts.merge(
      id, into: into, by: administrator, terms: entitlements.terms, at: now())
    return Response(merger, status: merger.completedAt == nil ? .accepted : .ok)
  }
}

extension TextField {
  /// The account that remains after a merge.
  package static let into = TextField(name: "into", maximumLength: 255)
}

struct ErasureController: Sendable {
  let ledger: Ledger
  let now: @Sendable () -> Timestamp

  @Sendable
  func erase(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.parameter(.accountID)
    let administrator = try context.administrator(reason: try await request.reason())
    return Response(try await ledger.accounts.erase(id, by: administrator, at: now()))
  }
}

extension Erasure: JSONWritable {
  func write(to json: inout JSONWriter) {
    json.object { json in
      json.member("account_id", pseudonym)
      json.member("erased_at", erasedAt)
      json.member("removed", removed)
    }
  }
}

/// Grants and revokes entitlements.
struct GrantController: Sendable {
  let ledger: Ledger
  let entitlements: EntitlementReader
  let now: @Sendable () -> Timestamp

  private struct GrantRequest: Decodable {
    var accountID: String
    var entitlement: String
    var expiresAt: String?
    var reason: String
    /// Chosen by the client so that it can repeat the request.
    var grantID: String?

    enum CodingKeys: String, CodingKey {
      case grantID = "grant_id"
      case accountID = "account_id"
      case entitlement
      case expiresAt = "expires_at"
      case reason
    }
  }

  @Sendable
  func grant(_ request: Request, context: APIContext) async throws -> Response {
    let body = try await request.json(GrantRequest.self)
    let accountID = try TextField.accountID.checked(body.accountID)
    let entitlement = try TextField.entitlement.checked(body.entitlement)
    let administrator = try context.administrator(
      reason: try TextField.reason.checked(body.reason))
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

  @Sendable
  func revoke(_ request: Request, context: APIContext) async throws -> Response {
    let id = try context.uuidParameter("grant_id")
    let administrator = try context.administrator(reason: try await request.reason())
    return Response(
      try await ledger.grants.revokeGrant(
        id, by: administrator, terms: entitlements.terms, at: now()))
  }
}

extension TextField {
  fileprivate static let entitlement = TextField(name: "entitlement", maximumLength: 255)
}

extension StoredGrant: JSONWritable {
  func write(to json: inout JSONWriter) {
    json.object { json in
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
}
