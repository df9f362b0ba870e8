import AppStore
import AppStoreSimulator
import HTTPTypes
import Hummingbird
import JSONText
import Testing

@testable import HTTPAPI

/// Permissions: every route with every kind of key.
struct AuthorizationTests {
  /// Nil: any caller.
  static let roles: [String: APIKeys.Role?] = [
    "GET /healthz": nil,
    "GET /readyz": nil,
    "GET /openapi.yaml": nil,
    "GET /metrics": .admin,
    "POST /v1/appstore/notifications": nil,
    "GET /v1/accounts/{account_id}/entitlements": .app,
    "POST /v1/entitlements/query": .app,
    "GET /v1/products": .app,
    "PUT /v1/products/{product_id}": .admin,
    "POST /v1/orders": .app,
    "GET /v1/orders/{order_id}": .app,
    "POST /v1/receipts": .app,
    "GET /v1/receipts/{submission_id}": .app,
    "PUT /v1/accounts/{account_id}": .app,
    "GET /v1/accounts/{account_id}": .app,
    "GET /v1/accounts/{account_id}/transactions": .app,
    "PUT /v1/accounts/{account_id}/consumption-consent": .app,
    "GET /v1/accounts/{account_id}/consumption-consent": .app,
    "DELETE /v1/accounts/{account_id}/consumption-consent": .app,
    "GET /v1/transactions/{transaction_id}": .app,
    "POST /v1/transactions/{transaction_id}/delivery": .app,
    "GET /v1/original-transactions/{original_transaction_id}": .app,
    "GET /v1/ownership-preview": .app,
    "GET /v1/events": .app,
    "POST /v1/transactions/{transaction_id}/owner": .support,
    "DELETE /v1/transactions/{transaction_id}/owner": .support,
    "POST /v1/accounts/{account_id}/merge": .admin,
    "POST /v1/grants": .support,
    "DELETE /v1/grants/{grant_id}": .support,
    "DELETE /v1/accounts/{account_id}": .admin,
    "GET /v1/accounts/{account_id}/export": .admin,
    "GET /v1/administrator-actions": .admin,
    "GET /v1/checkpoints": .admin,
    "GET /v1/transactions/{transaction_id}/evidence": .admin,
    "POST /v1/events/{event_id}/redelivery": .admin,
    "GET /v1/reports": .admin,
    "GET /v1/reports/{name}": .admin,
    "POST /v1/what-if": .admin,
  ]

  @Test func `every route admits the roles that it should, and no others`() async throws {
    try await TestAPI.run { api in
      let routes = api.api.routes().routes
      #expect(
        Set(routes.map { "\($0.method.rawValue) \($0.path.description)" }) == Set(Self.roles.keys))
      for route in routes {
        let name = "\(route.method.rawValue) \(route.path.description)"
        guard let needed = Self.roles[name] else { continue }
        // The id is one that no route takes amiss for its form alone.
        let path = route.path.description.replacing(
          /\{[a-z_]+\}/, with: "00000000-0000-0000-0000-000000000000")
        for caller in TestAPI.Caller.allCases {
          let answer = try await api.call(
            route.method, path, route.method == .get ? nil : [:], as: caller)
          switch (needed, caller) {
          case (nil, _):
            // No key is looked at; an empty object is no notification.
            #expect(answer.status == (route.method == .get ? 200 : 400), "\(name) as \(caller)")
          case (_, .anonymous), (_, .stranger):
            #expect(answer.status == 401, "\(name) as \(caller)")
            #expect(answer.code == "unauthorized")
            #expect(answer.headers[.wwwAuthenticate] == "Bearer")
          case (.admin, .app), (.admin, .support), (.support, .app):
            #expect(answer.status == 403, "\(name) as \(caller)")
            #expect(answer.code == "forbidden")
          case (.app, _), (.support, _), (.admin, .admin):
            #expect(![401, 403].contains(answer.status), "\(name) as \(caller): \(answer)")
          }
        }
      }
    }
  }
}
