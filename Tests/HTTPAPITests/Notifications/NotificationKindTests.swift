import AppStore
import JSONText
import LedgerStorage
import Subscriptions
import Testing

@testable import HTTPAPI

/// Each type and subtype of Apple's notifications: from a state and a notification to a state.
///
/// Anna's account has bought a month, from day 0 to day 30, and claimed it.
struct NotificationKindTests {
  private static let month = Payment(id: "1", from: 0, to: 30)
  private static let renewal = Payment(id: "2", from: 30, to: 60, reason: "RENEWAL")
  private static let refunded = Payment(id: "1", from: 0, to: 30, revokedOn: 5)

  private static func on(_ end: Double = 30, next: String? = nil) -> Future {
    Future(isOn: true, next: next, end: end)
  }

  private static func off(_ end: Double = 30, intent: Int64? = nil, retry: Bool? = nil) -> Future {
    Future(isOn: false, end: end, isInRetry: retry, intent: intent)
  }

  private static func grace(until: Double) -> Future {
    Future(isOn: true, end: 30, graceUntil: until, isInRetry: true)
  }

  private static let retry = Future(isOn: true, end: 30, isInRetry: true)
  private static let year = Payment(id: "2", product: "yearly", from: 5, to: 370)
  private static let wasOff = Notice(
    "DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_DISABLED", month, off(), on: 3)
  private static let inGrace = Notice(
    "DID_FAIL_TO_RENEW", "GRACE_PERIOD", month, grace(until: 46), on: 30.1)
  private static let inRetry = Notice("DID_FAIL_TO_RENEW", nil, month, retry, on: 30.1)
  private static let lapsed = Notice("EXPIRED", "VOLUNTARY", month, off(intent: 1), on: 30.1)
  private static let toBasic = Notice(
    "DID_CHANGE_RENEWAL_PREF", "DOWNGRADE", month, on(next: "basic"), on: 3)
  private static let wasRefunded = Notice("REFUND", nil, refunded, off(), on: 5.1)

  struct Row: Sendable, CustomTestStringConvertible {
    /// Earlier notices, after Anna's purchase; nil: not even that.
    var before: [Notice]?
    var stands: String
    var notice: Notice
    var then: String

    init(_ before: [Notice]?, _ stands: String, _ notice: Notice, _ then: String) {
      self.before = before
      self.stands = stands
      self.notice = notice
      self.then = then
    }

    var testDescription: String {
      "\(notice.type) \(notice.subtype ?? "-"): \(stands) → \(then)"
    }
  }

  // swift-format-ignore
  static let subscriptions: [Row] = [
    // before    stands                                      notice                                                                                   and stands
    Row(nil,       "unknown",                                Notice("SUBSCRIBED", "INITIAL_BUY", month, on(), on: 1),                                   "unowned, active, on, until 30"),
    Row([wasOff, lapsed], "anna, expired, off, until 30, no access", Notice("SUBSCRIBED", "RESUBSCRIBE", Payment(id: "2", from: 40, to: 70), on(70), on: 40.1), "unowned, active, on, until 70"),
    Row([],        "anna, active, on, until 30, access",     Notice("DID_RENEW", nil, renewal, on(60), on: 30.1),                                       "anna, active, on, until 60, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("DID_RENEW", nil, renewal, on(60), on: 29.2),                                       "anna, active, on, until 60, access"),
    Row([inRetry], "anna, in_billing_retry, on, until 30, no access", Notice("DID_RENEW", "BILLING_RECOVERY", Payment(id: "2", from: 50, to: 80, reason: "RENEWAL"), on(80), on: 50.1), "anna, active, on, until 80, access"),
    Row([inGrace], "anna, in_grace_period, on, until 30, access", Notice("DID_RENEW", "BILLING_RECOVERY", renewal, on(60), on: 40.1),                   "anna, active, on, until 60, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("DID_CHANGE_RENEWAL_PREF", "UPGRADE", year, Future(product: "yearly", isOn: true, end: 370), on: 5.1), "anna, active, on, until 370, access"),
    // The replaced charge would have lasted longer, and no source reports the replacement.
    Row([],        "anna, active, on, until 30, access",     Notice("DID_CHANGE_RENEWAL_PREF", "UPGRADE", Payment(id: "2", product: "yearly", from: 5, to: 12), Future(product: "yearly", isOn: true, end: 12), on: 5.1), "anna, active, on, until 12, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("DID_CHANGE_RENEWAL_PREF", "DOWNGRADE", month, on(next: "basic"), on: 5),           "anna, active, on, next basic, until 30, access"),
    Row([toBasic], "anna, active, on, next basic, until 30, access", Notice("DID_CHANGE_RENEWAL_PREF", nil, month, on(), on: 5),                       "anna, active, on, until 30, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_DISABLED", month, off(), on: 5),           "anna, active, off, until 30, access"),
    Row([wasOff],  "anna, active, off, until 30, access",    Notice("DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_ENABLED", month, on(), on: 5),             "anna, active, on, until 30, access"),
    // On a commitment Apple says “disabled” and goes on renewing: the status counts, never the subtype.
    Row([],        "anna, active, on, until 30, access",     Notice("DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_DISABLED", month, Future(isOn: true, end: 30, isCommitment: true), on: 5), "anna, active, on, until 30, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("DID_FAIL_TO_RENEW", "GRACE_PERIOD", month, grace(until: 46), on: 30.1),            "anna, in_grace_period, on, until 30, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("DID_FAIL_TO_RENEW", nil, month, retry, on: 30.1),                                  "anna, in_billing_retry, on, until 30, no access"),
    Row([inGrace], "anna, in_grace_period, on, until 30, access", Notice("GRACE_PERIOD_EXPIRED", nil, month, Future(isOn: true, end: 30, graceUntil: 46, isInRetry: true), on: 46.1), "anna, in_billing_retry, on, until 30, no access"),
    Row([wasOff],  "anna, active, off, until 30, access",    Notice("EXPIRED", "VOLUNTARY", month, off(intent: 1), on: 30.1),                           "anna, expired, off, until 30, no access"),
    Row([inRetry], "anna, in_billing_retry, on, until 30, no access", Notice("EXPIRED", "BILLING_RETRY", month, off(intent: 2, retry: false), on: 90.1), "anna, expired, off, until 30, no access"),
    Row([],        "anna, active, on, until 30, access",     Notice("EXPIRED", "PRICE_INCREASE", month, off(intent: 3), on: 30.1),                      "anna, expired, off, until 30, no access"),
    Row([],        "anna, active, on, until 30, access",     Notice("EXPIRED", "PRODUCT_NOT_FOR_SALE", month, off(intent: 4), on: 30.1),                "anna, expired, off, until 30, no access"),
    Row([],        "anna, active, on, until 30, access",     Notice("EXPIRED", nil, month, off(intent: 5), on: 30.1),                                   "anna, expired, off, until 30, no access"),
    Row([wasOff],  "anna, active, off, until 30, access",    Notice("OFFER_REDEEMED", nil, month, on(), on: 5),                                         "anna, active, on, until 30, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("OFFER_REDEEMED", "UPGRADE", year, Future(product: "yearly", isOn: true, end: 370), on: 5.1), "anna, active, on, until 370, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("OFFER_REDEEMED", "DOWNGRADE", month, on(next: "basic"), on: 5),                    "anna, active, on, next basic, until 30, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("PRICE_INCREASE", "PENDING", month, on(), on: 5),                                   "anna, active, on, until 30, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("PRICE_INCREASE", "ACCEPTED", month, on(), on: 5),                                  "anna, active, on, until 30, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("REFUND", nil, refunded, off(), on: 5.1),                                           "anna, revoked, off, until 30, no access"),
    Row([Notice("DID_RENEW", nil, renewal, on(60), on: 30.1)], "anna, active, on, until 60, access", Notice("REFUND", nil, Payment(id: "1", from: 0, to: 30, revokedOn: 35), on(60), on: 35.1), "anna, active, on, until 60, access"),
    Row(nil,       "unknown",                                Notice("REFUND", nil, refunded, off(), on: 5.1),                                           "unowned, revoked, off, until 30"),
    Row([],        "anna, active, on, until 30, access",     Notice("REFUND_DECLINED", nil, month, on(), on: 5),                                        "anna, active, on, until 30, access"),
    Row([wasRefunded], "anna, revoked, off, until 30, no access", Notice("REFUND_REVERSED", nil, month, off(), on: 8),                                  "anna, active, off, until 30, access"),
    Row([wasRefunded, Notice("REFUND_REVERSED", nil, month, off(), on: 8)], "anna, active, off, until 30, access", Notice("REFUND", nil, Payment(id: "1", from: 0, to: 30, revokedOn: 9), off(), on: 9.1), "anna, revoked, off, until 30, no access"),
    Row([],        "anna, active, on, until 30, access",     Notice("CONSUMPTION_REQUEST", nil, month, on(), on: 5),                                    "anna, active, on, until 30, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("RENEWAL_EXTENDED", nil, Payment(id: "1", from: 0, to: 44), on(44), on: 5),         "anna, active, on, until 44, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("RENEWAL_EXTENSION", "FAILURE", month, on(), on: 5),                                "anna, active, on, until 30, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("METADATA_UPDATE", nil, month, on(), on: 5),                                        "anna, active, on, until 30, access"),
    Row([],        "anna, active, on, until 30, access",     Notice("PRICE_CHANGE", nil, month, on(), on: 5),                                           "anna, active, on, until 30, access"),
    // Types that Apple may add: their contents are recorded.
    Row([],        "anna, active, on, until 30, access",     Notice("SOMETHING_NEW", "AND_SO_ON", renewal, on(60), on: 30.1),                           "anna, active, on, until 60, access"),
    // Old payloads don't say why a charge was made: the type does.
    Row([wasOff],  "anna, active, off, until 30, access",    Notice("DID_RENEW", nil, Payment(id: "2", from: 30, to: 60, reason: nil), on(60), on: 30.1), "anna, active, on, until 60, access"),
  ]

  @Test(arguments: subscriptions)
  func `what becomes of a subscription`(row: Row) async throws {
    try await TestAPI.run { api in
      for product in ["monthly", "yearly", "basic"] {
        try await api.describe(ProductID(product), "premium")
      }
      if let before = row.before {
        let bought = try await api.claim(Self.month, Self.on(), by: "anna", on: 0.01)
        try #require(bought.status == 200)
        for notice in before { #expect(try await api.deliver(notice).status == 200) }
      }
      #expect(try await api.state() == row.stands)
      #expect(try await api.deliver(row.notice).status == 200)
      #expect(try await api.state() == row.then)
      // The same again says nothing new, whether it is a repetition or another one.
      let entries = try await api.count("ledger_entry")
      #expect(try await api.deliver(row.notice).status == 200)
      var another = row.notice
      another.id += "-again"
      #expect(try await api.deliver(another).status == 200)
      #expect(try await api.count("ledger_entry") == entries)
      #expect(try await api.openJobs() == 0)
    }
  }

  // swift-format-ignore
  @Test(arguments: [
    // product           Apple's type                 until  type                        then
    ("coins.100",   "Consumable",                  nil,   ProductType.consumable,    "unowned, bought, off",                 "anna, bought, off, no access"),
    ("lifetime",    "Non-Consumable",              nil,   .nonConsumable,            "unowned, active, off",                 "anna, active, off, access"),
    ("season.pass", "Non-Renewing Subscription",   nil,   .nonRenewing,              "unowned, active, off, until 31",       "anna, active, off, until 31, access"),
  ] as [(String, String, Double?, ProductType, String, String)])
  func `ONE_TIME_CHARGE is recorded, and the claimant's`(
    product: String, name: String, until: Double?, type: ProductType, notice: String, claimed: String
  ) async throws {
    try await TestAPI.run { api in
      try await api.describe(
        ProductID(product), "thing", type: type, period: type == .nonRenewing ? "P1M" : nil)
      let payment = Payment(id: "1", product: product, type: name, from: 0, to: until)
      #expect(try await api.state() == "unknown")
      try await api.deliver(Notice("ONE_TIME_CHARGE", nil, payment, on: 0.1))
      #expect(try await api.state() == notice)
      try await api.claim(payment, by: "anna", on: 0.2)
      #expect(try await api.state() == claimed)
    }
  }

  @Test func `REVOKE ends a family member's access, and the purchaser's goes on`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      let member = Payment(id: "71", line: "7000", from: 0, to: 30, isFamilyShared: true)
      let future = Future(line: "7000", isOn: true, end: 30)
      try await api.claim(Self.month, Self.on(), by: "anna", on: 0.01)
      try await api.deliver(Notice("SUBSCRIBED", "INITIAL_BUY", member, future, on: 0.1))
      try await api.claim(member, future, by: "ben", on: 0.2)
      #expect(try await api.state(of: "7000") == "ben, active, on, until 30, access")
      var revoked = member
      revoked.revokedOn = 5
      try await api.deliver(Notice("REVOKE", nil, revoked, future, on: 5.1))
      #expect(try await api.state(of: "7000") == "ben, revoked, off, until 30, no access")
      #expect(try await api.state() == "anna, active, on, until 30, access")
      // Access again.
      try await api.deliver(
        Notice(
          "SUBSCRIBED", "RESUBSCRIBE",
          Payment(id: "72", line: "7000", from: 8, to: 30, isFamilyShared: true), future, on: 8.1))
      #expect(try await api.state(of: "7000") == "unowned, active, on, until 30")
    }
  }

  @Test(arguments: ["MIGRATION", "MIGRATE"])
  func `MIGRATION links the original transaction with the one that it continues`(type: String)
    async throws
  {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.describe("advanced", "premium")
      try await api.claim(Self.month, Self.on(), by: "anna", on: 0.01)
      // The renewal on the new line is Anna's, for the lines are one.
      let moved = Payment(
        id: "81", line: "8000", product: "advanced", from: 30, to: 60, reason: "RENEWAL",
        previousLine: "1000")
      let future = Future(line: "8000", product: "advanced", isOn: true, end: 60)
      try await api.deliver(Notice(type, nil, moved, future, on: 30.1))
      #expect(try await api.state(of: "8000") == "anna, active, on, until 60, access")
      #expect(try await api.state() == "anna, active, on, until 60, access")
      let transactions = try await api.get("/v1/original-transactions/8000")["transactions"]
      #expect(transactions?.array?.map { $0["original_transaction_id"] } == ["1000", "8000"])
    }
  }

  private static let app: JSONValue.Member = .init(
    key: "bundleId", value: .string(Payment(id: "", from: 0).bundleID))

  // swift-format-ignore
  static let others: [Notice] = [
    Notice("TEST", on: 1),
    Notice("RENEWAL_EXTENSION", "SUMMARY", on: 1, contents: [("summary", .object([app, .init(key: "environment", value: "Production"), .init(key: "productId", value: "monthly"), .init(key: "requestIdentifier", value: "r"), .init(key: "succeededCount", value: 7), .init(key: "failedCount", value: 1)]))]),
    Notice("EXTERNAL_PURCHASE_TOKEN", "UNREPORTED", on: 1, contents: [("externalPurchaseToken", .object([app, .init(key: "externalPurchaseId", value: "b2158121"), .init(key: "tokenCreationDate", value: 1_767_225_600_000)]))]),
    Notice("EXTERNAL_PURCHASE_TOKEN", "CREATED", on: 1, contents: [("externalPurchaseToken", .object([app, .init(key: "externalPurchaseId", value: "SANDBOX_b2158121")]))]),
    Notice("EXTERNAL_PURCHASE_TOKEN", "ACTIVE_TOKEN_REMINDER", on: 1, contents: [("externalPurchaseToken", .object([app, .init(key: "externalPurchaseId", value: "b2158121")]))]),
    Notice("RESCIND_CONSENT", on: 1, contents: [("appData", .object([app, .init(key: "environment", value: "Sandbox")]))]),
    Notice("SOMETHING_NEW", on: 1),
    Notice("SOMETHING_NEW", on: 1, contents: [("somethingNew", [:])]),
  ]

  @Test(arguments: others)
  func `a notification without a purchase is stored and done`(notice: Notice) async throws {
    try await TestAPI.run { api in
      #expect(try await api.deliver(notice).status == 200)
      let stored = try #require(try await api.ledger.notifications.notification(notice.id))
      #expect(stored.outcome == .nothingToRecord)
      #expect(stored.notificationType == notice.type)
      #expect(try await api.count("ledger_entry") == 0)
      #expect(try await api.openJobs() == 0)
      #expect(try await api.deliver(notice).status == 200)
      #expect(try await api.count("notification") == 1)
    }
  }

  // MARK: Late, doubled, out of order

  /// A life of Anna's line, whose last word is a refund's reversal.
  private static let life: [Notice] = [
    Notice("SUBSCRIBED", "INITIAL_BUY", month, on(), on: 0.02),
    Notice("DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_DISABLED", month, off(), on: 10),
    Notice("DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_ENABLED", month, on(), on: 12),
    Notice("DID_RENEW", nil, renewal, on(60), on: 30.1),
    Notice(
      "REFUND", nil, Payment(id: "2", from: 30, to: 60, reason: "RENEWAL", revokedOn: 31), off(60),
      on: 31.1),
    Notice("REFUND_REVERSED", nil, renewal, off(60), on: 33),
    Notice(
      "RENEWAL_EXTENDED", nil, Payment(id: "2", from: 30, to: 66, reason: "RENEWAL"), off(66),
      on: 34),
  ]

  @Test(arguments: 1...6)
  func `the order of arrival does not matter`(seed: Int) async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Self.on(), by: "anna", on: 0.01)
      // Each twice, in some order: 1 is that of the story.
      var notice = Self.life + Self.life
      for index in notice.indices where seed > 1 {
        notice.swapAt(index, (index * seed * 7 + seed * 3) % notice.count)
      }
      for notice in notice { #expect(try await api.deliver(notice, on: 40).status == 200) }
      #expect(try await api.state() == "anna, active, off, until 66, access")
      #expect(try await api.count("notification") == Self.life.count)
    }
  }

  @Test func `a renewal reported 72 hours late does not lift a refund`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Self.on(), by: "anna", on: 0.01)
      let refund = Notice(
        "REFUND", nil, Payment(id: "2", from: 30, to: 60, reason: "RENEWAL", revokedOn: 31),
        Self.off(60), on: 31.1)
      try await api.deliver(refund)
      #expect(try await api.state() == "anna, revoked, off, until 60, no access")
      try await api.deliver(Notice("DID_RENEW", nil, Self.renewal, Self.on(60), on: 30.1), on: 33.1)
      #expect(try await api.state() == "anna, revoked, off, until 60, no access")
    }
  }

  @Test func `a late older status does not shorten an extended period`() async throws {
    try await TestAPI.run { api in
      try await api.describe("monthly", "premium")
      try await api.claim(Self.month, Self.on(), by: "anna", on: 0.01)
      try await api.deliver(
        Notice("RENEWAL_EXTENDED", nil, Payment(id: "1", from: 0, to: 44), Self.on(44), on: 5))
      try await api.deliver(
        Notice("PRICE_INCREASE", "PENDING", Self.month, Self.on(), on: 4), on: 6)
      #expect(try await api.state() == "anna, active, on, until 44, access")
    }
  }
}
