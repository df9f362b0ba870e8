import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import Intake
import JSONText
import LedgerStorage
import Postgres
import Subscriptions
import Testing

@testable import HTTPAPI

/// Submitting what StoreKit 2 signed, without asking Apple.
struct SignedTransactionTests {
  @Test(arguments: [false, true])
  func `a signed transaction goes in, the account is entitled`(withRenewalInfo: Bool) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let simulation = api.apple.simulation
      let bought = try simulation.buy("monthly", on: "anna")
      let transaction = try simulation.signedTransaction(of: bought.transactionID)
      let renewalInfo =
        withRenewalInfo ? [try simulation.signedRenewalInfo(of: bought.originalTransactionID)] : []
      // Apple is not needed for this.
      api.apple.setDown(true)
      let answer = try await api.submit("4711", signed: [transaction], renewalInfo: renewalInfo)
      #expect(answer.status == 200, "\(answer)")
      #expect(answer["status"] == "verified")
      #expect(answer["environment"] == "production")
      #expect(answer["warnings"] == [])
      #expect(answer["transactions"]?.array?.count == 1)
      let shown = try #require(answer["transactions"]?[0])
      #expect(shown["transaction_id"]?.string == bought.transactionID.rawValue)
      #expect(shown["product_type"] == "auto_renewable")
      #expect(shown["purchased_at"] == "2026-01-01T00:00:00.000Z")
      #expect(shown["expires_at"] == "2026-02-01T00:00:00.000Z")
      #expect(shown["price_milliunits"] == 9990)
      #expect(shown["currency"] == "USD")
      #expect(shown["owner_account_id"] == "4711")
      #expect(shown["decision"]?["rule"] == "submitter")
      #expect(shown["newly_owned"] == true)
      #expect(answer["entitlements"]?[0]["entitlement"] == "premium")
      #expect(answer["entitlements"]?[0]["active"] == true)
      #expect(answer["entitlements"]?[0]["will_renew"] == true)

      // The submission's status is the first response, without an exchange.
      let id = try #require(answer["submission_id"]?.string)
      let state = try await api.get("/v1/receipts/\(id)")
      #expect(state.status == 200)
      #expect(state["transactions"] == answer["transactions"])
      #expect(state["exchanges"] == nil)
      #expect(try await api.get("/v1/receipts/\(id)", as: .admin)["exchanges"] == [])

      // It names its source and the kind of the charge.
      let seen = try await api.get("/v1/transactions/\(bought.transactionID)")
      #expect(seen["evidence"]?["kind"] == "purchase")
      let sources = seen["history"]?.array?.compactMap { $0["source"] } ?? []
      #expect(!sources.isEmpty)
      #expect(
        sources.allSatisfy { $0["kind"] == "signed_transaction" && $0["id"]?.string == id })

      // The same again: the same decisions, nothing newly owned, and nothing new to record.
      let entries = try await api.entryCount()
      let again = try await api.submit("4711", signed: [transaction], renewalInfo: renewalInfo)
      #expect(again.status == 200)
      #expect(again["submission_id"] != answer["submission_id"])
      #expect(again["transactions"]?[0]["newly_owned"] == false)
      #expect(again["transactions"]?[0]["decision"] == shown["decision"])
      #expect(try await api.entryCount() == entries)
      #expect(try await api.jobCount() == 0)
    }
  }

  @Test func `one transaction signed at two dates is one transaction`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let simulation = api.apple.simulation
      let bought = try simulation.buy("monthly", on: "anna")
      let early = try simulation.signedTransaction(of: bought.transactionID)
      simulation.advance(by: .days(1))
      try simulation.refund(bought.transactionID)
      let late = try simulation.signedTransaction(of: bought.transactionID)
      let answer = try await api.submit("4711", signed: [late, early, late, early])
      #expect(answer.status == 200, "\(answer)")
      #expect(answer["transactions"]?.array?.count == 1)
      #expect(answer["transactions"]?[0]["newly_owned"] == true)
      // The latest word holds.
      #expect(answer["transactions"]?[0]["revoked_at"]?.string == simulation.now.description)
    }
  }

  @Test func `another account's submission of the same gets an honest answer`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      let transaction = try api.apple.simulation.signedTransaction(of: bought.transactionID)
      _ = try await api.submit("4711", signed: [transaction])
      let answer = try await api.submit("4712", signed: [transaction])
      #expect(answer.status == 200)
      #expect(answer["warnings"] == ["owned_by_another_account"])
      #expect(answer["transactions"]?[0]["owner_account_id"] == "4711")
      #expect(answer["transactions"]?[0]["newly_owned"] == false)
      #expect(answer["entitlements"] == [])
    }
  }

  @Test func `an alias is echoed as the id that was sent`() async throws {
    try await TestAPI.run { api in
      try await api.describe("lifetime", "lifetime", type: .nonConsumable)
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("lifetime", on: "anna")
      try api.apple.simulation.addDevice("tablet", appleID: "anna")
      api.apple.simulation.advance(by: .days(1))
      let restored = try #require(try api.apple.simulation.restore(on: "tablet").first)
      // The ledger gets the restored id first: it names the charge.
      _ = try await api.submit("4711", from: "tablet", ["restore": true])
      let answer = try await api.submit(
        "4712", signed: [try api.apple.simulation.signedTransaction(of: bought.transactionID)])
      let transaction = try #require(answer["transactions"]?[0])
      #expect(transaction["transaction_id"]?.string == restored.transactionID.rawValue)
      #expect(transaction["submitted_transaction_id"]?.string == bought.transactionID.rawValue)
      #expect(transaction["owner_account_id"] == "4711")
      #expect(answer["warnings"] == ["owned_by_another_account"])
    }
  }

  // MARK: Claims

  @Test func `every transaction is claimed by being sent, and of a named one that one alone`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("news.weekly", "news")
      try api.addCustomer("anna")
      let simulation = api.apple.simulation
      let first = try simulation.buy("news.weekly", on: "anna")
      _ = try simulation.setAutoRenew(false, first.originalTransactionID)
      simulation.advance(by: .days(30))
      let second = try simulation.buy("news.weekly", on: "anna")
      let signed = try [first, second].map {
        try simulation.signedTransaction(of: $0.transactionID)
      }
      let named = try await api.submit(
        "4711", signed: signed, ["transaction_id": .string(second.transactionID.rawValue)])
      #expect(named["transactions"]?.array?.count == 1)
      #expect(
        named["transactions"]?[0]["transaction_id"]?.string == second.transactionID.rawValue)
      let other = try await api.get("/v1/transactions/\(first.transactionID)")
      #expect(other["owner_account_id"] == .null)

      // Over for weeks, and claimed all the same: a receipt's would not be.
      let all = try await api.submit("4712", signed: signed.reversed())
      #expect(
        all["transactions"]?.array?.compactMap { $0["transaction_id"]?.string }
          == [first, second].map(\.transactionID.rawValue))
      #expect(
        all["transactions"]?.array?.compactMap { $0["owner_account_id"]?.string }
          == ["4712", "4711"])
      let restored = try await api.submit("4712", signed: signed, ["restore": true])
      #expect(restored["transactions"]?.array?.count == 2)
    }
  }

  @Test func `a named transaction that was not sent is warned about, and not looked for again`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      let answer = try await api.submit(
        "4711", signed: [try api.apple.simulation.signedTransaction(of: bought.transactionID)],
        ["transaction_id": "1"])
      #expect(answer.status == 200)
      #expect(answer["warnings"] == ["transaction_not_in_receipt"])
      #expect(answer["transactions"] == [])
      #expect(try await api.jobCount() == 0)
      let seen = try await api.get("/v1/transactions/\(bought.transactionID)")
      #expect(seen["owner_account_id"] == .null)
    }
  }

  @Test(arguments: [(Duration.minutes(5), true), (.minutes(5) + .milliseconds(1), false)])
  func `what is bought more than five minutes later is not claimed`(
    later: Duration, isClaimed: Bool
  ) async throws {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      let now = api.apple.simulation.now
      let answer = try await api.submit(
        "4711", signed: [api.apple.sign(Self.coins(purchasedAt: now + later, signedAt: now))])
      #expect(answer.status == 200, "\(answer)")
      #expect(answer["transactions"]?.array?.count == (isClaimed ? 1 : 0))
      let seen = try await api.get("/v1/transactions/11")
      #expect(seen["owner_account_id"] == (isClaimed ? "4711" : .null))
    }
  }

  @Test func `an order is fulfilled`() async throws {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("anna")
      let opened = try await api.call(
        .post, "/v1/orders", ["account_id": "4711", "product_id": "coins.100"])
      let id = try #require(opened["order_id"]?.string)
      let bought = try api.apple.simulation.buy("coins.100", on: "anna")
      let transaction = try api.apple.simulation.signedTransaction(of: bought.transactionID)
      let submitted = try await api.submit("4711", signed: [transaction], ["order_id": .string(id)])
      #expect(submitted["order"]?["status"] == "fulfilled", "\(submitted)")
      #expect(submitted["order"]?["transaction_id"]?.string == bought.transactionID.rawValue)
      let again = try await api.submit("4711", signed: [transaction])
      #expect(again["order"] == submitted["order"])
      #expect(again["transactions"]?[0]["newly_owned"] == false)
    }
  }

  // MARK: Refusals

  /// One kind of invalid signed data.
  struct Forgery: Sendable, CustomTestStringConvertible {
    var testDescription: String
    /// The submission made of a genuine transaction and a genuine renewal info.
    var submit: @Sendable (TestAPI, Genuine) throws -> (transactions: [String], info: [String])
    var code = "invalid_signature"
    /// How the problem's detail begins.
    var detail: String

    struct Genuine: Sendable {
      var transaction: String
      var renewalInfo: String
    }
  }

  static let forgeries = [
    Forgery(
      testDescription: "a changed payload",
      submit: { _, real in ([forged(real.transaction)], []) },
      detail: "`signed_transactions[0]`: "),
    Forgery(
      testDescription: "a genuine one beside it",
      submit: { _, real in ([real.transaction, forged(real.transaction)], []) },
      detail: "`signed_transactions[1]`: "),
    Forgery(
      testDescription: "no signature",
      submit: { _, real in
        ([real.transaction.split(separator: ".").prefix(2).joined(separator: ".") + "."], [])
      }, detail: "`signed_transactions[0]`: "),
    Forgery(
      testDescription: "no JWS at all", submit: { _, _ in (["nothing"], []) },
      detail: "`signed_transactions[0]`: "),
    Forgery(
      testDescription: "a root of its own",
      submit: { api, _ in
        let now = api.apple.simulation.now
        return ([try SimulatedSigner().sign(coins(purchasedAt: now, signedAt: now))], [])
      }, detail: "`signed_transactions[0]`: "),
    Forgery(
      testDescription: "a changed renewal info",
      submit: { _, real in ([real.transaction], [real.renewalInfo, forged(real.renewalInfo)]) },
      detail: "`signed_renewal_info[1]`: "),
    Forgery(
      testDescription: "a renewal info where a transaction belongs",
      submit: { _, real in ([real.renewalInfo], []) }, detail: "`signed_transactions[0]`: "),
    Forgery(
      testDescription: "a renewal info of another line",
      submit: { api, real in
        let now = api.apple.simulation.now
        return ([api.apple.sign(coins(purchasedAt: now, signedAt: now))], [real.renewalInfo])
      }, detail: "`signed_renewal_info[0]`: "),
    Forgery(
      testDescription: "another app's transaction",
      submit: { api, real in
        let now = api.apple.simulation.now
        let other = coins(bundleID: "com.example.other", purchasedAt: now, signedAt: now)
        return ([real.transaction, api.apple.sign(other)], [])
      }, code: "wrong_bundle_id", detail: "`signed_transactions[1]`: "),
    Forgery(
      testDescription: "two environments",
      submit: { api, real in
        let now = api.apple.simulation.now
        let other = coins(environment: "Sandbox", purchasedAt: now, signedAt: now)
        return ([real.transaction, api.apple.sign(other)], [])
      }, code: "receipt_rejected", detail: "The signed data is from both environments"),
  ]

  @Test("One refused part refuses all of it", arguments: forgeries)
  func refused(_ forgery: Forgery) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      let (transactions, info) = try forgery.submit(
        api,
        Forgery.Genuine(
          transaction: try api.apple.simulation.signedTransaction(of: bought.transactionID),
          renewalInfo: try api.apple.simulation.signedRenewalInfo(
            of: bought.originalTransactionID)))
      let answer = try await api.submit("4711", signed: transactions, renewalInfo: info)
      #expect(answer.status == 422, "\(answer)")
      #expect(answer.code == forgery.code)
      #expect(answer["detail"]?.string?.hasPrefix(forgery.detail) == true, "\(answer)")
      #expect(answer["apple_status"] == nil)

      // Stored as it was sent, decided for good, and nothing came of it.
      let id = try #require(answer["submission_id"]?.string.flatMap(UUID.init))
      #expect(
        try await api.ledger.submissions.payload(of: id)
          == .signedData(transactions: transactions, renewalInfo: info))
      #expect(try await api.get("/v1/receipts/\(id)").content == answer.content)
      #expect(try await api.get("/v1/receipts/\(id)", as: .admin)["exchanges"] == [])
      #expect(try await api.jobCount() == 0)
      #expect(try await api.entryCount() == 0)
      #expect(try await api.get("/v1/accounts/4711/entitlements")["entitlements"] == [])
    }
  }

  @Test(arguments: [(SimulatedApp.sample.bundleID, 200), ("com.example.other", 422)])
  func `the bundle id that the sender names has to be the transaction's`(
    bundleID: String, status: Int
  ) async throws {
    try await TestAPI.run { api in
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      let answer = try await api.submit(
        "4711", signed: [try api.apple.simulation.signedTransaction(of: bought.transactionID)],
        ["bundle_id": .string(bundleID)])
      #expect(answer.status == status, "\(answer)")
      #expect(answer.code == (status == 422 ? "wrong_bundle_id" : nil))
    }
  }

  @Test func `of the sandbox alone is fine`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("tester", environment: .sandbox)
      let bought = try api.apple.simulation.buy("monthly", on: "tester")
      let answer = try await api.submit(
        "4711", signed: [try api.apple.simulation.signedTransaction(of: bought.transactionID)],
        renewalInfo: [
          try api.apple.simulation.signedRenewalInfo(of: bought.originalTransactionID)
        ])
      #expect(answer.status == 200, "\(answer)")
      #expect(answer["environment"] == "sandbox")
      #expect(answer["transactions"]?[0]["environment"] == "sandbox")
    }
  }

  @Test func `nothing that was signed goes into the log`() async throws {
    let log = RecordedLog()
    try await TestAPI.run(logger: log.logger) { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      let signed = try api.apple.simulation.signedTransaction(of: bought.transactionID)
      #expect(try await api.submit("4711", signed: [signed]).status == 200)
      let refused = try await api.submit("4711", signed: [Self.forged(signed)])
      #expect(refused.status == 422)
      // The reason is logged, and none of the sent data, not even the common prefix of every JWS.
      #expect(log.text.contains(try #require(refused["detail"]?.string)))
      for part in signed.split(separator: ".") {
        #expect(!log.text.contains(part.prefix(20)))
      }
    }
  }

  @Test func `what was signed was signed before it was received, by a slow clock, too`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("coins.100", "coins", type: .consumable)
      try api.addCustomer("anna")
      let (received, id) = (api.apple.simulation.now, UUID())
      api.apple.simulation.advance(by: .minutes(6))
      let bought = try api.apple.simulation.buy("coins.100", on: "anna")
      let transaction = try api.apple.simulation.signedTransaction(of: bought.transactionID)
      _ = try await api.ledger.submissions.store(
        api.ledger.submissions.new(
          id: id, accountID: "4711", receivedAt: received,
          payload: .signedData(transactions: [transaction], renewalInfo: []), transactionID: nil,
          orderID: nil, isRestore: false, bundleID: nil, retryAt: received + .seconds(30)))
      _ = try await api.intake.resume(id)
      let decided = try await api.get("/v1/receipts/\(id)")
      #expect(decided["transactions"]?[0]["newly_owned"] == true, "\(decided)")
      #expect(decided["warnings"] == [])
    }
  }

  // MARK: A server that dies

  @Test func `a stored submission without a decision is decided by the next worker`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      let (now, id) = (api.apple.simulation.now, UUID())
      let payload = SubmissionPayload.signedData(
        transactions: [try api.apple.simulation.signedTransaction(of: bought.transactionID)],
        renewalInfo: [
          try api.apple.simulation.signedRenewalInfo(of: bought.originalTransactionID)
        ])
      _ = try await api.ledger.submissions.store(
        api.ledger.submissions.new(
          id: id, accountID: "4711", receivedAt: now, payload: payload, transactionID: nil,
          orderID: nil, isRestore: false, bundleID: nil, retryAt: now + .seconds(30)))
      #expect(try await api.ledger.submissions.payload(of: id) == payload)
      #expect(try await api.get("/v1/receipts/\(id)").status == 202)

      api.apple.setDown(true)
      let jobs = try await api.ledger.claimJobs(
        limit: 10, worker: "w", at: now + .seconds(30), lease: .seconds(60))
      #expect(jobs.map(\.key) == [.verifySubmission(id)])
      _ = try await api.intake.resume(id, worker: "w")
      let decided = try await api.get("/v1/receipts/\(id)")
      #expect(decided.status == 200, "\(decided)")
      #expect(decided["transactions"]?[0]["owner_account_id"] == "4711")
      #expect(decided["transactions"]?[0]["newly_owned"] == true)
      #expect(try await api.jobCount() == 0)
      #expect(try await api.intake.resume(id) == nil)
    }
  }

  // MARK: Together with receipts

  @Test func `after a receipt it shows the kind of a charge, and the owner of a renewal`()
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let simulation = api.apple.simulation
      try simulation.buy("monthly", on: "anna")
      _ = try await api.submit("4711", from: "anna")
      // The card fails, which is not reported before Apple has charged it.
      try simulation.failCard(of: "anna")
      simulation.advance(by: .days(31 + 20))
      let recovered = try #require(try simulation.repairCard(of: "anna").first)
      let claimed = try await api.submit("4712", from: "anna")
      #expect(claimed["transactions"]?[0]["owner_account_id"] == "4712", "\(claimed)")
      #expect(claimed["transactions"]?[0]["newly_owned"] == true)

      let proof = try simulation.signedTransaction(of: recovered.transactionID)
      let answer = try await api.submit("4712", signed: [proof])
      #expect(answer["warnings"] == ["owned_by_another_account"])
      #expect(answer["transactions"]?[0]["owner_account_id"] == "4711", "\(answer)")
      #expect(answer["transactions"]?[0]["decision"]?["rule"] == "actively_auto_renewing")
      #expect(answer["transactions"]?[0]["decision"]?["corrected_at"] != nil)
      let seen = try await api.get("/v1/transactions/\(recovered.transactionID)")
      #expect(seen["evidence"]?["kind"] == "renewal")
      #expect(seen["evidence"]?["ground"] == "renewed_by_apple")

      // A receipt, which does not contain the kind, lifts nothing.
      let entries = try await api.entryCount()
      let after = try await api.submit("4712", from: "anna")
      #expect(after["transactions"]?[0]["owner_account_id"] == "4711")
      #expect(try await api.entryCount() == entries)
    }
  }

  @Test func `a receipt of the same moment says nothing new of it`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try api.addCustomer("anna")
      let bought = try api.apple.simulation.buy("monthly", on: "anna")
      let signed = try await api.submit(
        "4711", signed: [try api.apple.simulation.signedTransaction(of: bought.transactionID)],
        renewalInfo: [
          try api.apple.simulation.signedRenewalInfo(of: bought.originalTransactionID)
        ])
      let entries = try await api.entryCount()
      let receipt = try await api.submit("4711", from: "anna")
      #expect(receipt["transactions"]?[0]["decision"] == signed["transactions"]?[0]["decision"])
      #expect(receipt["transactions"]?[0]["newly_owned"] == false)
      #expect(receipt["transactions"]?[0]["price_milliunits"] == 9990)
      #expect(try await api.entryCount() == entries)
    }
  }

  // MARK: Made by hand

  /// A transaction of a consumable as Apple writes it.
  static func coins(
    bundleID: String = SimulatedApp.sample.bundleID, environment: String = "Production",
    purchasedAt: Timestamp, signedAt: Timestamp
  ) -> JSONValue {
    [
      "transactionId": "11", "originalTransactionId": "11", "bundleId": .string(bundleID),
      "productId": "coins.100", "purchaseDate": .integer(purchasedAt.milliseconds),
      "originalPurchaseDate": .integer(purchasedAt.milliseconds), "quantity": 1,
      "type": "Consumable", "inAppOwnershipType": "PURCHASED",
      "signedDate": .integer(signedAt.milliseconds), "environment": .string(environment),
      "transactionReason": "PURCHASE",
    ]
  }

  /// The same JWS with another payload: the next letter at its end.
  static func forged(_ jws: String) -> String {
    var parts = jws.split(separator: ".").map(String.init)
    let last = parts[1].removeLast()
    parts[1].append(last == "0" ? "1" : "0")
    return parts.joined(separator: ".")
  }
}

extension TestAPI {
  fileprivate func entryCount() async throws -> Int {
    try await database.query("SELECT count(*) FROM tenure.ledger_entry").decodeOnly(Int.self)
  }

  fileprivate func jobCount() async throws -> Int {
    try await database.query(
      "SELECT count(*) FROM tenure.job WHERE queue IN ('submissions', 'notifications')"
    ).decodeOnly(Int.self)
  }
}

extension StandInAppStore {
  fileprivate func sign(_ payload: JSONValue) -> String { signer.sign(payload) }
}
