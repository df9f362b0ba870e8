import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import HTTPAPI

/// Administration through the API, and the audit log.
struct AdministrationTests {
  private func states(_ account: String, _ api: TestAPI, _ query: String = "") async throws
    -> [JSONValue]
  {
    let answer = try await api.get("/v1/accounts/\(account)/entitlements\(query)")
    return answer["entitlements"]?.array?.compactMap { $0["state"] } ?? []
  }

  /// A charge of account 4711 in a shop with one product, and another account 4712.
  private func withCharge(
    _ body: @escaping @Sendable (TestAPI, TransactionID) async throws -> Void
  ) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      _ = try await api.submit("4711", from: "anna")
      _ = try await api.call(.put, "/v1/accounts/4712")
      try await body(api, bought.transactionID)
    }
  }

  private func actions(_ api: TestAPI, _ query: String = "") async throws -> [JSONValue] {
    try await api.get("/v1/administrator-actions\(query)", as: .admin)["actions"]?.array ?? []
  }

  // MARK: Transfers

  @Test func `a charge is transferred, with administrator and reason`() async throws {
    try await withCharge { api, id in
      let path = "/v1/transactions/\(id)/owner"
      let body: JSONValue = ["account_id": "4712", "reason": "4711 bought it for 4712."]
      let answer = try await api.call(.post, path, body, as: .admin)
      #expect(answer.status == 200)
      #expect(answer["owner_account_id"] == "4712")
      #expect(answer["decision"]?["rule"] == "administrator")
      let kinds = answer["history"]?.array?.compactMap { $0["kind"]?.string } ?? []
      #expect(kinds.suffix(2) == ["placement", "placed"])
      #expect(answer["history"]?.array?.last?["source"]?["id"] == "ops")
      #expect(try await states("4711", api) == [])
      #expect(try await states("4712", api) == ["active"])
      // Once more is the same.
      #expect(try await api.call(.post, path, body, as: .admin).body == answer.body)

      let actions = try await actions(api)
      #expect(actions.count == 1)
      #expect(actions[0]["administrator"] == "ops")
      #expect(actions[0]["action"] == "transfer")
      #expect(actions[0]["account_id"] == "4712")
      #expect(actions[0]["previous_account_id"] == "4711")
      #expect(actions[0]["reason"] == "4711 bought it for 4712.")
      #expect(actions[0]["data"]?["transaction_id"]?.string == id.rawValue)
      for account in ["4711", "4712"] {
        #expect(try await self.actions(api, "?account_id=\(account)").count == 1)
      }
    }
  }

  @Test func `a charge is released by null, and not by silence`() async throws {
    try await withCharge { api, id in
      let path = "/v1/transactions/\(id)/owner"
      let silent = try await api.call(.post, path, ["reason": "r"], as: .admin)
      #expect(silent.status == 400)
      #expect(silent.field == "account_id")
      let released = try await api.call(
        .post, path, ["account_id": .null, "reason": "r"], as: .admin)
      #expect(released["owner_account_id"] == .null)
      #expect(released["decision"]?["rule"] == "unclaimed")
      #expect(try await states("4711", api) == [])
    }
  }

  @Test func `a charge is released by DELETE, with a reason, and is the next claimant's`()
    async throws
  {
    try await withCharge { api, id in
      let path = "/v1/transactions/\(id)/owner"
      #expect(try await api.call(.delete, path, as: .admin).field == "reason")
      #expect(try await api.call(.delete, path + "?reason=r", as: .app).status == 403)
      let released = try await api.call(.delete, path + "?reason=A+stranger.", as: .admin)
      #expect(released.status == 200)
      #expect(released["owner_account_id"] == .null)
      #expect(try await actions(api).map { $0["action"] } == ["release"])
      #expect(try await actions(api)[0]["previous_account_id"] == "4711")
      _ = try await api.submit("4712", from: "anna")
      #expect(try await states("4712", api) == ["active"])
      let unknown = try await api.call(
        .delete, "/v1/transactions/1/owner?reason=r", as: .admin)
      #expect(unknown.code == "unknown_transaction")
    }
  }

  // MARK: Merges

  @Test func `a guest is merged into a member, once`() async throws {
    try await withCharge { api, _ in
      let path = "/v1/accounts/4711/merge"
      let body: JSONValue = ["into": "4712", "reason": "Logged in."]
      #expect(try await api.call(.post, path, body, as: .app).status == 403)
      let merged = try await api.call(.post, path, body, as: .admin)
      #expect(merged.status == 200)
      #expect(merged["account_id"] == "4712")
      #expect(merged["merged_account_id"] == "4711")
      #expect(merged["status"] == "complete")
      #expect(merged["moved"]?["charges"] == 1)
      #expect(try await states("4711", api) == [])
      #expect(try await states("4712", api) == ["active"])
      // Late submissions by the guest's app belong to the member.
      _ = try await api.submit("4711", from: "anna")
      #expect(try await states("4711", api) == [])
      let again = try await api.call(.post, path, body, as: .admin)
      #expect(again.status == 200)
      #expect(again["merged_at"] == merged["merged_at"])
      #expect(again["moved"]?["charges"] == 0)
      #expect(try await actions(api).map { $0["action"] } == ["merge_account"])
    }
  }

  @Test func `accounts that can't be merged are reported`() async throws {
    try await withCharge { api, _ in
      let bad: [(String, JSONValue, Int, String, String?)] = [
        ("4711", ["into": "4712"], 400, "invalid_request", "reason"),
        ("4711", ["reason": "r"], 400, "invalid_request", "into"),
        ("4711", ["into": "4711", "reason": "r"], 400, "invalid_request", "into"),
        ("4711", ["into": "never seen", "reason": "r"], 404, "unknown_account", nil),
        ("never seen", ["into": "4711", "reason": "r"], 404, "unknown_account", nil),
      ]
      for (account, body, status, code, field) in bad {
        let path = "/v1/accounts/\(account.replacing(" ", with: "%20"))/merge"
        let answer = try await api.call(.post, path, body, as: .admin)
        #expect(answer.status == status, "\(body)")
        #expect(answer.code == code, "\(body)")
        #expect(answer.field == field, "\(body)")
      }
      let body: JSONValue = ["into": "4712", "reason": "r"]
      _ = try await api.call(.post, "/v1/accounts/4711/merge", body, as: .admin)
      let back: JSONValue = ["into": "4711", "reason": "r"]
      let circle = try await api.call(.post, "/v1/accounts/4712/merge", back, as: .admin)
      #expect(circle.status == 409)
      #expect(circle.code == "account_merged")
      let gift: JSONValue = ["account_id": "4711", "entitlement": "gold", "reason": "r"]
      #expect(
        try await api.call(.post, "/v1/grants", gift, as: .admin).code == "account_merged")
    }
  }

  @Test func `a grant that is asked for twice with one id is given once`() async throws {
    try await withCharge { api, _ in
      func body(_ entitlement: String) -> JSONValue {
        [
          "grant_id": "3C9B1A70-54A1-4F0E-8D0A-0A4B6B3C2D11", "account_id": "4712",
          "entitlement": .string(entitlement), "reason": "Sorry.",
        ]
      }
      let given = try await api.call(.post, "/v1/grants", body("gold"), as: .admin)
      #expect(given.status == 201)
      let again = try await api.call(.post, "/v1/grants", body("gold"), as: .admin)
      #expect(again.status == 200)
      #expect(again.body == given.body)
      let other = try await api.call(.post, "/v1/grants", body("silver"), as: .admin)
      #expect(other.status == 409)
      #expect(other.code == "grant_differs")
      #expect(try await actions(api).count == 1)
    }
  }

  @Test func `what a transfer needs is asked for`() async throws {
    try await withCharge { api, id in
      let path = "/v1/transactions/\(id)/owner"
      let bad: [(JSONValue, Int, String, String?)] = [
        (["account_id": "4712"], 400, "invalid_request", "reason"),
        (["account_id": "4712", "reason": ""], 400, "invalid_request", "reason"),
        (["account_id": "4712", "reason": 1], 400, "invalid_request", "reason"),
        (
          ["account_id": "4712", "reason": .string(String(repeating: "a", count: 1001))], 400,
          "invalid_request", "reason"
        ),
        (["account_id": "", "reason": "r"], 400, "invalid_request", "account_id"),
        (
          ["account_id": "4712", "reason": "r", "effective_from": "yesterday"], 400,
          "invalid_request", "effective_from"
        ),
        (["account_id": "never seen", "reason": "r"], 404, "unknown_account", nil),
      ]
      for (body, status, code, field) in bad {
        let answer = try await api.call(.post, path, body, as: .admin)
        #expect(answer.status == status, "\(body)")
        #expect(answer.code == code, "\(body)")
        #expect(answer.field == field, "\(body)")
      }
      let unknown = try await api.call(
        .post, "/v1/transactions/1/owner", ["account_id": "4712", "reason": "r"], as: .admin)
      #expect(unknown.status == 404)
      #expect(unknown.code == "unknown_transaction")
      #expect(try await actions(api) == [])
    }
  }

  @Test func `a transfer takes effect from when it is said to`() async throws {
    try await withCharge { api, id in
      api.apple.simulation.advance(by: .days(40))
      let renewal = try #require(
        try await api.submit("4711", from: "anna")["transactions"]?[0]["transaction_id"]?.string)
      let answer = try await api.call(
        .post, "/v1/transactions/\(id)/owner",
        ["account_id": "4712", "reason": "r", "effective_from": "2026-01-15T00:00:00Z"], as: .admin)
      #expect(answer.status == 200)
      let moved = try await api.get("/v1/transactions/\(renewal)")
      #expect(moved["owner_account_id"] == "4712")
      #expect(moved["decision"]?["rule"] == "actively_auto_renewing")
    }
  }

  // MARK: Grants

  @Test func `a grant is given, taken back, and known then as it was then`() async throws {
    try await withCharge { api, _ in
      let given = try await api.call(
        .post, "/v1/grants",
        [
          "account_id": "4712", "entitlement": "gold", "expires_at": "2026-03-01T00:00:00Z",
          "reason": "A present.",
        ], as: .admin)
      #expect(given.status == 201)
      #expect(given["expires_at"] == "2026-03-01T00:00:00.000Z")
      #expect(given["revoked_at"] == .null)
      let id = try #require(given["grant_id"]?.string)
      #expect(try await states("4712", api) == ["active"])
      let feed = try await api.get("/v1/events")
      #expect(feed["events"]?.array?.last?["type"] == "entitlement.granted")

      api.apple.simulation.advance(by: .days(2))
      let path = "/v1/grants/\(id)"
      let missing = try await api.call(.delete, path, as: .admin)
      #expect(missing.status == 400)
      #expect(missing.field == "reason")
      let ended = try await api.call(.delete, "\(path)?reason=a%20mistake", as: .admin)
      #expect(ended.status == 200)
      #expect(ended["revoked_at"] == "2026-01-03T00:00:00.000Z")
      #expect(try await states("4712", api) == ["revoked"])
      let again = try await api.call(.delete, "\(path)?reason=twice", as: .admin)
      #expect(again.body == ended.body)
      let shown = try await api.get("/v1/events")
      #expect(shown["events"]?.array?.last?["type"] == "entitlement.revoked")
      #expect(shown["events"]?.array?.last?["data"]?["entitlement"]?["source"] == "grant")

      // at, known at, states
      let cases: [(String, String, [JSONValue])] = [
        ("2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z", ["active"]),
        ("2026-02-01T00:00:00Z", "2026-01-02T00:00:00Z", ["active"]),
        ("2026-02-01T00:00:00Z", "2026-01-03T00:00:00Z", ["revoked"]),
        ("2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", ["active"]),
        ("2026-01-02T00:00:00Z", "2025-12-31T00:00:00Z", []),
      ]
      api.apple.simulation.advance(by: .days(2))
      for (at, knownAt, states) in cases {
        #expect(
          try await self.states("4712", api, "?at=\(at)&known_at=\(knownAt)") == states,
          "at \(at), known at \(knownAt)")
      }
      #expect(
        try await actions(api).compactMap { $0["action"]?.string } == ["revoke_grant", "grant"])
      #expect(try await actions(api)[0]["reason"] == "a mistake")
    }
  }

  @Test func `what was described later was not known before`() async throws {
    try await TestAPI.run { api in
      try api.addCustomer("anna")
      try api.apple.simulation.buy("monthly", on: DeviceID("anna"))
      _ = try await api.submit("4711", from: "anna")
      api.apple.simulation.advance(by: .days(1))
      try await api.describe("monthly", "premium")
      #expect(try await states("4711", api) == ["active"])
      let at = "?at=2026-01-01T12:00:00Z"
      #expect(try await states("4711", api, at) == ["active"])
      #expect(try await states("4711", api, at + "&known_at=2026-01-01T12:00:00Z") == [])
      #expect(try await states("4711", api, at + "&known_at=2026-01-02T00:00:00Z") == ["active"])
    }
  }

  @Test func `what a grant needs is asked for`() async throws {
    try await withCharge { api, _ in
      let bad: [(JSONValue, Int, String, String?)] = [
        (["account_id": "4712", "entitlement": "gold"], 400, "invalid_request", "reason"),
        (["account_id": "4712", "reason": "r"], 400, "invalid_request", "entitlement"),
        (["entitlement": "gold", "reason": "r"], 400, "invalid_request", "account_id"),
        (
          [
            "account_id": "4712", "entitlement": "gold", "reason": "r",
            "expires_at": "2026-01-01T00:00:00Z",
          ], 400, "invalid_request", "expires_at"
        ),
        (
          ["account_id": "never seen", "entitlement": "gold", "reason": "r"], 404,
          "unknown_account", nil
        ),
      ]
      for (body, status, code, field) in bad {
        let answer = try await api.call(.post, "/v1/grants", body, as: .admin)
        #expect(answer.status == status, "\(body)")
        #expect(answer.code == code, "\(body)")
        #expect(answer.field == field, "\(body)")
      }
      let unknown = try await api.call(
        .delete, "/v1/grants/00000000-0000-0000-0000-000000000000?reason=r", as: .admin)
      #expect(unknown.status == 404)
      #expect(unknown.code == "unknown_grant")
    }
  }

  // MARK: Erasures and exports

  @Test func `a person is erased, and the books are kept`() async throws {
    try await withCharge { api, id in
      let submission = try #require(
        try await api.submit("4711", from: "anna")["submission_id"]?.string)
      let missing = try await api.call(.delete, "/v1/accounts/4711", as: .admin)
      #expect(missing.status == 400)
      #expect(missing.field == "reason")
      let token = try #require(try await api.get("/v1/accounts/4711")["app_account_token"])
      let answer = try await api.call(
        .delete, "/v1/accounts/4711?reason=4711%20asked%20for%20it.", as: .admin)
      #expect(answer.status == 200)
      let pseudonym = try #require(answer["account_id"]?.string)
      #expect(pseudonym.hasPrefix("erased-"))
      #expect(answer["removed"]?["submissions"] == 2)
      #expect(answer["removed"]?["holdings"] == 1)

      #expect(try await api.get("/v1/accounts/4711").code == "unknown_account")
      #expect(try await states("4711", api) == [])
      let charge = try await api.get("/v1/transactions/\(id)")
      #expect(charge["owner_account_id"]?.string == pseudonym)
      #expect(!charge.names("4711"))
      let feed = try await api.get("/v1/events")
      #expect(!feed.names("4711"))
      let last = feed["events"]?.array?.last
      #expect(last?["type"] == "account.erased")
      #expect(last?["account_id"]?.string == pseudonym)
      #expect(last?["data"]?["app_account_token"] == token)
      let sent = try await api.get("/v1/receipts/\(submission)", as: .admin)
      #expect(sent["exchanges"] == [])
      let action = try await actions(api)[0]
      #expect(action["account_id"]?.string == pseudonym)
      #expect(action["reason"]?.string == "\(pseudonym) asked for it.")
      #expect(try await api.ledger.auditor.audit().differences == [])

      // The name is free, and the pseudonym can't be used.
      #expect(try await api.call(.put, "/v1/accounts/4711").status == 200)
      let refusals = [
        try await api.submit(pseudonym, from: "anna"),
        try await api.call(
          .post, "/v1/orders", ["account_id": .string(pseudonym), "product_id": "monthly"]),
        try await api.call(
          .post, "/v1/transactions/\(id)/owner",
          ["account_id": .string(pseudonym), "reason": "r"], as: .admin),
        try await api.call(
          .post, "/v1/grants",
          ["account_id": .string(pseudonym), "entitlement": "gold", "reason": "r"], as: .admin),
      ]
      for refusal in refusals {
        #expect(refusal.status == 409)
        #expect(refusal.code == "account_erased")
      }
      let again = try await api.call(
        .delete, "/v1/accounts/\(pseudonym)?reason=r", as: .admin)
      #expect(again.status == 200)
      #expect(again["removed"]?["submissions"] == 0)
      let unknown = try await api.call(.delete, "/v1/accounts/unknown?reason=r", as: .admin)
      #expect(unknown.status == 404)
      #expect(unknown.code == "unknown_account")
    }
  }

  @Test func `a submission that waits for Apple says that its account was erased`() async throws {
    try await withCharge { api, _ in
      api.apple.setDown(true)
      let pending = try await api.submit("4712", from: "anna")
      #expect(pending.status == 202)
      let path = "/v1/receipts/\(pending["submission_id"]?.string ?? "")"
      _ = try await api.call(.delete, "/v1/accounts/4712?reason=r", as: .admin)
      let answer = try await api.get(path)
      #expect(answer.status == 422)
      #expect(answer.code == "account_erased")
    }
  }

  @Test func `all that is known of an account is one document`() async throws {
    try await withCharge { api, id in
      let order = try await api.call(
        .post, "/v1/orders", ["account_id": "4711", "product_id": "monthly"])
      _ = try await api.call(
        .post, "/v1/grants", ["account_id": "4711", "entitlement": "gold", "reason": "A present."],
        as: .admin)
      _ = try await api.submit("4711", signed: ["a.b.c"])
      // Another account's actions are in its own document only; actions between the two do not name
      // the other.
      let claimed = try await api.get("/v1/accounts/4711/export", as: .admin)["lines"]?[0]["claims"]
      api.apple.simulation.advance(by: .seconds(5))
      _ = try await api.submit("4712", from: "anna")
      for owner in ["4712", "4711"] {
        let transfer = try await api.call(
          .post, "/v1/transactions/\(id)/owner",
          ["account_id": .string(owner), "reason": "4711 and 4712 are one household."],
          as: .admin)
        #expect(transfer.status == 200)
      }

      let answer = try await api.get(
        "/v1/accounts/4711/export?reason=asked", as: .admin)
      #expect(answer.status == 200)
      #expect(answer["account"]?["account_id"] == "4711")
      #expect(answer["account"]?["erased_at"] == .null)
      #expect(answer["entitlements"]?.array?.count == 2)
      #expect(answer["grants"]?[0]["reason"] == "A present.")
      #expect(answer["orders"]?[0]["order_id"] == order["order_id"])
      let line = answer["lines"]?[0]
      #expect(line?["transactions"]?[0]["transaction_id"]?.string == id.rawValue)
      #expect(line?["claims"]?.array?.count == 1)
      #expect(line?["claims"] == claimed)
      let other = try await api.get("/v1/accounts/4712/export", as: .admin)
      #expect(other["lines"]?[0]["claims"]?.array?.count == 1)
      #expect(other["lines"]?[0]["claims"] != claimed)
      let submissions = answer["submissions"]?.array ?? []
      #expect(submissions.count == 2)
      // Of one moment, in whichever order.
      let receipt = submissions.first { $0["receipt_data"] != nil }
      #expect(receipt?["receipt_data"]?.string?.isEmpty == false)
      #expect(receipt?["exchanges"]?.array?.isEmpty == false)
      let signed = submissions.first { $0["signed_transactions"] != nil }
      #expect(signed?["status"] == "rejected")
      #expect(signed?["signed_transactions"] == ["a.b.c"])
      #expect(answer["events"]?.array?.isEmpty == false)
      #expect(answer["administrator_actions"]?.array?.count == 5)
      let transfers = (answer["administrator_actions"]?.array ?? []).filter {
        $0["action"] == "transfer"
      }
      #expect(transfers.map { $0["account_id"] } == ["4711", "another_account"])
      #expect(transfers.map { $0["previous_account_id"] } == ["another_account", "4711"])
      #expect(transfers.first?["reason"] == "4711 and another_account are one household.")
      #expect(answer.names("4711"))
      #expect(!answer.names("4712"))
      let actions = try await actions(api)
      #expect(actions[1]["action"] == "export_account")
      #expect(actions[1]["reason"] == "asked")

      let unknown = try await api.get("/v1/accounts/unknown/export", as: .admin)
      #expect(unknown.code == "unknown_account")
    }
  }

  // MARK: The record

  @Test func `actions come by pages, the last one first`() async throws {
    try await withCharge { api, _ in
      for number in 1...5 {
        _ = try await api.call(
          .post, "/v1/grants",
          ["account_id": "4712", "entitlement": .string("e\(number)"), "reason": "r"], as: .admin)
      }
      var (path, found): (String, [String]) = ("/v1/administrator-actions?limit=2", [])
      for _ in 0..<5 {
        let page = try await api.get(path, as: .admin)
        found += page["actions"]?.array?.compactMap { $0["data"]?["entitlement"]?.string } ?? []
        guard let next = page["next"]?.string else { break }
        path = "/v1/administrator-actions?limit=2&after=\(next)"
      }
      #expect(found == ["e5", "e4", "e3", "e2", "e1"])
      let bad = try await api.get("/v1/administrator-actions?after=x", as: .admin)
      #expect(bad.field == "after")
      let unknown = try await api.get("/v1/administrator-actions?account_id=unknown", as: .admin)
      #expect(unknown.code == "unknown_account")
    }
  }

  @Test func `a redelivery is recorded`() async throws {
    try await withCharge { api, _ in
      _ = try await api.ledger.webhooks.pushEvents(at: Timestamp(milliseconds: 0))
      let feed = try await api.get("/v1/events?limit=1")
      let id = try #require(feed["events"]?[0]["id"]?.string)
      let answer = try await api.call(.post, "/v1/events/\(id)/redelivery", as: .admin)
      #expect(answer.status == 202)
      let action = try await actions(api)[0]
      #expect(action["action"] == "redeliver_event")
      #expect(action["subject"]?.string == id)
      #expect(action["administrator"] == "ops")
      #expect(action["reason"] == .null)
    }
  }
}

extension Answer {
  /// Whether an account is named, as a value or in a sentence.
  fileprivate func names(_ account: String) -> Bool {
    text.contains("\"\(account)\"") || text.contains("“\(account)”")
  }
}
