import Foundation
import JSONText
import Secrets
import Subscriptions
import Testing

@testable import AppStore

/// Notifications of version 1: the fields read, and the accepted senders.
struct NotificationV1Tests {
  /// A published notification.
  private static func sample(_ name: String) throws -> [UInt8] {
    let url = try #require(
      Bundle.module.url(
        forResource: name, withExtension: "json", subdirectory: "Samples/notifications-v1"))
    return Array(try Data(contentsOf: url))
  }

  private static func notification(_ json: JSONValue) -> NotificationV1? {
    guard case .unsigned(let notification) = NotificationBody(parsing: json.bytes) else {
      return nil
    }
    return notification
  }

  // swift-format-ignore
  @Test(arguments: [
    // file                                type                        renews  next             changed                receipt
    ("CANCEL",                           "CANCEL",                    false, "year-premium",  nil,                   "expiredreceipt=="),
    ("DID_CHANGE_RENEWAL_PREF",          "DID_CHANGE_RENEWAL_PREF",   true,  "month-premium", nil,                   "latestreceipt=="),
    ("DID_CHANGE_RENEWAL_STATUS_to_off", "DID_CHANGE_RENEWAL_STATUS", false, "year-premium",  1_560_202_787_000,     "latestreceipt=="),
    ("DID_CHANGE_RENEWAL_STATUS_to_on",  "DID_CHANGE_RENEWAL_STATUS", true,  "year-premium",  1_560_202_787_000,     "latestreceipt=="),
    ("INITIAL_BUY_to_subscribe",         "INITIAL_BUY",               true,  "year-premium",  nil,                   "latestreceipt=="),
    ("INITIAL_BUY_to_trial",             "INITIAL_BUY",               true,  "year-premium",  nil,                   "latestreceipt=="),
    ("INTERACTIVE_RENEWAL",              "INTERACTIVE_RENEWAL",       true,  "year-premium",  nil,                   "latestreceipt=="),
    ("RENEWAL",                          "RENEWAL",                   true,  "year-premium",  nil,                   "latestreceipt=="),
  ] as [(String, String, Bool, String, Int64?, String)])
  func `the published ones are read`(
    file: String, type: String, renews: Bool, next: String, changed: Int64?, receipt: String
  ) throws {
    let bytes = try Self.sample(file)
    guard case .unsigned(let notification) = NotificationBody(parsing: bytes) else {
      Issue.record("\(file) is not read")
      return
    }
    #expect(notification.notificationType == type)
    #expect(notification.environment == .production)
    #expect(notification.originalTransactionID == "123456789012345")
    #expect(notification.autoRenews == renews)
    #expect(notification.autoRenewProductID?.rawValue == next)
    #expect(notification.autoRenewStatusChangedAt?.milliseconds == changed)
    #expect(notification.receiptData == receipt)
    // Their authors took the app and the secret out.
    #expect(notification.bundleID == nil)
    #expect(notification.password == nil)
    // Nothing is lost.
    #expect(notification.body == (try JSONValue(parsing: bytes, toleratesRepetitions: true)))
  }

  /// The shape since 2021-03-10.
  private static let new: JSONValue = [
    "notification_type": "CONSUMPTION_REQUEST", "password": "secret", "environment": "Sandbox",
    "bid": "com.example.app", "auto_renew_status": "false",
    "unified_receipt": [
      "status": 0, "environment": "Sandbox", "latest_receipt": "bmV3", "latest_receipt_info": [],
    ],
  ]

  @Test func `the new shape is read, with nothing in its list`() throws {
    let notification = try #require(Self.notification(Self.new))
    #expect(notification.environment == .sandbox)
    #expect(notification.bundleID == "com.example.app")
    #expect(notification.receiptData == "bmV3")
    #expect(notification.originalTransactionID == nil)
    #expect(notification.password == "secret")
    #expect(notification.body["password"] == nil)
    #expect(notification.body.keys.count == 5)
  }

  // swift-format-ignore
  @Test(arguments: [
    // difference                                                              the receipt  the line
    (["latest_receipt": "b2xk"],                                                 "bmV3",  nil),
    (["latest_receipt": "b2xk", "unified_receipt": [:]],                          "b2xk",  nil),
    (["unified_receipt": .null],                                                 nil,     nil),
    (["unified_receipt": "text"],                                                nil,     nil),
    (["latest_expired_receipt": "b2xk", "unified_receipt": .null],               "b2xk",  nil),
    (["original_transaction_id": "7"],                                           "bmV3",  "7"),
    (["original_transaction_id": 7],                                             "bmV3",  "7"),
    (["latest_receipt_info": ["original_transaction_id": "8"]],                  "bmV3",  "8"),
    (["unified_receipt": ["latest_receipt_info": [["original_transaction_id": "8"], ["original_transaction_id": "8"]]]], nil, "8"),
    (["unified_receipt": ["latest_receipt_info": [["original_transaction_id": "8"], ["original_transaction_id": "9"]]]], nil, nil),
  ] as [(JSONValue, String?, String?)])
  func `both shapes, and mixtures of them`(
    change: JSONValue, receipt: String?, line: String?
  ) throws {
    let notification = try #require(Self.notification(Self.new.with(change)))
    #expect(notification.receiptData == receipt)
    #expect(notification.originalTransactionID?.rawValue == line)
  }

  @Test func `a bundle id stands with the transaction in old ones`() throws {
    let old: JSONValue = [
      "notification_type": "RENEWAL", "latest_receipt_info": ["bid": "com.example.old"],
    ]
    #expect(try #require(Self.notification(old)).bundleID == "com.example.old")
  }

  @Test func `its name is that of its body without the password`() throws {
    let name = try #require(Self.notification(Self.new)).id
    #expect(name.wholeMatch(of: /v1:[0-9a-f]{64}/) != nil)
    let spaced = String(decoding: Self.new.bytes, as: UTF8.self)
      .replacing(",", with: " ,\n").replacing("\"secret\"", with: "\"another\"")
    guard case .unsigned(let again) = NotificationBody(parsing: spaced.utf8) else {
      Issue.record("It is not read.")
      return
    }
    #expect(again.id == name)
    let other = try #require(Self.notification(Self.new.with(["auto_renew_status": "true"])))
    #expect(other.id != name)
  }

  @Test(arguments: [
    "", "[]", "{}", "text", "null", #"{"signedPayload": 7}"#, #"{"notification_type": ""}"#,
    #"{"notification_type": {}}"#, #"{"notification_type": "A", "notification_type": "B"}"#,
    #"{"notification_type": "A", "a": {"b": 1, "b": 2}}"#,
    #"{"password": "secret"}"#, #"{"notification_type": "A"} {}"#,
  ])
  func `what is neither is nothing`(text: String) {
    if let body = NotificationBody(parsing: text.utf8) { Issue.record("It is taken for \(body).") }
  }

  @Test func `what is both is believed for its signatures alone`() {
    let both = Self.new.with(["signedPayload": "a.b.c"])
    guard case .signed("a.b.c") = NotificationBody(parsing: both.bytes) else {
      Issue.record("It is taken for version 1.")
      return
    }
  }

  // MARK: Who sends it

  private static let wrongSecret = "wrong secret"
  private static let wrongApp = "wrong app"

  // swift-format-ignore
  @Test(arguments: [
    // password   bid    who
    ("one",       "a.one",   "a.one"),
    ("two",       "a.two",   "a.two"),
    ("two",       "a.one",   wrongSecret),
    ("",          "a.one",   wrongSecret),
    (nil,         "a.one",   wrongSecret),
    ("one ",      "a.one",   wrongSecret),
    ("two",       "a.three", "a.three"),
    ("one",       "a.none",  wrongSecret),
    (nil,         "a.none",  wrongSecret),
    ("one",       "a.other", wrongApp),
    ("none",      "a.other", wrongApp),
    ("one",       nil,       "a.one"),
    ("two",       nil,       "several"),
    ("none",      nil,       wrongSecret),
    (nil,         nil,       wrongSecret),
  ] as [(String?, String?, String)])
  func `the secret is that of the app which is named`(
    password: String?, bundleID: String?, who: String
  ) throws {
    let apps = try AppStoreApps([
      AppStoreApp(bundleID: "a.one", sharedSecret: "one"),
      AppStoreApp(bundleID: "a.two", sharedSecret: "two"),
      AppStoreApp(bundleID: "a.three", sharedSecret: "two"),
      AppStoreApp(bundleID: "a.none"),
    ])
    var members: [JSONValue.Member] = [.init(key: "notification_type", value: "DID_RENEW")]
    if let password { members.append(.init(key: "password", value: .string(password))) }
    if let bundleID { members.append(.init(key: "bid", value: .string(bundleID))) }
    let notification = try #require(Self.notification(.object(members)))
    let found =
      switch apps.sender(of: notification) {
      case .app(let bundleID): bundleID ?? "several"
      case .wrongSecret: Self.wrongSecret
      case .wrongBundleID: Self.wrongApp
      }
    #expect(found == who)
  }
}

extension JSONValue {
  /// This object with some members replaced or added, and those that are null left out.
  fileprivate func with(_ changes: JSONValue) -> JSONValue {
    guard case .object(var members) = self, case .object(let changes) = changes else { return self }
    for change in changes {
      members.removeAll { $0.key == change.key }
      if change.value != .null { members.append(change) }
    }
    return .object(members)
  }
}
