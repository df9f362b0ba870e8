import AppStore
import AppStoreSimulator
import Foundation
import HTTPTypes
import JSONText
import Postgres
import Subscriptions
import Testing

// Apple's signed data, made by hand, so that a test can tell any story, even one that the
// simulation would not produce. Days count from the simulation's first.

/// A day of the story, in Apple's milliseconds.
func storyDay(_ day: Double) -> Timestamp {
  Timestamp(milliseconds: 1_767_225_600_000 + Int64((day * 86_400_000).rounded()))
}

/// A transaction as Apple signs it.
struct Payment: Sendable {
  var id: String
  var line = "1000"
  var product = "monthly"
  var type = "Auto-Renewable Subscription"
  var from: Double
  /// The end; nil for none.
  var to: Double?
  /// Nil in payloads from before 2023-06.
  var reason: String? = "PURCHASE"
  var token: String?
  var revokedOn: Double?
  var isUpgraded = false
  var isFamilyShared = false
  var previousLine: String?
  var environment = "Production"
  var bundleID = SimulatedApp.sample.bundleID
  /// In milliunits.
  var price: Int64?
  var currency = "USD"

  /// The payload, signed on a day.
  func json(signedOn day: Double) -> JSONValue {
    let members: [(String, JSONValue?)] = [
      ("transactionId", .string(id)), ("originalTransactionId", .string(line)),
      ("price", price.map(JSONValue.integer)), ("currency", price.map { _ in .string(currency) }),
      ("webOrderLineItemId", to == nil ? nil : .string("9" + id)),
      ("previousOriginalTransactionId", previousLine.map { .string($0) }),
      ("bundleId", .string(bundleID)), ("productId", .string(product)),
      ("purchaseDate", .integer(storyDay(from).milliseconds)),
      ("originalPurchaseDate", .integer(storyDay(0).milliseconds)),
      ("expiresDate", to.map { .integer(storyDay($0).milliseconds) }), ("quantity", 1),
      ("type", .string(type)), ("appAccountToken", token.map { .string($0) }),
      ("inAppOwnershipType", isFamilyShared ? "FAMILY_SHARED" : "PURCHASED"),
      ("signedDate", .integer(storyDay(day).milliseconds)),
      ("revocationDate", revokedOn.map { .integer(storyDay($0).milliseconds) }),
      ("revocationType", revokedOn != nil && isFamilyShared ? "FAMILY_REVOKE" : nil),
      ("revocationReason", revokedOn == nil ? nil : 0), ("isUpgraded", isUpgraded ? true : nil),
      ("environment", .string(environment)), ("transactionReason", reason.map { .string($0) }),
    ]
    return .object(members)
  }
}

/// A renewal info as Apple signs it.
struct Future: Sendable {
  var line = "1000"
  var product = "monthly"
  var isOn: Bool
  /// The product of the next renewal, where it is another.
  var next: String?
  /// The end of the paid period.
  var end: Double
  var graceUntil: Double?
  var isInRetry: Bool?
  var intent: Int64?
  var isCommitment = false
  var environment = "Production"

  /// The payload, signed on a day.
  func json(signedOn day: Double) -> JSONValue {
    let members: [(String, JSONValue?)] = [
      ("originalTransactionId", .string(line)), ("productId", .string(product)),
      ("autoRenewProductId", .string(next ?? product)), ("autoRenewStatus", isOn ? 1 : 0),
      ("expirationIntent", intent.map { .integer($0) }),
      ("isInBillingRetryPeriod", isInRetry.map { .bool($0) }),
      ("gracePeriodExpiresDate", graceUntil.map { .integer(storyDay($0).milliseconds) }),
      ("renewalDate", .integer(storyDay(end).milliseconds)),
      ("signedDate", .integer(storyDay(day).milliseconds)),
      ("environment", .string(environment)),
      ("renewalBillingPlanType", isCommitment ? "MONTHLY" : nil),
    ]
    return .object(members)
  }
}

/// A notification as Apple signs it.
struct Notice: Sendable {
  var type: String
  var subtype: String?
  var payment: Payment?
  var future: Future?
  /// The day on which everything in it was signed.
  var on: Double
  var id = UUID().uuidString.lowercased()
  /// In place of `data`.
  var contents: [(String, JSONValue)]?

  init(
    _ type: String, _ subtype: String? = nil, _ payment: Payment? = nil, _ future: Future? = nil,
    on day: Double, id: String? = nil, contents: [(String, JSONValue)]? = nil
  ) {
    self.type = type
    self.subtype = subtype
    self.payment = payment
    self.future = future
    on = day
    if let id { self.id = id }
    self.contents = contents
  }

  /// The `signedPayload`.
  func signed(by signer: SimulatedSigner, outerDay: Double? = nil) -> String {
    let environment = payment?.environment ?? future?.environment ?? "Production"
    let data = JSONValue.object([
      ("environment", .string(environment)),
      ("bundleId", .string(payment?.bundleID ?? SimulatedApp.sample.bundleID)),
      ("signedTransactionInfo", payment.map { .string(signer.sign($0.json(signedOn: on))) }),
      ("signedRenewalInfo", future.map { .string(signer.sign($0.json(signedOn: on))) }),
    ])
    return signer.sign(
      .object(
        [
          ("notificationType", .string(type)), ("subtype", subtype.map { .string($0) }),
          ("notificationUUID", .string(id)), ("version", "2.0"),
          ("signedDate", .integer(storyDay(outerDay ?? on).milliseconds)),
        ] + (contents ?? [("data", data)]).map { ($0.0, $0.1) }))
  }
}

extension JSONValue {
  /// An object of those members that are there.
  static func object(_ members: [(String, JSONValue?)]) -> JSONValue {
    .object(members.compactMap { key, value in value.map { Member(key: key, value: $0) } })
  }
}

extension TestAPI {
  /// Moves the clock forward to a day of the story.
  func live(until day: Double) {
    apple.simulation.clock.advance(to: storyDay(day))
  }

  /// Delivers a notification of version 2: when it was signed, unless it is said when.
  @discardableResult
  func deliver(
    _ notice: Notice, on day: Double? = nil, sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Answer {
    live(until: day ?? notice.on)
    return try await post(
      ["signedPayload": .string(notice.signed(by: apple.signer))], sourceLocation: sourceLocation)
  }

  /// Posts something to the notification endpoint, without a key.
  func post(
    _ body: JSONValue, sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Answer {
    try await call(
      .post, "/v1/appstore/notifications", body, as: .anonymous, sourceLocation: sourceLocation)
  }

  /// Submits, for an account, Apple's signed data of a payment on a day.
  @discardableResult
  func claim(
    _ payment: Payment, _ future: Future? = nil, by account: String, on day: Double,
    sourceLocation: SourceLocation = #_sourceLocation
  ) async throws -> Answer {
    live(until: day)
    return try await submit(
      account, signed: [apple.signer.sign(payment.json(signedOn: day))],
      renewalInfo: future.map { [apple.signer.sign($0.json(signedOn: day))] } ?? [],
      sourceLocation: sourceLocation)
  }

  /// How many rows a table has.
  func count(_ table: String, where condition: String = "true") async throws -> Int {
    try await database.query(
      "SELECT count(*) FROM tenure.\(unescaped: table) WHERE \(unescaped: condition)"
    ).decodeOnly(Int.self)
  }

  /// The number of submissions and notifications that need attention.
  func openJobs() async throws -> Int {
    try await count("job", where: "kind IN ('verify_submission', 'process_notification')")
  }

  /// How a line stands now, in words.
  ///
  /// The bound account, the state, whether and as which product it renews, the paid time's end, and
  /// whether that account has access.
  func state(of line: String = "1000", environment: String = "production") async throws
    -> String
  {
    let answer = try await get("/v1/original-transactions/\(line)?environment=\(environment)")
    guard answer.status == 200 else { return "unknown" }
    let account = answer["account_id"]?.string
    var words = [account ?? "unowned", answer["state"]?.string ?? "bought"]
    words.append(answer["auto_renewing"]?.bool == true ? "on" : "off")
    let (product, next) = (answer["product_id"]?.string, answer["auto_renew_product_id"]?.string)
    if let next, next != product { words.append("next \(next)") }
    if let end = answer["expires_at"]?.string.flatMap({ Timestamp(rfc3339: $0) }) {
      let days = Double((end - storyDay(0)).inMilliseconds) / 86_400_000
      words.append("until \(Int(days.rounded()))")
    }
    if let account {
      let held = try await get("/v1/accounts/\(account)/entitlements?active=true")
      words.append(held["entitlements"]?.array?.isEmpty == false ? "access" : "no access")
    }
    return words.joined(separator: ", ")
  }
}
