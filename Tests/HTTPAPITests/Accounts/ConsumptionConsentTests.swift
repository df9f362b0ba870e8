import AppStore
import AppStoreSimulator
import HTTPTypes
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

/// Whether customers consent to consumption reports.
struct ConsumptionConsentTests {
  private static let path = "/v1/accounts/4711/consumption-consent"

  @Test func `what a customer says holds until the customer says otherwise`() async throws {
    try await TestAPI.run { api in
      #expect(try await api.get(Self.path).code == "unknown_account")
      #expect(try await api.call(.delete, Self.path).code == "unknown_account")
      _ = try await api.call(.put, "/v1/accounts/4711")
      let silent = try await api.get(Self.path)
      #expect(silent["consented"] == false)
      #expect(silent["decided_at"] == .null)

      let given = try await api.call(.put, Self.path, ["consented": true])
      #expect(given.status == 200)
      #expect(given["consented"] == true)
      #expect(given["decided_at"] == "2026-01-01T00:00:00.000Z")
      api.apple.simulation.advance(by: .days(1))
      #expect(try await api.call(.put, Self.path, ["consented": true]).body == given.body)
      #expect(try await api.get(Self.path).body == given.body)

      let withdrawn = try await api.call(.put, Self.path, ["consented": false])
      #expect(withdrawn["consented"] == false)
      #expect(withdrawn["decided_at"] == "2026-01-02T00:00:00.000Z")
      #expect(try await api.call(.delete, Self.path).body == silent.body)
      #expect(try await api.get(Self.path).body == silent.body)
    }
  }

  @Test func `something else than yes or no is refused`() async throws {
    try await TestAPI.run { api in
      for body: JSONValue in [[:], ["consented": "yes"], ["consented": .null]] {
        let answer = try await api.call(.put, Self.path, body)
        #expect(answer.status == 400)
        #expect(answer.field == "consented")
      }
      #expect(try await api.get(Self.path).code == "unknown_account")
    }
  }

  @Test func `it goes with the person, and a guest's yes is not the member's`() async throws {
    try await TestAPI.run { api in
      for account in ["4711", "4712"] {
        _ = try await api.call(
          .put, "/v1/accounts/\(account)/consumption-consent", ["consented": true])
      }
      _ = try await api.call(.put, "/v1/accounts/member")
      let merged = try await api.call(
        .post, "/v1/accounts/4712/merge", ["into": "member", "reason": "r"], as: .admin)
      #expect(merged.status == 200)
      let member = try await api.get("/v1/accounts/4712/consumption-consent")
      #expect(member["account_id"] == "member")
      #expect(member["consented"] == false)

      let erased = try await api.call(.delete, "/v1/accounts/4711?reason=r", as: .admin)
      let pseudonym = try #require(erased["account_id"]?.string)
      let path = "/v1/accounts/\(pseudonym)/consumption-consent"
      #expect(try await api.get(path)["consented"] == false)
      #expect(
        try await api.call(.put, path, ["consented": true]).code == "account_erased")
      #expect(try await api.count("consumption_consent") == 1)
    }
  }
}
