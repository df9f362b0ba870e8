import HTTPTypes
import Hummingbird
import HummingbirdCore
import JSONText
import LedgerStorage
import Subscriptions

struct EntitlementController: Controller {
  /// Few enough for one statement that does not slow down others.
  static let maximumAccounts = 1000

  let api: API

  func show(_ request: Request, context: APIContext) async throws -> Response {
    if let failure = api.failedReads.take(from: context.channel) { throw failure }
    let accountID = try context.parameter(.accountID)
    let (asOf, found) = try await read([accountID], request)
    return Response { json in
      AccountEntitlements.writeSubject(accountID, asOf: asOf, to: &json)
      json.member(AccountEntitlements.list, found[0])
    }
  }

  private func read(_ accountIDs: [String], _ request: Request) async throws
    -> (asOf: Timestamp, entitlements: [[Entitlement]])
  {
    let (now, query) = (now(), request.query)
    let (at, knownAt) = (try query.moment("at"), try query.moment("known_at"))
    let onlyActive = try query.flag("active") ?? false
    let found =
      at == nil && knownAt == nil
      ? try await entitlements.entitlements(of: accountIDs, now: now, mayLag: request.mayLag)
      : try await entitlements.entitlements(of: accountIDs, at: at ?? now, knownAt: knownAt)
    return (at ?? now, onlyActive ? found.map { $0.filter(\.isActive) } : found)
  }

  func query(_ request: Request, context: APIContext) async throws -> Response {
    let body = try await request.json(upTo: BodyLimit.batch)
    // Ignored like unknown members, they would make the answer be about another time.
    for name in ["at", "known_at"] where body[name] != nil {
      throw Problem.invalid(name, "must be in the query, such as ?\(name)=2026-11-21T09:30:00Z")
    }
    let field = TextField.accountIDs
    let accountIDs = try body.required(field.name, body.texts(field.name))
    guard accountIDs.count <= Self.maximumAccounts else {
      throw Problem.invalid(field.name, "must have at most \(Self.maximumAccounts) elements")
    }
    for accountID in accountIDs { _ = try field.checked(accountID) }
    let (asOf, found) = try await read(accountIDs, request)
    let accounts = zip(accountIDs, found)
    return Response(capacity: 64 + accountIDs.count * 400) { json in
      json.member("as_of", asOf)
      json.objects("accounts", accounts) { json, account in
        json.member("account_id", account.0)
        json.member("entitlements", account.1)
      }
    }
  }
}

/// The response with an account's entitlements, which the fast path writes, too.
enum AccountEntitlements {
  static let list = "entitlements"

  static func writeSubject(_ accountID: String, asOf: Timestamp, to json: inout JSONWriter) {
    json.member("account_id", accountID)
    json.member("as_of", asOf)
  }
}

enum CacheControl {
  /// Whether a value has `no-cache` (RFC 9111, section 5.2.1.4).
  static func asksForCurrent(_ value: String) -> Bool {
    value.isASCII
      && value.lowercased().split(separator: ",").contains {
        $0.trimmingPrefix(while: \.isWhitespace).hasPrefix("no-cache")
      }
  }
}

extension Request {
  /// Whether a replica may answer, which may lag behind the primary.
  var mayLag: Bool { !headers[values: .cacheControl].contains(where: CacheControl.asksForCurrent) }
}
