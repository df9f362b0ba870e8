import AppStore
import Foundation
import Subscriptions
import Testing

/// Every form in which Apple has been seen to write the same fact.
struct AnswerQuirkTests {
  /// Forms of `month`, which all mean the same.
  // swift-format-ignore
  @Test(arguments: [
    ("as documented",            [:]),
    ("native numbers",           ["transaction_id": 11, "original_transaction_id": 10,
                                  "web_order_line_item_id": 900, "quantity": 1,
                                  "purchase_date_ms": 1000, "expires_date_ms": 4000,
                                  "original_purchase_date_ms": 900]),
    ("native booleans",          ["is_trial_period": false, "is_in_intro_offer_period": false]),
    ("booleans as numbers",      ["is_trial_period": "0", "is_in_intro_offer_period": 0]),
    ("booleans absent",          ["is_trial_period": .null, "is_in_intro_offer_period": .null]),
    ("quantity absent",          ["quantity": .null]),
    ("dates as text",            ["purchase_date_ms": .null, "expires_date_ms": .null,
                                  "expires_date": "1970-01-01 00:00:04 Etc/GMT"]),
    ("iOS 6 expiry",             ["expires_date_ms": .null, "expires_date": "4000"]),
    ("iOS 6 expiry, formatted",  ["expires_date": "4000",
                                  "expires_date_formatted": "1970-01-01 00:00:04 Etc/GMT"]),
    ("only the formatted date",  ["expires_date_ms": .null,
                                  "expires_date_formatted": "1970-01-01 00:00:04 Etc/GMT"]),
    ("broken ms, good text",     ["expires_date_ms": "soon",
                                  "expires_date": "1970-01-01 00:00:04 Etc/GMT"]),
    ("dates in RFC 3339",        ["expires_date_ms": .null,
                                  "expires_date": "1970-01-01T00:00:04Z"]),
    ("empty texts",              ["cancellation_date": "", "cancellation_date_ms": "",
                                  "promotional_offer_id": "", "in_app_ownership_type": ""]),
    ("ownership spelled out",    ["in_app_ownership_type": "PURCHASED"]),
    ("is_upgraded spelled out",  ["is_upgraded": "false"]),
    ("fields that are unknown", ["storefront": "DEU", "advanced": ["x": [1, true, .null]]]),
  ] as [(String, [String: JSON])])
  func `the same transaction in another form`(
    form: String, change: [String: JSON]
  ) async throws {
    let expected = try await receipt(answer(latest: [month]))
    let actual = try await receipt(answer(latest: [month.with(change)]))
    #expect(actual == expected)
    #expect(actual.records.count == 1)
    #expect(actual.unreadable.isEmpty)
  }

  @Test func `the transaction itself`() async throws {
    let key = TransactionKey(
      line: OriginalTransactionKey(.production, "10"), transactionID: "11", productID: "monthly")
    #expect(
      try await receipt(answer(latest: [month])).records == [
        TransactionRecord(
          key: key, asOf: Timestamp(milliseconds: 5000),
          purchaseDate: Timestamp(milliseconds: 1000),
          originalPurchaseDate: Timestamp(milliseconds: 900),
          expiresDate: Timestamp(milliseconds: 4000), webOrderLineItemID: "900",
          revocation: .notMentioned)
      ])
  }

  /// Forms of the whole answer, which all mean the same.
  @Test(arguments: ["array of receipts", "single object", "repeated", "renewal as object"])
  func `the same answer in another shape`(form: String) async throws {
    let renewal: JSON = ["original_transaction_id": "10", "auto_renew_status": "1"]
    let plain = answer(latest: [month], renewals: [renewal])
    let other: JSON =
      switch form {
      case "array of receipts": plain.with(["receipt": .array([plain["receipt"]])])
      case "single object": plain.with(["latest_receipt_info": month])
      case "repeated":
        answer(inApp: [month, month], latest: [month, month], renewals: [renewal, renewal])
      default: plain.with(["pending_renewal_info": renewal.with(["auto_renew_status": 1])])
      }
    #expect(try await receipt(other) == receipt(plain))
  }

  // swift-format-ignore
  @Test(arguments: [
    ([:],                                                          PeriodType.normal, nil, nil),
    (["is_trial_period": "true"],                                  .trial,  .introductory, nil),
    (["is_trial_period": true],                                    .trial,  .introductory, nil),
    (["is_in_intro_offer_period": "true"],                         .intro,  .introductory, nil),
    (["promotional_offer_id": "back"],                             .offer,  .promotional,  "back"),
    (["offer_code_ref_name": "SPRING"],                            .offer,  .offerCode,    "SPRING"),
    (["offer_code_ref_name": "SPRING", "is_trial_period": "true"], .trial,  .offerCode,    "SPRING"),
  ] as [([String: JSON], PeriodType, OfferType?, String?)])
  func `what the period cost`(
    change: [String: JSON], type: PeriodType, offerType: OfferType?, offer: String?
  ) async throws {
    let record = try await receipt(answer(latest: [month.with(change)])).records.first
    #expect(record?.periodType == type)
    #expect(record?.offerType == offerType)
    #expect(record?.offerID == offer)
  }

  @Test func `family sharing, quantity, group and upgrade`() async throws {
    let record = try await receipt(
      answer(latest: [
        month.with([
          "in_app_ownership_type": "FAMILY_SHARED", "quantity": "3", "is_upgraded": "true",
          "subscription_group_identifier": 20_662_382,
        ])
      ])
    ).records.first
    #expect(record?.ownershipType == .familyShared)
    #expect(record?.quantity == 3)
    #expect(record?.isUpgraded == true)
    #expect(record?.subscriptionGroup == "20662382")
  }

  @Test func `an account token in any case, and one that is none`() async throws {
    let token = "7E3FB20B-4CDB-47CC-936D-99D65F608138"
    let texts: [JSON] = [.text(token), .text(token.lowercased()), "user-17", .null]
    let items = texts.enumerated().map { number, text in
      month.with(["transaction_id": .number(Int64(number)), "app_account_token": text])
    }
    let receipt = try await receipt(answer(latest: .array(items)))
    let uuid = try #require(UUID(uuidString: token))
    #expect(receipt.records.map(\.appAccountToken) == [uuid, uuid, nil, nil])
    #expect(receipt.unusableAppAccountTokens == 1)
  }

  @Test func `without identifiers there are stand-ins, always the same`() async throws {
    let noTransaction = month.with(["transaction_id": .null])
    let noOriginal = month.with(["original_transaction_id": .null, "transaction_id": "12"])
    let keys = try await receipt(answer(latest: [noTransaction, noOriginal])).records.map(\.key)
    #expect(Set(keys.map(\.transactionID)) == ["10@1000", "12"])
    #expect(Set(keys.map(\.line.originalTransactionID)) == ["10", "12"])
  }

  @Test func `identifiers up to 64 bits`() async throws {
    let transport = ScriptedTransport { _ in
      let body = """
        {"status": 0, "receipt": {"bundle_id": "com.example.app", "in_app": [{"product_id": "p", \
        "transaction_id": 18446744073709551615, "purchase_date_ms": 1}]}}
        """
      return AppStoreResponse(status: 200, body: Array(body.utf8))
    }
    let verifier = ReceiptVerifier(transport, apps: try apps("com.example.app"))
    let records = try await verifier.verify("cmVjZWlwdA==").verdict.receipt.records
    #expect(records.map(\.key.transactionID) == ["18446744073709551615"])
  }

  /// Unreadable entries and their problems; the other entries stay.
  // swift-format-ignore
  @Test(arguments: [
    (["product_id": .null],                      "product_id is missing"),
    (["product_id": "a\u{0}b"],                  "product_id contains control characters"),
    (["product_id": .text(String(repeating: "x", count: 256))],
                                                 "product_id is longer than 255 bytes"),
    (["transaction_id": .null, "original_transaction_id": .null],"transaction_id is missing"),
    (["transaction_id": ["nested": true]],
                                        "transaction_id is neither a string nor an integer"),
    (["purchase_date": .null, "purchase_date_ms": .null],"purchase_date is missing"),
    (["purchase_date": "yesterday", "purchase_date_ms": .null],"purchase_date is not a date"),
    (["expires_date_ms": "soon"],                "expires_date_ms is not a date"),
    (["expires_date_ms": []],                    "expires_date_ms is not a date"),
    (["expires_date_ms": -1],                    "expires_date_ms is not a date"),
    (["expires_date_ms": "253402300800000"],     "expires_date_ms is not a date"),
    (["cancellation_date_ms": "never"],          "cancellation_date_ms is not a date"),
    (["quantity": "many"],                       "quantity is not an integer"),
    (["quantity": 0],                            "quantity is out of range"),
    (["is_trial_period": "perhaps"],             "is_trial_period is neither true nor false"),
    (["is_upgraded": 2],                         "is_upgraded is neither true nor false"),
  ] as [([String: JSON], String)])
  func `one entry that cannot be read does not cost the others`(
    change: [String: JSON], fault: String
  ) async throws {
    let other = month.with(["transaction_id": "99"])
    let receipt = try await receipt(answer(latest: [month.with(change), other]))
    #expect(receipt.records.map(\.key.transactionID) == ["99"])
    #expect(receipt.unreadable.map(\.description) == ["latest_receipt_info: \(fault)"])
  }

  // swift-format-ignore
  @Test(arguments: [
    (["quantity": "many"],                                "1000",  nil,    true),
    (["quantity": "many"],                                "2001",  nil,    true),
    (["quantity": "many"],                                "2000",  "2000", false),
    (["quantity": "many"],                                "1999",  "2000", false),
    (["transaction_id": .null, "original_transaction_id": .null], "2001", "2000", true),
    (["purchase_date": .null],                            nil,     "2000", false),
    (["purchase_date": .null],                            nil,     nil,    true),
  ] as [([String: JSON], String?, String?, Bool)])
  func `an entry that cannot be read can hide a purchase that is newer than what was read`(
    change: [String: JSON], date: String?, newest: String?, isHidden: Bool
  ) async throws {
    let unreadable = month.with(change).with([
      "purchase_date": .null, "purchase_date_ms": date.map { .text($0) } ?? .null,
    ])
    let other = month.with([
      "transaction_id": "99", "purchase_date_ms": newest.map { .text($0) } ?? .null,
    ])
    let items = [unreadable] + (newest == nil ? [] : [other])
    let receipt = try await receipt(answer(latest: .array(items)))
    #expect(receipt.unreadable.count == 1)
    #expect(
      receipt.unreadable[0].hidesPurchase(after: receipt.records.map(\.purchaseDate).max())
        == isHidden)
  }

  @Test(arguments: ["0", ""])
  func `a line item id that names no charge leaves the one of the other list`(none: String)
    async throws
  {
    let listed = month.with(["web_order_line_item_id": .text(none)])
    #expect(try await receipt(answer(latest: [listed])).records[0].webOrderLineItemID == nil)
    let both = try await receipt(answer(inApp: [month], latest: [listed]))
    #expect(both.records.map(\.webOrderLineItemID) == ["900"])
  }

  @Test func `entries that are no objects`() async throws {
    let receipt = try await receipt(answer(inApp: [.null, "x", 7, [month], month]))
    #expect(receipt.records.count == 1)
    #expect(
      receipt.unreadable.map(\.description) == [
        "in_app: an entry is not an object", "in_app: an entry is not an object",
        "in_app: an entry is not an object", "in_app: an entry is null",
      ])
  }

  @Test func `an empty in_app is a valid receipt`() async throws {
    #expect(try await receipt(answer()).records.isEmpty)
    let receipt = try await receipt(answer(inApp: [], latest: [month]))
    #expect(receipt.records.count == 1)
  }

  @Test func `what Apple knows now wins field by field, and dates the record`() async throws {
    let old = month.with([
      "cancellation_date_ms": "3000", "is_trial_period": "true", "promotional_offer_id": "back",
    ])
    let new = month.with(["is_trial_period": "false", "expires_date_ms": "4500"])
    let records = try await receipt(answer(inApp: [old], latest: [new])).records
    let record = try #require(records.first)
    #expect(records.count == 1)
    #expect(record.expiresDate == Timestamp(milliseconds: 4500))
    #expect(record.offerID == "back")
    #expect(record.periodType == .offer)
    // The refund that the receipt held has been reversed since.
    #expect(record.revocation == .notMentioned)
    #expect(record.asOf == Timestamp(milliseconds: 5000))
  }

  @Test func `what Apple leaves out now is taken from the receipt`() async throws {
    let full = month.with([
      "quantity": 2, "is_in_intro_offer_period": "true", "in_app_ownership_type": "FAMILY_SHARED",
      "subscription_group_identifier": "7", "offer_code_ref_name": "SPRING", "is_upgraded": true,
      "app_account_token": "7e3fb20b-4cdb-47cc-936d-99d65f608138",
    ])
    let bare: JSON = [
      "product_id": "monthly", "transaction_id": "11", "original_transaction_id": "10",
      "purchase_date_ms": "1000",
    ]
    let merged = try await receipt(answer(inApp: [full], latest: [bare]))
    #expect(try await merged == receipt(answer(latest: [full])))
  }

  @Test func `what only the receipt held is as old as the receipt`() async throws {
    let second = month.with(["transaction_id": "12", "cancellation_date_ms": "3000"])
    let records = try await receipt(answer(inApp: [month, second])).records
    #expect(records.map(\.asOf) == Array(repeating: Timestamp(milliseconds: 2000), count: 2))
    #expect(
      records.map(\.revocation) == [
        .notSaid, .mentioned(at: Timestamp(milliseconds: 3000), reason: nil),
      ])
  }

  @Test func `a receipt without a date is as old as the newest thing in it`() async throws {
    let second = month.with(["transaction_id": "12", "purchase_date_ms": "1500"])
    let records = try await receipt(
      answer(inApp: [second, month], receipt: ["receipt_creation_date_ms": .null])
    ).records
    #expect(records.map(\.asOf) == Array(repeating: Timestamp(milliseconds: 1500), count: 2))
  }

  @Test func `without a request date it is the moment of the answer`() async throws {
    let receipt = try await receipt(
      answer(latest: [month], receipt: ["request_date_ms": .null]))
    #expect((.zero ..< .seconds(60)).contains(receipt.requestDate - answeredAt))
    #expect(receipt.records.map(\.asOf) == [receipt.requestDate])
  }

  @Test func `a restored purchase keeps both of its dates`() async throws {
    let restored = month.with(["purchase_date_ms": "4800"])
    let record = try await receipt(answer(latest: [restored])).records.first
    #expect(record?.purchaseDate == Timestamp(milliseconds: 4800))
    #expect(record?.originalPurchaseDate == Timestamp(milliseconds: 900))
    #expect(record?.chargedAt == Timestamp(milliseconds: 900))
  }

  @Test func `a subscription's transaction without its end is not taken for one for ever`()
    async throws
  {
    let endless = month.with(["transaction_id": "12", "expires_date_ms": .null])
    let pass = endless.with(["transaction_id": "13", "product_id": "pass"])
    let receipt = try await receipt(answer(latest: [month, endless, pass]))
    #expect(receipt.records.map(\.key.transactionID) == ["11", "13"])
    #expect(receipt.unreadable.map(\.reason).first?.contains("expires_date is missing") == true)
  }

  @Test func `several original transactions in one receipt`() async throws {
    let shared = month.with(["transaction_id": "21", "original_transaction_id": "20"])
    let receipt = try await receipt(
      answer(
        latest: [shared, month],
        renewals: [
          ["original_transaction_id": "20", "auto_renew_status": "0"],
          ["original_transaction_id": "10", "auto_renew_status": "1"],
          ["auto_renew_status": "1"],
        ]))
    #expect(receipt.statuses[OriginalTransactionKey(.production, "10")]?.autoRenews == true)
    #expect(receipt.statuses[OriginalTransactionKey(.production, "20")]?.autoRenews == false)
    #expect(receipt.statuses.count == 2)
    #expect(
      receipt.unreadable.map(\.description) == [
        "pending_renewal_info: original_transaction_id is missing"
      ])
  }

  @Test func `dates outside every calendar don't stop the program`() async throws {
    let receipt = try await receipt(
      answer(
        latest: [
          month.with(["purchase_date": .null, "purchase_date_ms": "9223372036854775807"])
        ],
        receipt: ["request_date_ms": "99999999999999999999"]))
    #expect(receipt.records.isEmpty)
    #expect(receipt.unreadable.count == 1)
  }
}
