import AppStore
import AppStoreSimulator
import Foundation
import JSONText
import Subscriptions
import Testing

/// Changes through the App Store Server API, and its notification history.
struct ServerAPIChangeTests {
  private let stage: Stage
  private var simulation: AppStoreSimulation { stage.simulation }

  init() throws {
    stage = try Stage()
  }

  private func error(
    _ method: String, _ path: String, _ query: [(String, String)] = [], body: JSONValue? = nil
  ) throws -> Int64? {
    try JSONValue(parsing: try stage.ask(method, path, query, body: body).body)["errorCode"]?
      .integer
  }

  // MARK: Tokens

  private func setToken(_ id: String, _ token: JSONValue) throws -> SimulatedAnswer {
    try stage.ask(
      "PUT", "/inApps/v1/transactions/\(id)/appAccountToken", body: ["appAccountToken": token])
  }

  private func code(_ answer: SimulatedAnswer) -> Int64? {
    (try? JSONValue(parsing: answer.body))?["errorCode"]?.integer
  }

  @Test func aTokenIsOfTheCurrentPeriodAndThoseAfterIt() throws {
    let (old, new) = (UUID(), UUID())
    let line = try simulation.buy("monthly", on: "phone", appAccountToken: old)
      .originalTransactionID
    try stage.advance(to: "2026-02-10T00:00:00Z")
    let answer = try setToken(line.rawValue, .string(new.uuidString))
    #expect(answer.httpStatus == 200)
    #expect(answer.body.isEmpty)
    try stage.advance(to: "2026-03-10T00:00:00Z")
    #expect(simulation.truth().map(\.appAccountToken) == [old, new, new])
    let info = try SignedParts(try simulation.signedRenewalInfo(of: line)).payload
    #expect(info.text("appAccountToken") == new.uuidString.lowercased())
  }

  @Test func wrongTokens() throws {
    let token: JSONValue = .string(UUID().uuidString)
    let bought = try simulation.buy("premium", on: "phone")
    let coins = try simulation.buy("coins.100", on: "phone")
    simulation.advance(by: .days(31))
    let renewal = try #require(simulation.truth().last)
    try simulation.addAppleID("bob")
    try simulation.addFamilyMember("bob", of: "ada")
    let shared = try #require(simulation.truth(of: "bob").first)
    let original = bought.originalTransactionID.rawValue
    #expect(code(try setToken(original, "no uuid")) == 4_000_183)
    #expect(code(try setToken(original, .null)) == 4_000_183)
    #expect(code(try setToken(renewal.transactionID.rawValue, token)) == 4_000_187)
    #expect(code(try setToken(shared.transactionID.rawValue, token)) == 4_000_185)
    #expect(code(try setToken("1", token)) == 4_040_010)
    #expect(try setToken(coins.transactionID.rawValue, token).httpStatus == 200)
    #expect(try simulation.truth(of: coins.transactionID).appAccountToken != nil)
  }

  // MARK: Extensions

  private static func extensionBody(
    days: JSONValue = 10, reason: JSONValue = 1, identifier: JSONValue = "request"
  ) -> JSONValue {
    [
      "extendByDays": days, "extendReasonCode": reason, "requestIdentifier": identifier,
    ]
  }

  private func extend(_ id: String, _ body: JSONValue = extensionBody()) throws -> Int64? {
    let answer = try stage.ask("PUT", "/inApps/v1/subscriptions/extend/\(id)", body: body)
    return answer.httpStatus == 200 ? nil : code(answer)
  }

  @Test func extensions() throws {
    let bought = try simulation.buy("monthly", on: "phone")
    let line = bought.originalTransactionID.rawValue
    let answer = try stage.json(
      "PUT", "/inApps/v1/subscriptions/extend/\(line)", body: Self.extensionBody())
    let end = try #require(Timestamp(rfc3339: "2026-02-11T00:00:00Z"))
    #expect(answer["effectiveDate"]?.integer == end.milliseconds)
    #expect(answer.text("originalTransactionId") == line)
    #expect(answer["success"] == true)
    #expect(
      answer.text("webOrderLineItemId")
        == simulation.truth().first?.webOrderLineItemID?.rawValue)
    #expect(simulation.events().last?.kind == .renewalExtended(days: 10))
    #expect(try extend(line) == nil)
    #expect(try extend(line) == 4_030_005)
    simulation.advance(by: .days(366))
    #expect(try extend(line) == nil)
  }

  @Test func refusedExtensions() throws {
    let bought = try simulation.buy("premium", on: "phone")
    let line = bought.originalTransactionID.rawValue
    for days in [0, 91, -1] as [JSONValue] + ["10", .null] {
      #expect(try extend(line, Self.extensionBody(days: days)) == 4_000_009)
    }
    #expect(try extend(line, Self.extensionBody(reason: 4)) == 4_000_010)
    #expect(try extend(line, Self.extensionBody(identifier: "")) == 4_000_011)
    let long = JSONValue.string(String(repeating: "a", count: 129))
    #expect(try extend(line, Self.extensionBody(identifier: long)) == 4_000_011)
    #expect(try extend("x") == 4_000_008)
    #expect(try extend("1") == 4_040_005)
    #expect(try extend(line, "no object") == 4_000_000)
    try simulation.addAppleID("bob")
    try simulation.addFamilyMember("bob", of: "ada")
    let shared = try #require(simulation.truth(of: "bob").first).originalTransactionID.rawValue
    #expect(try extend(shared) == 4_030_007)
    try simulation.failCard(of: "ada")
    simulation.advance(by: .days(33))
    #expect(try extend(line) == 4_030_004)
    simulation.advance(by: .days(100))
    #expect(try extend(line) == 4_030_004)
    try simulation.repairCard(of: "ada")
    try simulation.addAppleID("eve")
    let trial = try simulation.buyInSettings("yearly", appleID: "eve")
    #expect(try extend(trial.originalTransactionID.rawValue) == 4_030_004)
  }

  @Test func extendingAll() async throws {
    try stage.notify(.v2)
    try simulation.addAppleID("bob")
    try simulation.addAppleID("eve")
    let ada = try simulation.buy("monthly", on: "phone").originalTransactionID
    try simulation.buyInSettings("monthly", appleID: "bob")
    try simulation.buyInSettings("quarterly", appleID: "eve")
    try simulation.extend(ada, days: 1)
    try simulation.extend(ada, days: 1)
    let before = simulation.notifications().count
    let body: JSONValue = [
      "extendByDays": 5, "extendReasonCode": 3, "requestIdentifier": "outage",
      "productId": "monthly", "storefrontCountryCodes": ["USA", "CAN"],
    ]
    let answer = try stage.json("POST", "/inApps/v1/subscriptions/extend/mass", body: body)
    #expect(answer == ["requestIdentifier": "outage"])
    let status = try stage.json("GET", "/inApps/v1/subscriptions/extend/mass/monthly/outage")
    #expect(status["complete"] == true)
    #expect(status["succeededCount"] == 1)
    #expect(status["failedCount"] == 1)
    #expect(
      try error("GET", "/inApps/v1/subscriptions/extend/mass/quarterly/outage") == 4_040_009)
    let sent = simulation.notifications(after: before)
    #expect(
      sent.map { [$0.type, $0.subtype] } == [
        ["RENEWAL_EXTENDED", nil], ["RENEWAL_EXTENSION", "FAILURE"],
        ["RENEWAL_EXTENSION", "SUMMARY"],
      ])
    let summary = try await stage.verified(sent[2])
    #expect(summary.payload.summary?.succeededCount == 1)
    #expect(summary.payload.summary?.storefrontCountryCodes == ["USA", "CAN"])
    let failure = try await stage.verified(sent[1])
    #expect(failure.transaction?.payload.originalTransactionID == ada.rawValue)
    for (key, value, code) in [
      ("productId", "coins.100", 4_000_023), ("productId", "gold", 4_000_023),
      ("storefrontCountryCodes", [], 4_000_027), ("storefrontCountryCodes", ["US"], 4_000_028),
      ("extendByDays", 100, 4_000_009),
    ] as [(String, JSONValue, Int64)] {
      guard case .object(let members) = body else { return }
      let wrong = JSONValue.object(
        members.map { $0.key.rawValue == key ? JSONValue.Member(key: key, value: value) : $0 })
      #expect(
        try error("POST", "/inApps/v1/subscriptions/extend/mass", body: wrong) == code, "\(key)")
    }
  }

  // MARK: Consumption

  @Test func consumption() throws {
    let coins = try simulation.buy("coins.100", on: "phone")
    let path = "/inApps/v2/transactions/consumption/\(coins.transactionID)"
    let report: JSONValue = [
      "customerConsented": true, "deliveryStatus": "DELIVERED", "sampleContentProvided": false,
      "consumptionPercentage": 40_000, "refundPreference": "DECLINE",
    ]
    let answer = try stage.ask("PUT", path, body: report)
    #expect(answer.httpStatus == 202)
    #expect(answer.body.isEmpty)
    #expect(try simulation.consumptionReports(of: coins.transactionID) == [report])
    for (key, value, code) in [
      ("customerConsented", false, 4_000_035), ("customerConsented", "true", 4_000_035),
      ("deliveryStatus", "LATE", 4_000_036), ("sampleContentProvided", 0, 4_000_041),
      ("consumptionPercentage", 100_001, 4_000_000), ("refundPreference", "KEEP", 4_000_000),
    ] as [(String, JSONValue, Int64)] {
      guard case .object(let members) = report else { return }
      let wrong = JSONValue.object(
        members.map { $0.key.rawValue == key ? JSONValue.Member(key: key, value: value) : $0 })
      #expect(try error("PUT", path, body: wrong) == code, "\(key)")
    }
    #expect(try error("PUT", "/inApps/v2/transactions/consumption/1", body: report) == 4_040_010)
  }

  // MARK: Notifications

  private func history(
    _ fields: [(String, JSONValue)] = [], token: String? = nil, days: Int = 30
  ) throws -> JSONValue {
    let start = simulation.now - .days(days)
    var members = [
      JSONValue.Member(key: "startDate", value: .integer(start.milliseconds)),
      JSONValue.Member(key: "endDate", value: .integer(simulation.now.milliseconds + 1)),
    ]
    members += fields.map { JSONValue.Member(key: $0.0, value: $0.1) }
    let answer = try stage.ask(
      "POST", "/inApps/v1/notifications/history",
      token.map { [("paginationToken", $0)] } ?? [], body: .object(members))
    return try JSONValue(parsing: answer.body)
  }

  private func types(_ answer: JSONValue) throws -> [String] {
    try (answer["notificationHistory"]?.array ?? []).map { item in
      let payload = try SignedParts(try #require(item.text("signedPayload"))).payload
      return try #require(payload.text("notificationType"))
    }
  }

  @Test func notificationHistory() async throws {
    try stage.notify(.v2, .v1)
    let server = StandInServer()
    server.answer([500, 500], then: 200)
    let sender = NotificationSender(simulation: simulation, transport: server)
    let coins = try simulation.buy("coins.100", on: "phone")
    try await sender.deliverDueNotifications()
    simulation.advance(by: .hours(1))
    try await sender.deliverDueNotifications()
    let line = try simulation.buy("monthly", on: "phone").originalTransactionID
    try simulation.setAutoRenew(false, line)
    try simulation.setAutoRenew(true, line)
    try await sender.deliverDueNotifications()

    let all = try history()
    #expect(
      try types(all) == [
        "ONE_TIME_CHARGE", "SUBSCRIBED", "DID_CHANGE_RENEWAL_STATUS",
        "DID_CHANGE_RENEWAL_STATUS",
      ])
    #expect(all["hasMore"] == false)
    #expect(all["paginationToken"] == nil)
    let attempts = try #require(all["notificationHistory"]?.array?.first?["sendAttempts"]?.array)
    #expect(
      attempts.map { $0.text("sendAttemptResult") } == [
        "UNSUCCESSFUL_HTTP_RESPONSE_CODE", "UNSUCCESSFUL_HTTP_RESPONSE_CODE",
      ])
    #expect(attempts.first?["attemptDate"]?.integer == Stage.start.milliseconds)
    #expect(try types(try history([("onlyFailures", true)])) == ["ONE_TIME_CHARGE"])
    #expect(try types(try history([("notificationType", "SUBSCRIBED")])) == ["SUBSCRIBED"])
    let subtype: [(String, JSONValue)] = [
      ("notificationType", "DID_CHANGE_RENEWAL_STATUS"),
      ("notificationSubtype", "AUTO_RENEW_ENABLED"),
    ]
    #expect(try types(try history(subtype)).count == 1)
    #expect(
      try types(try history([("transactionId", .string(coins.transactionID.rawValue))]))
        == ["ONE_TIME_CHARGE"])
    #expect(try types(try history([("transactionId", .string(line.rawValue))])).count == 3)
    #expect(try types(try history(days: 0)).count == 3)
  }

  @Test func notificationHistoryInPages() throws {
    try stage.notify(.v2)
    for _ in 1...45 { try simulation.buy("coins.100", on: "phone") }
    var seen: [String] = []
    var token: String?
    for more in [true, true, false] {
      let page = try history(token: token)
      #expect(page["hasMore"]?.bool == more)
      token = page.text("paginationToken")
      seen += (page["notificationHistory"]?.array ?? []).compactMap { $0.text("signedPayload") }
    }
    #expect(token == nil)
    #expect(seen == simulation.notifications().compactMap(\.signedPayload))
    let first = try #require(try history().text("paginationToken"))
    #expect(try history([("onlyFailures", true)], token: first)["errorCode"] == 4_000_014)
    #expect(try history(token: "x")["errorCode"] == 4_000_014)
  }

  @Test func wrongHistories() throws {
    try stage.notify(.v2)
    #expect(try history(days: 181)["errorCode"] == 4_000_012)
    #expect(try history(days: 180)["errorCode"] == nil)
    #expect(try history(days: -1)["errorCode"] == 4_000_013)
    let both: [(String, JSONValue)] = [("notificationType", "TEST"), ("transactionId", "1")]
    #expect(try history(both)["errorCode"] == 4_000_019)
    #expect(try history([("notificationSubtype", "PENDING")])["errorCode"] == 4_000_018)
    let path = "/inApps/v1/notifications/history"
    #expect(try error("POST", path, body: ["endDate": 1]) == 4_000_015)
    #expect(try error("POST", path, body: ["startDate": 1]) == 4_000_016)
    #expect(try error("POST", path) == 4_000_000)
  }

  @Test func testNotifications() async throws {
    let path = "/inApps/v1/notifications/test"
    #expect(try error("POST", path) == 4_040_007)
    try stage.notify(.v1)
    #expect(try error("POST", path) == 4_040_007)
    try stage.notify(.v2)
    let token = try #require(
      try stage.json("POST", path).text("testNotificationToken"))
    let server = StandInServer(404)
    let sender = NotificationSender(simulation: simulation, transport: server)
    try await sender.deliverDueNotifications()
    let status = try stage.json("GET", "\(path)/\(token)")
    #expect(
      status["sendAttempts"]?.array?.map { $0.text("sendAttemptResult") } == [
        "UNSUCCESSFUL_HTTP_RESPONSE_CODE"
      ])
    let signed = try await stage.verified(try #require(simulation.notifications().last))
    #expect(signed.payload.notificationType == .test)
    #expect(signed.transaction == nil)
    #expect(status.text("signedPayload") == simulation.notifications().last?.signedPayload)
    #expect(try error("GET", "\(path)/unknown") == 4_040_008)
    // The same by hand.
    try simulation.sendTestNotification()
    #expect(simulation.notifications().map(\.type) == ["TEST", "TEST"])
  }
}
