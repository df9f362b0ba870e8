import AppStore
import AppStoreSimulator
import HTTPTypes
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

/// Invalid requests, and the field each error names.
struct ValidationTests {
  struct Case: Sendable, CustomTestStringConvertible {
    var method: HTTPRequest.Method
    var path: String
    var body: String?
    /// Nil: the body as a whole.
    var field: String?

    init(_ method: HTTPRequest.Method, _ path: String, _ body: String?, _ field: String?) {
      self.method = method
      self.path = path
      self.body = body
      self.field = field
    }

    var testDescription: String { "\(method) \(path.prefix(60)) \((body ?? "").prefix(80))" }
  }

  static let long = String(repeating: "a", count: 256)
  static let many = "[" + Array(repeating: "\"a\"", count: 1001).joined(separator: ",") + "]"
  static let longJWS = String(repeating: "a", count: 262_145)
  static let manyLongJWS =
    "[" + Array(repeating: "\"\(longJWS.dropFirst())\"", count: 65).joined(separator: ",") + "]"
  static let anonymous = "00000000-0000-0000-0000-000000000000"

  // swift-format-ignore
  static let cases: [Case] = [
    // Bodies.
    Case(.post, "/v1/orders", "",                                                   nil),
    Case(.post, "/v1/orders", "{",                                                  nil),
    Case(.post, "/v1/orders", "[]",                                                 nil),
    Case(.post, "/v1/orders", "null",                                               nil),
    Case(.post, "/v1/orders", "\"account_id\"",                                     nil),
    // Account ids.
    Case(.post, "/v1/orders", #"{"product_id":"p"}"#,                               "account_id"),
    Case(.post, "/v1/orders", #"{"account_id":null,"product_id":"p"}"#,             "account_id"),
    Case(.post, "/v1/orders", #"{"account_id":4711,"product_id":"p"}"#,             "account_id"),
    Case(.post, "/v1/orders", #"{"account_id":"","product_id":"p"}"#,               "account_id"),
    Case(.post, "/v1/orders", #"{"account_id":"a\u0000","product_id":"p"}"#,        "account_id"),
    Case(.post, "/v1/orders", #"{"account_id":"a\u0085","product_id":"p"}"#,        "account_id"),
    Case(.post, "/v1/orders", #"{"account_id":"\#(long)","product_id":"p"}"#,       "account_id"),
    Case(.get,  "/v1/accounts/\(long)/entitlements", nil,                           "account_id"),
    Case(.get,  "/v1/accounts/a%00/entitlements", nil,                              "account_id"),
    Case(.get,  "/v1/accounts/a%C3/entitlements", nil,                              "account_id"),
    Case(.put,  "/v1/accounts/a%0A", nil,                                           "account_id"),
    Case(.get,  "/v1/accounts/\(long)/transactions", nil,                           "account_id"),
    // Orders.
    Case(.post, "/v1/orders", #"{"account_id":"a"}"#,                               "product_id"),
    Case(.post, "/v1/orders", #"{"account_id":"a","product_id":""}"#,               "product_id"),
    Case(.get,  "/v1/orders/17", nil,                                               "order_id"),
    // Entitlements.
    Case(.get,  "/v1/accounts/a/entitlements?at=yesterday", nil,                    "at"),
    Case(.get,  "/v1/accounts/a/entitlements?at=2026-11-21", nil,                   "at"),
    Case(.get,  "/v1/accounts/a/entitlements?at=2026-02-29T00:00:00Z", nil,         "at"),
    Case(.get,  "/v1/accounts/a/entitlements?at=0000-01-01T00:00:00%2B01:00", nil,  "at"),
    Case(.get,  "/v1/accounts/a/entitlements?at=9999-12-31T23:59:59-01:00", nil,    "at"),
    Case(.get,  "/v1/accounts/a/entitlements?known_at=1", nil,                      "known_at"),
    Case(.get,  "/v1/accounts/a/entitlements?active=yes", nil,                      "active"),
    Case(.post, "/v1/entitlements/query", "{}",                                     "account_ids"),
    Case(.post, "/v1/entitlements/query", #"{"account_ids":"a"}"#,                  "account_ids"),
    Case(.post, "/v1/entitlements/query", #"{"account_ids":["a",1]}"#,              "account_ids[1]"),
    Case(.post, "/v1/entitlements/query", #"{"account_ids":[""]}"#,                 "account_ids"),
    Case(.post, "/v1/entitlements/query", #"{"account_ids":\#(many)}"#,             "account_ids"),
    Case(.post, "/v1/entitlements/query?at=yesterday", #"{"account_ids":["a"]}"#,   "at"),
    Case(.post, "/v1/entitlements/query?known_at=1", #"{"account_ids":["a"]}"#,     "known_at"),
    Case(.post, "/v1/entitlements/query?active=yes", #"{"account_ids":["a"]}"#,     "active"),
    Case(.post, "/v1/entitlements/query", #"{"account_ids":["a"],"at":"2026-11-21T09:30:00Z"}"#, "at"),
    Case(.post, "/v1/entitlements/query", #"{"account_ids":["a"],"known_at":null}"#, "known_at"),
    // Receipts.
    Case(.post, "/v1/receipts", #"{"receipt_data":"e30="}"#,                        "account_id"),
    Case(.post, "/v1/receipts", #"{"account_id":"a"}"#,                             "receipt_data"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":""}"#,           "receipt_data"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":"  "}"#,         "receipt_data"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":"a-b_"}"#,       "receipt_data"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":"aa=a"}"#,       "receipt_data"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":["aaaa"]}"#,     "receipt_data"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":"e30=","signed_transactions":["a"]}"#, "signed_transactions"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":"e30=","signed_transactions":[]}"#, "signed_transactions"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":"e30=","signed_renewal_info":["a"]}"#, "signed_renewal_info"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":null,"signed_transactions":null}"#, "receipt_data"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_renewal_info":["a"]}"#, "signed_renewal_info"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":[]}"#,    "signed_transactions"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":"a"}"#,   "signed_transactions"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":["a",7]}"#, "signed_transactions[1]"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":["a",""]}"#, "signed_transactions[1]"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":["a b"]}"#, "signed_transactions[0]"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":["a\u0000"]}"#, "signed_transactions[0]"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":["é"]}"#, "signed_transactions[0]"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":\#(many)}"#, "signed_transactions"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":["\#(longJWS)"]}"#, "signed_transactions[0]"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":\#(manyLongJWS)}"#, "signed_transactions"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":["a"],"signed_renewal_info":["a"," "]}"#, "signed_renewal_info[1]"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":["a"],"signed_renewal_info":\#(many)}"#, "signed_renewal_info"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","signed_transactions":["a"],"order_id":"17"}"#, "order_id"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":"e30=","order_id":"17"}"#, "order_id"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":"e30=","transaction_id":17}"#, "transaction_id"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":"e30=","transaction_id":""}"#, "transaction_id"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":"e30=","restore":"yes"}"#, "restore"),
    Case(.post, "/v1/receipts", #"{"account_id":"a","receipt_data":"e30=","bundle_id":""}"#, "bundle_id"),
    Case(.get,  "/v1/receipts/17", nil,                                             "submission_id"),
    // Products.
    Case(.put, "/v1/products/p", #"{"entitlements":[]}"#,                           "type"),
    Case(.put, "/v1/products/p", #"{"type":"subscription","entitlements":[]}"#,     "type"),
    Case(.put, "/v1/products/p", #"{"type":"consumable"}"#,                         "entitlements"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":["a","a"]}"#, "entitlements"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[""]}"#,     "entitlements"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[1]}"#,      "entitlements[0]"),
    Case(.put, "/v1/products/p", #"{"type":"non_renewing","entitlements":[]}"#,     "period"),
    Case(.put, "/v1/products/p", #"{"type":"non_renewing","entitlements":[],"period":"1 month"}"#, "period"),
    Case(.put, "/v1/products/p", #"{"type":"non_renewing","entitlements":[],"period":"PT1H"}"#, "period"),
    Case(.put, "/v1/products/p", #"{"type":"non_renewing","entitlements":[],"period":"P20000W"}"#, "period"),
    Case(.put, "/v1/products/p", #"{"type":"non_renewing","entitlements":[],"period":"P99999Y"}"#, "period"),
    Case(.put, "/v1/products/p", #"{"type":"non_renewing","entitlements":[],"period":"P99999Y12M"}"#, "period"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[],"price_milliunits":990}"#, "currency"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[],"currency":"EUR"}"#, "price_milliunits"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[],"price_milliunits":-1,"currency":"EUR"}"#, "price_milliunits"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[],"price_milliunits":1000000000001,"currency":"EUR"}"#, "price_milliunits"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[],"price_milliunits":990,"currency":"eur"}"#, "currency"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[],"level":0}"#, "level"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[],"level":1.5}"#, "level"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[],"level":1e30}"#, "level"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[null]}"#,   "entitlements[0]"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[],"display_name":""}"#, "display_name"),
    Case(.put, "/v1/products/p", #"{"type":"consumable","entitlements":[],"subscription_group":""}"#, "subscription_group"),
    Case(.get, "/v1/products?limit=0", nil,                                         "limit"),
    Case(.get, "/v1/products?limit=1001", nil,                                      "limit"),
    Case(.get, "/v1/products?limit=all", nil,                                       "limit"),
    Case(.get, "/v1/products?after=nothing", nil,                                   "after"),
    // Looking closer.
    Case(.get,  "/v1/transactions/1?environment=Sandbox", nil,                      "environment"),
    Case(.get,  "/v1/transactions/\(long)", nil,                                    "transaction_id"),
    Case(.post, "/v1/transactions/1/delivery", "{}",                                "account_id"),
    Case(.get,  "/v1/original-transactions/1?environment=xcode", nil,               "environment"),
    Case(.get,  "/v1/ownership-preview?account_id=a", nil,                          "original_transaction_id"),
    Case(.get,  "/v1/ownership-preview?original_transaction_id=1", nil,             "account_id"),
    Case(.get,  "/v1/ownership-preview", nil,                                       "account_id"),
    Case(.get,  "/v1/ownership-preview?account_id=&original_transaction_id=1", nil, "account_id"),
  ]

  @Test func `what is wrong is refused, and named`() async throws {
    try await TestAPI.run { api in
      for row in Self.cases {
        let answer = try await api.send(
          row.method, row.path, row.body.map { Array($0.utf8) }, as: .admin)
        #expect(answer.status == 400, "\(row.testDescription): \(answer)")
        #expect(answer.code == "invalid_request", "\(row.testDescription)")
        #expect(answer.field == row.field, "\(row.testDescription): \(answer)")
      }
    }
  }

  @Test func `every field that the document calls required is asked for`() async throws {
    try await TestAPI.run { api in
      let description = OpenAPIDescription.shared
      for (method, path, operation) in description.operations {
        guard let content = operation["requestBody"]?["content"]?["application/json"],
          let schema = content["schema"].map(description.resolved),
          // Apple's bodies are of two shapes, and distinguished by their members.
          operation["security"]?.array?.isEmpty != true,
          operation["requestBody"]?["required"] != .bool(false)
        else { continue }
        let kinds = schema["oneOf"]?.array?.map(description.resolved) ?? [schema]
        let requirements = try kinds.map {
          try #require($0["required"]?.array, "\(path)").compactMap(\.string)
        }
        for (example, field) in description.examples(of: content).flatMap({ example in
          requirements.filter { $0.allSatisfy { example[$0] != nil } }.joined().map {
            (example, $0)
          }
        }) {
          let body = JSONValue.object(
            example.members.filter { $0.key != field }
              .map { JSONValue.Member(key: $0.key, value: $0.value) })
          let answer = try await api.call(
            method, path.replacing(/\{[a-z_]+\}/, with: "1"), body, as: .admin)
          #expect(answer.status == 400, "\(path) without \(field): \(answer)")
          // The example's renewal infos need them.
          let named = field == "signed_transactions" ? "signed_renewal_info" : field
          #expect(answer.field == named, "\(path)")
        }
      }
    }
  }

  @Test func `unknown fields and parameters are ignored, and the longest ids are taken`()
    async throws
  {
    try await TestAPI.run { api in
      let longest = String(repeating: "é", count: 255)
      let encoded = String(repeating: "%C3%A9", count: 255)
      let account = try await api.call(
        .put, "/v1/accounts/\(encoded)?colour=red", ["colour": "red"])
      #expect(account["account_id"]?.string == longest)
      let slash = try await api.call(.put, "/v1/accounts/a%2Fb%20c")
      #expect(slash["account_id"]?.string == "a/b c")
    }
  }

  @Test func `a receipt with line breaks and spaces around it is what it was without`()
    async throws
  {
    try await TestAPI.run { api in
      try api.addCustomer("anna")
      try api.apple.simulation.buy("monthly", on: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      let (head, tail) = (receipt.prefix(9), receipt.dropFirst(9))
      for text in ["\(head)\r\n\(tail)\n", " \t\n\(head)\t\(tail) \n "] {
        let answer = try await api.submit("a", receipt: text)
        #expect(answer.status == 200, "\(answer)")
      }
      let spaced = try await api.submit("a", receipt: "\(head) \(tail)")
      #expect(spaced.status == 400)
      #expect(spaced.field == "receipt_data")
      #expect(spaced["detail"]?.string?.contains("`+`") == true)
    }
  }
}
