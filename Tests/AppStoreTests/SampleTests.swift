import AppStore
import AsyncHTTPClient
import Subscriptions
import Testing

/// The published answers, through the real HTTP transport and a stand-in for Apple.
struct SampleTests {
  private func verify(_ name: String, bundleID: String) async throws -> ReceiptVerification {
    let body = try sample(name)
    return try await StandInApple.serving({ _ in [.answer(body)] }) { apple in
      try await HTTPClient.withApple { client in
        try await ReceiptVerifier(
          HTTPClientTransport(client: client), apps: try apps(bundleID), endpoints: apple.endpoints
        ).verify("cmVjZWlwdA==")
      }
    }
  }

  @Test func `response1: its receipt is an array, and only one transaction is complete`()
    async throws
  {
    let receipt = try await verify("response1", bundleID: "com.example.app").verdict.receipt
    #expect(receipt.status == 0)
    #expect(receipt.environment == .production)
    #expect(receipt.requestDate == Timestamp(milliseconds: 1_432_485_078_000))
    let line = OriginalTransactionKey(.production, "123456789012345")
    let record = try #require(receipt.records.first)
    #expect(receipt.records.count == 1)
    #expect(record.key.line == line)
    #expect(record.key.transactionID == "123456789012345@1432400579000")
    #expect(record.expiresDate == (try Timestamp("2015-05-23T17:05:59Z")))
    #expect(record.revocation == .notMentioned)
    #expect(receipt.unreadable.count == 2)
    #expect(
      receipt.statuses == [
        line: RenewalStatus(
          asOf: receipt.requestDate, autoRenews: true, phase: .undisturbed,
          autoRenewProductID: "year-premium")
      ])
  }

  @Test func `response2: the iOS 6 shape of a running subscription`() async throws {
    let receipt = try await verify("response2", bundleID: "com.example.app").verdict.receipt
    let line = OriginalTransactionKey(.production, "123456789012345")
    #expect(receipt.status == 0)
    #expect(receipt.unreadable.isEmpty)
    #expect(receipt.records.count == 1)
    let record = try #require(receipt.records.first)
    #expect(record.expiresDate == (try Timestamp("2019-08-20T04:28:57Z")))
    #expect(record.purchaseDate == Timestamp(milliseconds: 1_534_739_337_000))
    #expect(record.originalPurchaseDate == Timestamp(milliseconds: 1_534_739_338_000))
    #expect(record.revocation == .notMentioned)
    #expect(record.asOf == receipt.requestDate)
    #expect(receipt.statuses.keys.sorted() == [line])
    #expect(receipt.statuses[line]?.autoRenews == true)
    #expect(receipt.statuses[line]?.autoRenewProductID == "year-premium")
  }

  @Test func `response3: 21006 with a cancellation`() async throws {
    let receipt = try await verify("response3", bundleID: "com.example.app").verdict.receipt
    #expect(receipt.status == 21006)
    #expect(receipt.records.count == 1)
    let record = try #require(receipt.records.first)
    #expect(record.key.transactionID == "123456789012345")
    #expect(record.expiresDate == (try Timestamp("2019-03-16T03:27:28Z")))
    #expect(
      record.revocation == .mentioned(at: try Timestamp("2018-03-26T14:57:39Z"), reason: "0"))
    let status = receipt.statuses[record.key.line]
    #expect(status?.autoRenews == false)
    #expect(status?.phase == .expired)
  }

  @Test func `response4: one purchase for ever, from the sandbox`() async throws {
    let verification = try await verify("response4", bundleID: "com.example.app")
    let receipt = try verification.verdict.receipt
    // Production answered for the sandbox: the sandbox is asked, and decides.
    #expect(verification.exchanges.map(\.endpoint) == [.production, .sandbox])
    #expect(receipt.environment == .sandbox)
    #expect(receipt.statuses.isEmpty)
    #expect(receipt.records.count == 1)
    let record = try #require(receipt.records.first)
    #expect(record.key.productID == "lifetime")
    #expect(record.expiresDate == nil)
    // It is in `in_app` only: as old as the receipt, and without later refunds.
    #expect(record.asOf == Timestamp(milliseconds: 1_567_202_120_000))
    #expect(record.revocation == .notSaid)
  }

  @Test func `Apple's answer for a real receipt has nine transactions`() async throws {
    let body = try sample("apple-answer")
    let verification = try await verify("apple-answer", bundleID: "com.revenuecat.sampleapp")
    let receipt = try verification.verdict.receipt
    let isKept = verification.exchanges.allSatisfy { $0.answer == body }
    #expect(isKept && verification.exchanges.count == 2)
    #expect(receipt.environment == .sandbox)
    #expect(receipt.bundleID == "com.revenuecat.sampleapp")
    #expect(receipt.requestDate == Timestamp(milliseconds: 1_595_440_486_402))
    #expect(receipt.unreadable.isEmpty)
    #expect(
      receipt.records.map(\.key.transactionID.rawValue) == [
        "1000000692878476", "1000000692879214", "1000000692901513", "1000000692902182",
        "1000000692902990", "1000000692905419", "1000000692905971", "1000000692906727",
        "1000000696553650",
      ])
    #expect(
      receipt.records.map(\.periodType) == [.trial] + Array(repeating: .normal, count: 8))
    let last = try #require(receipt.records.last)
    #expect(last.expiresDate == Timestamp(milliseconds: 1_595_443_146_000))
    #expect(last.webOrderLineItemID == "1000000054044800")
    #expect(last.subscriptionGroup == "20662382")
    #expect(last.asOf == receipt.requestDate)
    #expect(last.revocation == .notMentioned)
    #expect(
      receipt.statuses == [
        OriginalTransactionKey(.sandbox, "1000000692878476"): RenewalStatus(
          asOf: receipt.requestDate, autoRenews: true, phase: .undisturbed,
          autoRenewProductID: "com.revenuecat.annual_39.99.2_week_intro")
      ])
    #expect(receipt.evidence.count == 10)
  }
}
