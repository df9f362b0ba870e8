import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import JSONText
import Subscriptions
import Testing

@testable import HTTPAPI

struct EntitlementTests {
  @Test func `an account's entitlements, to the byte`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      _ = try await api.submit("4711", from: "anna")
      let answer = try await api.get("/v1/accounts/4711/entitlements")
      #expect(
        answer.text
          == #"{"account_id":"4711","as_of":"2026-01-01T00:00:00.000Z","entitlements":["#
          + #"{"entitlement":"premium","active":true,"state":"active","product_id":"monthly","#
          + #""expires_at":"2026-02-01T00:00:00.000Z","access_ends_at":"2026-02-01T00:00:00.000Z","#
          + #""ended_at":null,"ended_because":null,"#
          + #""will_renew":true,"period_type":"normal","environment":"production","#
          + #""original_transaction_id":"\#(bought.originalTransactionID)","#
          + #""transaction_id":"\#(bought.transactionID)","source":"app_store"}]}"#)
    }
  }

  /// PostgreSQL distinguishes two spellings of one character, Swift's `String` does not.
  @Test func `accounts that look alike hold nothing of each other`() async throws {
    let (composed, decomposed) = ("jos\u{E9}", "jose\u{301}")
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      try api.apple.simulation.buy("monthly", on: DeviceID("anna"))
      _ = try await api.submit(composed, from: "anna")
      for ids in [[composed, decomposed], [decomposed, composed]] {
        let batch = try await api.call(
          .post, "/v1/entitlements/query", ["account_ids": .array(ids.map { .string($0) })])
        for (index, id) in ids.enumerated() {
          let isOwner = id.utf8.count == composed.utf8.count
          #expect(batch["accounts"]?[index]["entitlements"]?.array?.count == (isOwner ? 1 : 0))
        }
      }
    }
  }

  @Test func `many accounts get the bytes that each gets alone, in the order asked`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.describe("lifetime", "lifetime", type: .nonConsumable)
      try await api.describe("season.pass", "season", type: .nonRenewing, period: "P6M")
      for name in ["anna", "ben"] {
        try api.addCustomer(name)
        try api.apple.simulation.buy("monthly", on: DeviceID(name))
        try api.apple.simulation.buy("lifetime", on: DeviceID(name))
        try api.apple.simulation.buy("season.pass", on: DeviceID(name))
        _ = try await api.submit("acc \"\(name)\"", from: name)
      }
      let ids = ["acc \"ben\"", "unknown", "acc \"anna\"", "acc \"ben\""]
      let batch = try await api.call(
        .post, "/v1/entitlements/query", ["account_ids": .array(ids.map { .string($0) })])
      #expect(batch.status == 200)
      var singles: [String] = []
      for id in ids {
        let encoded = try #require(id.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
        let single = try await api.get("/v1/accounts/\(encoded)/entitlements")
        singles.append(
          single.text.replacingOccurrences(of: #""as_of":"2026-01-01T00:00:00.000Z","#, with: ""))
      }
      let accounts = singles.joined(separator: ",")
      #expect(
        batch.text == #"{"as_of":"2026-01-01T00:00:00.000Z","accounts":[\#(accounts)]}"#)
      #expect(batch["accounts"]?[0]["entitlements"]?.array?.count == 3)
      #expect(batch["accounts"]?[1]["entitlements"] == [])
      let lifetime = batch["accounts"]?[2]["entitlements"]?[0]
      #expect(lifetime?["entitlement"] == "lifetime")
      #expect(lifetime?["expires_at"] == .null)
      let season = batch["accounts"]?[2]["entitlements"]?[2]
      #expect(season?["expires_at"] == "2026-07-01T00:00:00.000Z")
    }
  }

  @Test func `many accounts at another time get the bytes that each gets alone`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.describe("lifetime", "lifetime", type: .nonConsumable)
      let names = ["anna", "ben", "carl", "dora", "emil", "fay"]
      // One buys on each day, and is reported an hour later.
      for (day, name) in names.enumerated() {
        try api.addCustomer(name)
        try api.apple.simulation.buy("monthly", on: DeviceID(name))
        if day.isMultiple(of: 2) { try api.apple.simulation.buy("lifetime", on: DeviceID(name)) }
        api.apple.simulation.advance(by: .hours(1))
        _ = try await api.submit(name, from: name)
        api.apple.simulation.advance(by: .hours(23))
      }
      let ids = ["fay", "unknown"] + names + ["anna"]
      var found: Set<Int> = []
      for query in [
        "at=2026-01-03T12:00:00Z", "at=2026-01-31T12:00:00Z", "at=2026-03-01T00:00:00%2B02:00",
        "known_at=2026-01-03T00:30:00Z", "at=2026-01-03T00:30:00Z&known_at=2026-01-03T00:30:00Z",
        "at=2026-02-02T00:00:00Z&active=true", "active=true",
      ] {
        let batch = try await api.call(
          .post, "/v1/entitlements/query?\(query)",
          ["account_ids": .array(ids.map { .string($0) })])
        #expect(batch.status == 200, "\(query): \(batch)")
        let asOf = try #require(batch["as_of"]?.string)
        var singles: [String] = []
        for id in ids {
          let single = try await api.get("/v1/accounts/\(id)/entitlements?\(query)")
          #expect(single["as_of"]?.string == asOf)
          singles.append(single.text.replacingOccurrences(of: #""as_of":"\#(asOf)","#, with: ""))
        }
        #expect(
          batch.text == #"{"as_of":"\#(asOf)","accounts":[\#(singles.joined(separator: ","))]}"#,
          "\(query)")
        found.insert(batch.text.components(separatedBy: #""active":true"#).count)
      }
      // The questions differ, and so do the answers.
      #expect(found.count > 4)
    }
  }

  @Test func `other times, what was known then, and the active ones alone`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      try api.apple.simulation.setAutoRenew(false, bought.originalTransactionID)
      api.apple.simulation.advance(by: .hours(1))
      _ = try await api.submit("4711", from: "anna")
      func state(_ query: String) async throws -> [JSONValue] {
        let answer = try await api.get("/v1/accounts/4711/entitlements?\(query)")
        return answer["entitlements"]?.array?.compactMap { $0["state"] } ?? []
      }
      #expect(try await state("") == ["active"])
      // Clocks differ: it has begun five minutes before its date.
      #expect(try await state("at=2025-12-31T23:54:59.999Z") == [])
      #expect(try await state("at=2025-12-31T23:55:00Z") == ["active"])
      #expect(try await state("at=2026-01-01T00:00:00Z") == ["active"])
      #expect(try await state("at=2026-01-31T23:59:59.999Z") == ["active"])
      #expect(try await state("at=2026-02-01T00:00:00Z") == ["expired"])
      #expect(try await state("at=2026-02-01T01:00:00%2B02:00") == ["active"])
      #expect(try await state("at=2026-02-01T01:00:00+02:00") == ["active"])
      #expect(try await state("at=2026-02-01T00:00:00Z&active=true") == [])
      #expect(try await state("at=2026-02-01T00:00:00Z&active=false") == ["expired"])
      #expect(try await state("active=true") == ["active"])
      // It was bought at midnight, and reported at one o'clock.
      let known = "at=2026-01-01T00:30:00Z&known_at="
      #expect(try await state(known + "2026-01-01T00:59:59Z") == [])
      #expect(try await state(known + "2026-01-01T01:00:00Z") == ["active"])

      let past = try await api.get("/v1/accounts/4711/entitlements?at=2026-01-15T12:00:00Z")
      #expect(past["as_of"] == "2026-01-15T12:00:00.000Z")

      api.apple.simulation.advance(by: .days(60))
      let batch = try await api.call(
        .post, "/v1/entitlements/query?active=true", ["account_ids": ["4711"]])
      #expect(batch["accounts"]?[0]["entitlements"] == [])
    }
  }

  @Test func `an account that was never seen has nothing, and stays unseen`() async throws {
    try await TestAPI.run { api in
      let answer = try await api.get("/v1/accounts/unknown/entitlements")
      #expect(answer.status == 200)
      #expect(answer["entitlements"] == [])
      #expect(try await api.get("/v1/accounts/unknown").status == 404)
    }
  }

  @Test func `a thousand accounts at once`() async throws {
    try await TestAPI.run { api in
      let ids = (1...1000).map { "\($0)" }
      let answer = try await api.call(
        .post, "/v1/entitlements/query", ["account_ids": .array(ids.map { .string($0) })])
      #expect(answer["accounts"]?.array?.compactMap { $0["account_id"]?.string } == ids)
      let none = try await api.call(.post, "/v1/entitlements/query", ["account_ids": []])
      #expect(none["accounts"] == [])
    }
  }
}
