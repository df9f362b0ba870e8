import AppStore
import AppStoreSimulator
import Foundation
import Intake
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import HTTPAPI

/// Access by a receipt's own signature while Apple is down, where the operator allows it.
struct ProvisionalAccessTests {
  /// Runs a test with customer anna, whose device is logged in nowhere, and a catalogue.
  private func run(
    _ longest: Duration? = .hours(24), sandboxAccess: SandboxAccess = .all,
    _ test: @escaping @Sendable (TestAPI) async throws -> Void
  ) async throws {
    let choices = TestAPI.Choices(sandboxAccess: sandboxAccess, provisionalAccess: longest)
    try await TestAPI.run(choices: choices) { api in
      try await api.describe("monthly", "pro")
      try await api.describe("news.weekly", "news")
      try await api.describe("lifetime", "extras", type: .nonConsumable)
      try await api.describe("season.pass", "season", type: .nonRenewing, period: "P3D")
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("anna")
      try await test(api)
      // The ledger contains only what its rules give.
      let audit = try await api.ledger.auditor.audit()
      #expect(audit.isClean, "\(audit.differences)")
    }
  }

  @Test func `a receipt that Apple signed gives access until Apple can be asked`() async throws {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      let line = try #require(api.apple.simulation.truth().first?.originalTransactionID)
      api.apple.setDown(true)
      let answer = try await api.submit("4711", from: "anna")
      #expect(answer.status == 202)
      let granted = try #require(answer["entitlements"]?.array?.first)
      #expect(granted["entitlement"] == "pro")
      #expect(granted["active"] == true)
      #expect(granted["state"] == "active")
      #expect(granted["source"] == "provisional")
      #expect(granted["environment"] == "production")
      #expect(granted["original_transaction_id"]?.string == line.rawValue)
      #expect(granted["expires_at"]?.string == "\(api.apple.simulation.now + .hours(24))")
      #expect(granted["will_renew"] == false)
      // A later request gets the same answer, and the ledger has no charge.
      #expect(try await api.entitlements(of: "4711") == answer["entitlements"])
      let id = try #require(answer["submission_id"]?.string)
      #expect(try await api.get("/v1/receipts/\(id)")["entitlements"] == answer["entitlements"])
      #expect(try await api.get("/v1/original-transactions/\(line)").status == 404)
      #expect(try await api.get("/v1/accounts/4711/transactions")["transactions"] == [])
    }
  }

  @Test func `the product's newest description says what is granted`() async throws {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      api.apple.simulation.advance(by: .minutes(1))
      try await api.describe("monthly", "basic")
      api.apple.setDown(true)
      let id = try await api.submitWithoutApple("4711", from: "anna")
      #expect(try await api.sources(of: "4711") == ["basic": "provisional"])
      api.apple.setDown(false)
      _ = try await api.intake.resume(id)
      #expect(try await api.sources(of: "4711") == ["basic": "app_store"])
    }
  }

  @Test func `what Apple says takes its place`() async throws {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      api.apple.setDown(true)
      let id = try await api.submitWithoutApple("4711", from: "anna")
      #expect(try await api.sources(of: "4711") == ["pro": "provisional"])
      api.apple.setDown(false)
      _ = try await api.intake.resume(id)
      #expect(try await api.sources(of: "4711") == ["pro": "app_store"])
      #expect(try await api.grants() == 0)
      let decided = try await api.get("/v1/receipts/\(id.uuidString)")
      #expect(decided["transactions"]?[0]["newly_owned"] == true)
    }
  }

  @Test func `what Apple refuses is gone at once`() async throws {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      api.apple.setDown(true)
      let id = try await api.submitWithoutApple("4711", from: "anna")
      #expect(try await api.grants() == 1)
      api.apple.setDown(false)
      api.apple.answer(receipt, with: Array(#"{"status":21003}"#.utf8))
      _ = try await api.intake.resume(id)
      #expect(try await api.get("/v1/receipts/\(id.uuidString)").status == 422)
      #expect(try await api.entitlements(of: "4711") == [])
      #expect(try await api.grants() == 0)
    }
  }

  @Test func `without the setting there is none, and the answer says nothing of it`() async throws {
    try await run(nil) { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      api.apple.setDown(true)
      let answer = try await api.submit("4711", from: "anna")
      #expect(answer.status == 202)
      #expect(answer["entitlements"] == nil)
      #expect(try await api.entitlements(of: "4711") == [])
    }
  }

  // MARK: How long

  @Test func `it ends with what was paid for, and never after the operator's limit`() async throws {
    try await run { api in
      let simulation = api.apple.simulation
      try simulation.buy("monthly", on: "anna")
      let charge = try #require(simulation.truth().first)
      try simulation.setAutoRenew(false, charge.originalTransactionID)
      let end = try #require(charge.expiresDate)
      simulation.advance(to: end - .hours(5))
      api.apple.setDown(true)
      let id = try await api.submitWithoutApple("4711", from: "anna")
      let granted = try await api.entitlements(of: "4711")[0]
      #expect(granted["expires_at"]?.string == "\(end)")
      #expect(granted["access_ends_at"]?.string == "\(end)")
      // It expires, and the next attempt deletes it.
      simulation.advance(to: end)
      #expect(try await api.entitlements(of: "4711")[0]["active"] == false)
      _ = try await api.intake.resume(id)
      #expect(try await api.entitlements(of: "4711") == [])
    }
  }

  @Test func `attempts don't prolong it`() async throws {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      api.apple.setDown(true)
      let id = try await api.submitWithoutApple("4711", from: "anna")
      let granted = try await api.entitlements(of: "4711")
      for _ in 0..<3 {
        api.apple.simulation.advance(by: .hours(7))
        _ = try await api.intake.resume(id)
        #expect(try await api.grants() == 1)
        #expect(try await api.entitlements(of: "4711") == granted)
      }
      api.apple.simulation.advance(by: .hours(3))
      #expect(try await api.entitlements(of: "4711")[0]["active"] == false)
      _ = try await api.intake.resume(id)
      #expect(try await api.grants() == 0)
    }
  }

  @Test func `each kind of purchase gives what it would give, for as long`() async throws {
    try await run(.hours(100)) { api in
      let simulation = api.apple.simulation
      for product: ProductID in [
        "monthly", "lifetime", "season.pass", "coins.100", "news.weekly",
      ] {
        try simulation.buy(product, on: "anna")
      }
      api.apple.setDown(true)
      let answer = try await api.submit("4711", from: "anna")
      let now = simulation.now
      let ends = (answer["entitlements"]?.array ?? []).map {
        "\($0["entitlement"]?.string ?? ""): \($0["expires_at"]?.string ?? "")"
      }
      #expect(
        ends == [
          "extras: \(now + .hours(100))", "news: \(now + .hours(100))", "pro: \(now + .hours(100))",
          "season: \(now + .days(3))",
        ])
    }
  }

  // MARK: Whose

  @Test func `purchases with a known owner give no provisional access`() async throws {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      _ = try await api.submit("4711", from: "anna")
      api.apple.setDown(true)
      for account in ["4711", "4712"] {
        let answer = try await api.submit(account, from: "anna")
        #expect(answer.status == 202)
        #expect(try await api.grants() == 0)
      }
      #expect(try await api.sources(of: "4711") == ["pro": "app_store"])
      #expect(try await api.sources(of: "4712") == [:])
    }
  }

  @Test func `an unknown renewal goes to the owner that the rule gives it`()
    async throws
  {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      _ = try await api.submit("4711", from: "anna")
      api.apple.simulation.advance(by: .days(32))
      #expect(try await api.entitlements(of: "4711")[0]["active"] == false)
      api.apple.setDown(true)
      // The same phone, another account: 4711 is still renewing.
      _ = try await api.submit("4712", from: "anna")
      #expect(try await api.sources(of: "4712") == [:])
      _ = try await api.submit("4711", from: "anna")
      #expect(try await api.sources(of: "4711") == ["pro": "provisional"])
      #expect(try await api.entitlements(of: "4711")[0]["active"] == true)
    }
  }

  @Test func `a receipt that is passed around opens one door`() async throws {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      api.apple.setDown(true)
      let first = try await api.submitWithoutApple("4711", from: "anna")
      let second = try await api.submitWithoutApple("4712", from: "anna")
      #expect(try await api.sources(of: "4711") == ["pro": "provisional"])
      #expect(try await api.sources(of: "4712") == [:])
      // Also when the second is first to try again.
      _ = try await api.intake.resume(second)
      _ = try await api.intake.resume(first)
      #expect(try await api.sources(of: "4711") == ["pro": "provisional"])
      #expect(try await api.sources(of: "4712") == [:])
      // The first decided submission owns it: the rule decides, not the grant.
      api.apple.setDown(false)
      _ = try await api.intake.resume(second)
      _ = try await api.intake.resume(first)
      #expect(try await api.sources(of: "4712") == ["pro": "app_store"])
      #expect(try await api.sources(of: "4711") == [:])
    }
  }

  @Test func `one account's two submissions are two grants, each gone with its own`() async throws {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      api.apple.setDown(true)
      let first = try await api.submitWithoutApple("4711", from: "anna")
      api.apple.simulation.advance(by: .hours(1))
      _ = try await api.submitWithoutApple("4711", from: "anna")
      #expect(try await api.grants() == 2)
      api.apple.setDown(false)
      api.apple.answer(receipt, with: Array(#"{"status":21003}"#.utf8))
      _ = try await api.intake.resume(first)
      #expect(try await api.grants() == 1)
    }
  }

  @Test func `only what the submission selects counts`() async throws {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      try api.apple.simulation.buy("lifetime", on: "anna")
      let lifetime = try #require(
        api.apple.simulation.truth().first { $0.productID == "lifetime" }?.transactionID)
      api.apple.setDown(true)
      _ = try await api.submit(
        "4711", from: "anna", ["transaction_id": .string(lifetime.rawValue)])
      #expect(try await api.sources(of: "4711") == ["extras": "provisional"])
      _ = try await api.submit("4711", from: "anna", ["transaction_id": "1"])
      #expect(try await api.grants() == 1)
    }
  }

  // MARK: Receipts that give no access

  @Test func `what was taken back or is over gives none`() async throws {
    try await run { api in
      let simulation = api.apple.simulation
      try simulation.buy("monthly", on: "anna")
      let charge = try #require(simulation.truth().first)
      try simulation.refund(charge.transactionID)
      api.apple.setDown(true)
      _ = try await api.submit("4711", from: "anna")
      #expect(try await api.entitlements(of: "4711") == [])

      try api.addCustomer("ben")
      try simulation.buy("news.weekly", on: "ben")
      let weekly = try #require(simulation.truth(of: "ben").first)
      try simulation.setAutoRenew(false, weekly.originalTransactionID)
      simulation.advance(by: .days(8))
      _ = try await api.submit("4712", from: "ben")
      #expect(try await api.entitlements(of: "4712") == [])
    }
  }

  @Test func `unsigned data gives none`() async throws {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      var bytes = try #require(Data(base64Encoded: receipt))
      bytes[bytes.count - 1] ^= 1
      let charge = try #require(api.apple.simulation.truth().first)
      let old = try api.apple.simulation.transactionReceipt(charge.transactionID, on: "anna")
      api.apple.setDown(true)
      for forged in [bytes.base64EncodedString(), old, "e3JlY2VpcHR9"] {
        let answer = try await api.submit("4711", receipt: forged)
        #expect(answer.status == 202)
        #expect(answer["entitlements"] == [])
      }
      _ = try await api.submit("4711", receipt: receipt, ["bundle_id": "com.example.tenure"])
      #expect(try await api.grants() == 1)
    }
  }

  @Test func `sandbox purchases give none where they grant nothing`() async throws {
    try await run(sandboxAccess: .accounts(["tester"])) { api in
      try api.addCustomer("tess", environment: .sandbox)
      try api.apple.simulation.buy("monthly", on: "tess")
      api.apple.setDown(true)
      _ = try await api.submit("4711", from: "tess")
      #expect(try await api.grants() == 0)
      _ = try await api.submit("tester", from: "tess")
      #expect(try await api.entitlements(of: "tester")[0]["environment"] == "sandbox")
      // Nor where that was changed since: after a restart with another setting.
      let strict = EntitlementReader(
        ledger: api.ledger,
        catalogue: try await CatalogueCache(ledger: api.ledger, logger: quietLogger),
        sandboxAccess: .none)
      let now = api.apple.simulation.now
      #expect(try await strict.entitlements(of: "tester", now: now) == [])
    }
  }

  @Test func `a customer who has paid does not suffer from our configuration`() async throws {
    try await run { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      api.apple.answer(receipt, with: Array(#"{"status":21004}"#.utf8))
      _ = try await api.submit("4711", receipt: receipt)
      #expect(try await api.sources(of: "4711") == ["pro": "provisional"])
    }
  }

  // MARK: Unity

  @Test func `Apple is asked about the receipt inside of Unity's wrapper`() async throws {
    try await run(nil) { api in
      try api.apple.simulation.buy("monthly", on: "anna")
      let receipt = try api.apple.simulation.receipt(on: "anna")
      let wrapped = JSONValue.object([
        .init(key: "Store", value: "AppleAppStore"), .init(key: "TransactionID", value: "1"),
        .init(key: "Payload", value: .string(receipt)),
      ]).bytes
      for text in [
        String(decoding: wrapped, as: UTF8.self), Data(wrapped).base64EncodedString(),
      ] {
        let answer = try await api.submit("4711", receipt: text)
        #expect(answer.status == 200, "\(answer)")
        #expect(answer["transactions"]?.array?.count == 1)
      }
    }
  }
}

extension TestAPI {
  fileprivate func entitlements(of account: String) async throws -> JSONValue {
    try #require(try await get("/v1/accounts/\(account)/entitlements")["entitlements"])
  }

  /// The source of each of an account's entitlements.
  fileprivate func sources(of account: String) async throws -> [String: String] {
    let entitlements = try await entitlements(of: account).array ?? []
    return Dictionary(
      uniqueKeysWithValues: entitlements.map {
        ($0["entitlement"]?.string ?? "", $0["source"]?.string ?? "")
      })
  }

  fileprivate func grants() async throws -> Int {
    try await database.query("SELECT count(*) FROM tenure.account_grant").decodeOnly(Int.self)
  }

  fileprivate func submitWithoutApple(_ account: String, from device: String) async throws -> UUID {
    let answer = try await submit(account, from: device)
    #expect(answer.status == 202)
    return try #require(answer["submission_id"]?.string.flatMap(UUID.init(uuidString:)))
  }
}
