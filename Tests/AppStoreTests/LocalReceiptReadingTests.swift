import AppStore
import Foundation
import Subscriptions
import Testing

/// The fields read from a receipt, and the evidence made of them.
struct LocalReceiptReadingTests {
  private func receipt(
    _ purchases: [TestPurchase], _ change: (inout TestReceipt) -> Void = { _ in }
  ) throws -> LocalReceipt {
    let authority = try ReceiptAuthority.shared
    var receipt = TestReceipt(by: authority)
    purchases.forEach { receipt.add($0) }
    change(&receipt)
    return try authority.verifier().verify(try receipt.base64()).get()
  }

  private let month = TestPurchase(
    "11", of: "10", from: "2024-05-10T00:00:00Z", to: "2024-06-10T00:00:00Z", lineItem: 900)

  @Test func `a purchase becomes a record as old as the receipt`() throws {
    let receipt = try receipt([month])
    #expect(
      receipt.records == [
        TransactionRecord(
          key: TransactionKey(
            line: OriginalTransactionKey(.production, "10"), transactionID: "11",
            productID: "monthly"),
          asOf: try Timestamp("2024-06-01T10:00:00Z"),
          purchaseDate: try Timestamp("2024-05-10T00:00:00Z"),
          originalPurchaseDate: try Timestamp("2024-05-10T00:00:00Z"),
          expiresDate: try Timestamp("2024-06-10T00:00:00Z"), webOrderLineItemID: "900",
          productType: .autoRenewable)
      ])
    #expect(receipt.createdAt == (try Timestamp("2024-06-01T10:00:00Z")))
  }

  @Test func `every type of product and every price is read`() throws {
    let start = "2024-05-10T00:00:00Z"
    let receipt = try receipt([
      TestPurchase("1", of: "1", product: "forever", type: 0, from: start),
      TestPurchase("2", of: "2", product: "coins", type: 1, from: start, quantity: 10),
      TestPurchase("3", of: "3", product: "season", type: 2, from: start),
      TestPurchase("4", of: "4", from: start, to: "2024-06-10T00:00:00Z", isTrial: true),
      TestPurchase("5", of: "5", from: start, to: "2024-06-10T00:00:00Z", isIntro: true),
      TestPurchase("6", of: "6", from: start, to: "2024-06-10T00:00:00Z", offer: "spring"),
      TestPurchase("7", of: "7", product: "new", type: 9, from: start),
    ])
    #expect(
      receipt.records.map(\.productType) == [
        .nonConsumable, .consumable, .nonRenewing, .autoRenewable, .autoRenewable, .autoRenewable,
        nil,
      ])
    #expect(
      receipt.records.map(\.periodType) == [
        .normal, .normal, .normal, .trial, .intro, .offer, .normal,
      ])
    #expect(receipt.records.map(\.quantity) == [1, 10, 1, 1, 1, 1, 1])
    #expect(receipt.records[5].offerID == "spring")
    #expect(receipt.records[0].expiresDate == nil)
    #expect(receipt.records[0].webOrderLineItemID == nil)
  }

  @Test func `a cancellation revokes, and its absence says nothing`() throws {
    let cancelled = TestPurchase(
      "12", of: "10", from: "2024-05-11T00:00:00Z", to: "2024-06-10T00:00:00Z",
      cancelled: "2024-05-20T00:00:00Z")
    let receipt = try receipt([month, cancelled])
    #expect(
      receipt.records.map(\.revocation) == [
        .notSaid, .mentioned(at: try Timestamp("2024-05-20T00:00:00Z"), reason: nil),
      ])
  }

  @Test func `of two reports of one transaction, the one that says less counts`() throws {
    let cancelled = month.with(1712, ASN1Bytes.ia5("2024-05-20T00:00:00Z"))
    for purchases in [[month, cancelled], [cancelled, month]] {
      let receipt = try receipt(purchases)
      #expect(receipt.records.count == 1)
      #expect(receipt.records.first?.revocation != .notSaid)
    }
  }

  @Test func `dates are read with and without offsets`() throws {
    let dates: [(text: String, moment: String)] = [
      ("2024-05-10T01:02:03Z", "2024-05-10T01:02:03Z"),
      ("2024-05-10T01:02:03", "2024-05-10T01:02:03Z"),
      ("2024-05-10T01:02:03+0100", "2024-05-10T00:02:03Z"),
      ("2024-05-10T01:02:03-0230", "2024-05-10T03:32:03Z"),
      ("2024-05-10T01:02:03+01:00", "2024-05-10T00:02:03Z"),
      ("2024-05-10T01:02:03.250Z", "2024-05-10T01:02:03.250Z"),
      ("2024-05-10T01:02:03.250", "2024-05-10T01:02:03.250Z"),
    ]
    for (text, moment) in dates {
      let receipt = try receipt([month.with(1704, ASN1Bytes.ia5(text))])
      #expect(receipt.records.map(\.purchaseDate) == [try Timestamp(moment)], "\(text)")
    }
    for text in ["2024-05-10", "10 May 2024", "2024-05-10T01:02:03+1", "2024-05-10T25:00:00Z"] {
      let receipt = try receipt([month.with(1704, ASN1Bytes.ia5(text))])
      #expect(receipt.records.isEmpty, "\(text)")
      #expect(receipt.unreadable.count == 1, "\(text)")
    }
  }

  @Test func `integers of any length are read`() throws {
    let numbers: [(bytes: [UInt8], value: Int64?)] = [
      ([1], 1), ([0, 0x80], 128),
      ([0x03, 0x8d, 0x7e, 0xa7, 0xff, 0x20, 0x47], 1_000_000_054_042_695),
      ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5], 5),
      ([0x7f] + [UInt8](repeating: 0xff, count: 7), .max),
      ([0, 0x80] + [UInt8](repeating: 0, count: 7), nil),
      ([UInt8](repeating: 0x7f, count: 40), nil), ([], nil),
    ]
    for (bytes, value) in numbers {
      let receipt = try receipt([month.with(1711, ASN1Bytes.element(0x02, bytes))])
      #expect(
        receipt.records.first?.webOrderLineItemID == value.map { WebOrderLineItemID(String($0)) },
        "\(bytes)")
      #expect(receipt.unreadable.count == (value == nil ? 1 : 0), "\(bytes)")
    }
  }

  @Test func `a malformed attribute is reported without the parser's own words`() throws {
    let integers = ASN1Bytes.integer(1702) + ASN1Bytes.integer(1) + ASN1Bytes.integer(5)
    let receipt = try receipt([]) {
      $0.attributes.append(
        (17, ASN1Bytes.element(0x31, ASN1Bytes.element(0x30, integers))))
    }
    #expect(receipt.unreadable.map(\.reason) == ["an attribute is malformed"])
  }

  @Test func `a purchase that can't be read is reported, and the others count`() throws {
    let faults: [(name: String, purchase: TestPurchase)] = [
      ("no product", month.with(1702, nil)), ("no id", month.with(1703, nil)),
      ("no date", month.with(1704, nil)), ("an empty id", month.with(1703, ASN1Bytes.utf8(""))),
      ("a number for a text", month.with(1702, ASN1Bytes.integer(7))),
      ("a text for a number", month.with(1711, ASN1Bytes.utf8("7"))),
      ("a flag of 2", month.with(1713, ASN1Bytes.integer(2))),
      ("not UTF-8", month.with(1702, ASN1Bytes.element(0x0c, [0xff]))),
      ("control characters", month.with(1702, ASN1Bytes.utf8("a\u{0}b"))),
      ("too long an id", month.with(1703, ASN1Bytes.utf8(String(repeating: "1", count: 129)))),
      ("two elements", month.with(1702, ASN1Bytes.utf8("a") + ASN1Bytes.utf8("b"))),
      ("a cancellation that is no date", month.with(1712, ASN1Bytes.ia5("soon"))),
      (
        "a cancellation that stands twice",
        {
          var purchase = month
          purchase.attributes.append((1712, ASN1Bytes.ia5("2024-05-20T00:00:00Z")))
          return purchase
        }()
      ),
    ]
    let other = TestPurchase("21", of: "20", from: "2024-05-10T00:00:00Z")
    for (name, purchase) in faults {
      let receipt = try receipt([purchase, other])
      #expect(receipt.records.map(\.key.transactionID) == ["21"], "\(name)")
      #expect(receipt.unreadable.count == 1, "\(name)")
    }
  }

  @Test func `unknown attributes, and those that are not read, do no harm`() throws {
    let receipt = try receipt([month.with(1799, [1, 2, 3])]) { receipt in
      receipt.set(99, [9, 9])
      receipt.set(10, ASN1Bytes.integer(4))
    }
    #expect(receipt.records.count == 1)
    #expect(receipt.unreadable.isEmpty)
  }

  // MARK: Unverified

  @Test func `what no signature covers can be read, and is not verified`() throws {
    var receipt = TestReceipt(by: try ReceiptAuthority.shared)
    receipt.add(TestPurchase("31", of: "30", from: "2024-01-01T00:00:00Z"))
    receipt.add(TestPurchase("11", of: "10", from: "2024-03-01T00:00:00Z"))
    receipt.add(TestPurchase("33", of: "30", from: "2024-05-01T00:00:00Z"))
    receipt.add(TestPurchase("21", of: "20", from: "2024-04-01T00:00:00Z"))
    // As Xcode writes it, without an original.
    receipt.add(TestPurchase("7", of: "", from: "2024-02-01T00:00:00Z"))
    receipt.key = try ReceiptAuthority.shared.strangeKey
    let contents = try AppReceipt(unverified: try receipt.base64())
    #expect(Set(contents.inApp.map(\.originalTransactionID)) == ["30", "20", "10", "7"])
    #expect(contents.environment == .production)
    #expect(contents.bundleID == "com.example.app")
  }

  @Test func `a receipt without purchases has none`() throws {
    let receipt = TestReceipt(by: try ReceiptAuthority.shared)
    #expect(try AppReceipt(unverified: try receipt.base64()).inApp == [])
  }

  // MARK: iOS 6

  private func transactionReceipt(
    _ info: String, _ outer: (String) -> String = { "{\n\t\"purchase-info\" = \"\($0)\";\n}" }
  ) -> String {
    Array(outer(Array(info.utf8).base64).utf8).base64
  }

  @Test func `receipts of iOS 6 are recognised`() throws {
    let info = """
      {
      \t"original-transaction-id" = "1000000046178817";
      \t"transaction-id" = "1000000046178820";
      \t"bid" = "com.example.app";
      \t"product-id" = "monthly";
      \t"purchase-date-ms" = "1335798355868";
      }
      """
    let spellings: [(String) -> String] = [
      {
        "{\n\t\"signature\" = \"Ag==\";\n\t\"purchase-info\" = \"\($0)\";\n\t\"pod\" = \"100\";\n}"
      },
      { "{\"signature\"=\"Ag==\";\"purchase-info\"=\"\($0)\";\"pod\"=\"100\";}\n" },
      { "\n{  signature   =  \"Ag==\" ;  \"purchase-info\"  =  \"\($0)\" ; pod = 100 ;  }" },
    ]
    for spelling in spellings {
      let text = transactionReceipt(info, spelling)
      // It is evidence of nothing.
      let verdict = try ReceiptAuthority.shared.verifier().verify(text)
      #expect(verdict.failure?.reason == .transactionReceipt)
    }
  }

  @Test func `property lists that are no receipts are refused`() {
    let texts = [
      transactionReceipt("{ }"), transactionReceipt("{ \"transaction-id\" = \"1\"; "),
      transactionReceipt("{ \"transaction-id\" = \"\"; }"),
      transactionReceipt("{ \"transaction-id\" = \"1\"; \"transaction-id\" = \"2\"; }"),
      transactionReceipt("{ \"transaction-id\" = \"1\"; } }"),
      transactionReceipt("{ \"transaction-id\" = \"1\"; }") { _ in "{ \"purchase-info\" = 7; }" },
      transactionReceipt("{ \"transaction-id\" = \"1\"; }") { "[\($0)]" },
      transactionReceipt("{ \"transaction-id\" = \"1\"; }") { "{ \"purchase-info\" = \"\($0)\" }" },
      Array("{\"Store\":\"GooglePlay\",\"Payload\":\"AAAA\"}".utf8).base64,
    ]
    for text in texts {
      #expect(throws: LocalReceiptRefusal.self, "\(text)") { try AppReceipt(unverified: text) }
    }
  }

  // MARK: Unity

  @Test func `Unity's wrapper comes off, whichever way it is sent`() {
    let wrapped = """
      {"Store":"AppleAppStore","TransactionID":"1000000046178817","Payload":"MIIB/+=="}
      """
    let cases: [(text: String, payload: String)] = [
      (wrapped, "MIIB/+=="), ("\n " + wrapped, "MIIB/+=="),
      (Array(wrapped.utf8).base64, "MIIB/+=="),
      (wrapped.replacing("AppleAppStore", with: "MacAppStore"), "MIIB/+=="),
      (wrapped.replacing("/", with: "\\/"), "MIIB/+=="),
    ]
    for (text, payload) in cases { #expect(UnityReceipt.unwrapping(text) == payload) }
    let others = [
      wrapped.replacing("AppleAppStore", with: "GooglePlay"),
      wrapped.replacing("Payload", with: "payload"), wrapped.replacing("\"MIIB/+==\"", with: "7"),
      "{}", "{", "", "MIIB", "eyJ9", Array("{\"signature\":\"1\"}".utf8).base64,
    ]
    for text in others { #expect(UnityReceipt.unwrapping(text) == text) }
  }
}

extension [UInt8] {
  var base64: String { Data(self).base64EncodedString() }
}
