import Crypto
import Foundation
import JSONText
import Subscriptions
import SwiftASN1
import Testing

@testable import AppStore

/// A real receipt and Apple's response to it.
struct LocalReceiptSampleTests {
  private func verifier() throws -> LocalReceiptVerifier {
    LocalReceiptVerifier(apps: try apps("com.revenuecat.sampleapp"))
  }

  @Test func `Apple's signature in it is good, without Apple`() throws {
    let receipt = try verifier().verify(try receiptSample()).get()
    #expect(receipt.environment == .sandbox)
    #expect(receipt.bundleID == "com.revenuecat.sampleapp")
    #expect(receipt.createdAt == Timestamp(milliseconds: 1_595_439_548_000))
    #expect(receipt.expiresAt == nil)
    #expect(receipt.unreadable.isEmpty)
    #expect(receipt.records.count == 9)
  }

  @Test func `its nine purchases agree with Apple's answer in every field they share`() throws {
    let receipt = try verifier().verify(try receiptSample()).get().contents
    let answer = try JSONValue(parsing: try sample("apple-answer"))
    let body = try #require(answer["receipt"])
    #expect(receipt.environmentName == body["receipt_type"]?.string)
    #expect(receipt.bundleID == body["bundle_id"]?.string)
    #expect(milliseconds(receipt.creationDate) == body["receipt_creation_date_ms"]?.string)
    let items = try #require(body["in_app"]?.array)
    #expect(items.count == 9)
    #expect(receipt.inApp.count == 9)
    var compared = 0
    for (purchase, item) in zip(receipt.inApp, items) {
      let fields: [(name: String, value: String?)] = [
        ("quantity", purchase.quantity.map(String.init)), ("product_id", purchase.productID),
        ("transaction_id", purchase.transactionID),
        ("original_transaction_id", purchase.originalTransactionID),
        ("purchase_date_ms", milliseconds(purchase.purchaseDate)),
        ("original_purchase_date_ms", milliseconds(purchase.originalPurchaseDate)),
        ("expires_date_ms", milliseconds(purchase.expiresDate)),
        ("web_order_line_item_id", purchase.webOrderLineItemID?.rawValue),
        ("is_trial_period", purchase.isTrialPeriod?.description),
        ("is_in_intro_offer_period", purchase.isInIntroOfferPeriod?.description),
        ("cancellation_date_ms", milliseconds(purchase.cancellationDate)),
        ("promotional_offer_id", purchase.promotionalOfferID),
      ]
      for field in fields {
        #expect(field.value == item[field.name]?.string, "\(field.name)")
        compared += field.value == nil ? 0 : 1
      }
    }
    #expect(compared == 9 * 10)
  }

  @Test func `it becomes the same evidence as the receipt's own part of Apple's answer`()
    async throws
  {
    // Without latest_receipt_info, the answer only repeats the receipt.
    var answer = try JSONDecoder().decode(JSON.self, from: Data(try sample("apple-answer")))
    answer["latest_receipt_info"] = .null
    let trimmed = answer
    let transport = ScriptedTransport { _ in try .json(trimmed) }
    let asked = await ReceiptVerifier(transport, apps: try apps("com.revenuecat.sampleapp"))
      .verify(try receiptSample())
    let local = try verifier().verify(try receiptSample()).get()
    let records = local.records.map { record in
      // Only the receipt contains these.
      #expect(record.productType == .autoRenewable)
      var record = record
      record.productType = nil
      return record
    }
    #expect(records == (try asked.verdict.receipt.records))
    #expect(records.allSatisfy { $0.asOf == local.createdAt && $0.revocation == .notSaid })
  }

  @Test func `its original transaction is read`() throws {
    let contents = try AppReceipt(unverified: try receiptSample())
    #expect(Set(contents.inApp.map(\.originalTransactionID)) == ["1000000692878476"])
    #expect(contents.environment == .sandbox)
    #expect(contents.bundleID == "com.revenuecat.sampleapp")
  }

  @Test func `another root is not Apple's`() throws {
    let verifier = LocalReceiptVerifier(
      roots: .apple, apps: try apps("com.revenuecat.sampleapp"))
    // The root in the receipt is no longer one that is pinned.
    #expect(verifier.verify(try receiptSample()).failure?.reason == .strangeCertificate)
  }

  @Test func `another app's receipt is refused`() throws {
    let verifier = LocalReceiptVerifier(apps: try apps("com.example.app"))
    #expect(verifier.verify(try receiptSample()).failure?.reason == .wrongBundleID)
    #expect(
      try self.verifier().verify(try receiptSample(), bundleID: "com.example.app")
        .failure?.reason == .wrongBundleID)
  }

  @Test func `the bundled root is the one that Apple publishes`() throws {
    let pem = try PEMDocument(pemString: TrustedRoots.appleRootCA)
    #expect(
      SHA256.hash(data: pem.derBytes).map { String(format: "%02x", $0) }.joined()
        == "b0b1730ecbc7ff4505142c49f1295e6eda6bcaed7e2c68c5be91b5a11001f024")
  }

  @Test func `one flipped bit anywhere in contents, certificates or signature is noticed`() throws {
    let bytes = try #require(Data(base64Encoded: try receiptSample())).map(\.self)
    // From the contents' own tag to their end; the certificates; the signature's 256 bytes.
    let parts = [58..<4273, 4277..<7962, 8165..<8425]
    #expect(bytes.count == 8425)
    let positions = parts.flatMap { Array(stride(from: $0.lowerBound, to: $0.upperBound, by: 12)) }
    let verifier = try verifier()
    for position in positions {
      var forged = bytes
      forged[position] ^= 1 << UInt8(position % 8)
      #expect(verifier.verify(Data(forged).base64EncodedString()).failure != nil, "\(position)")
    }
    #expect(verifier.verify(Data(bytes).base64EncodedString()).failure == nil)
  }

  private func milliseconds(_ moment: Timestamp?) -> String? {
    moment.map { String($0.milliseconds) }
  }
}

/// The published receipt, base64.
func receiptSample() throws -> String {
  let url = try #require(
    Bundle.module.url(
      forResource: "app-receipt", withExtension: "base64", subdirectory: "Samples"))
  return try String(contentsOf: url, encoding: .utf8)
}
