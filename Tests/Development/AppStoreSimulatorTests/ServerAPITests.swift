import AppStore
import AppStoreSimulator
import Crypto
import Foundation
import JSONText
import Subscriptions
import Testing

/// The App Store Server API as a server sees it: authentication and responses.
struct ServerAPITests {
  private let stage: Stage
  private var simulation: AppStoreSimulation { stage.simulation }

  init() throws {
    stage = try Stage()
  }

  private func error(
    _ method: String = "GET", _ path: String, _ query: [(String, String)] = [],
    body: JSONValue? = nil, at environment: Environment? = nil
  ) throws -> Int64? {
    let answer = try stage.ask(method, path, query, body: body, at: environment)
    let json = try JSONValue(parsing: answer.body)
    #expect(json.keys == ["errorCode", "errorMessage"])
    let code = json["errorCode"]?.integer
    #expect(code.map { $0 / 10_000 } == Int64(answer.httpStatus))
    return code
  }

  private func payloads(_ answer: JSONValue) throws -> [JWSTransactionDecodedPayload] {
    try (answer["signedTransactions"]?.array ?? []).map { jws in
      try JWSTransactionDecodedPayload(
        json: try SignedParts(try #require(jws.string)).payload)
    }
  }

  private func ids(_ answer: JSONValue) throws -> [String] {
    try payloads(answer).compactMap(\.transactionID)
  }

  private func path(_ id: TransactionID) -> String { "/inApps/v2/history/\(id)" }

  // MARK: Who may ask

  struct Token: Sendable, CustomTestStringConvertible {
    let testDescription: String
    var isGood = false
    let change: @Sendable (inout APIToken) -> Void

    init(
      _ name: String, isGood: Bool = false, _ change: @escaping @Sendable (inout APIToken) -> Void
    ) {
      testDescription = name
      self.isGood = isGood
      self.change = change
    }
  }

  private static let start = Stage.start.milliseconds / 1000

  static let tokens = [
    Token("as it should be", isGood: true) { _ in },
    Token("for an hour", isGood: true) { $0.set("exp", .integer(start + 3_600)) },
    Token("for longer") { $0.set("exp", .integer(start + 3_601)) },
    Token("expired") {
      $0.set("iat", .integer(start - 600))
      $0.set("exp", .integer(start))
    },
    Token("of a clock that is a minute ahead", isGood: true) {
      $0.set("iat", .integer(start + 60))
    },
    Token("of tomorrow") {
      $0.set("iat", .integer(start + 86_400))
      $0.set("exp", .integer(start + 86_700))
    },
    Token("of the real clock", isGood: true) {
      let now = Int64(Date.now.timeIntervalSince1970)
      $0.set("iat", .integer(now))
      $0.set("exp", .integer(now + 300))
    },
    Token("expiring before it begins") { $0.set("exp", .integer(start - 1)) },
    Token("without an expiry") { $0.set("exp", nil) },
    Token("without a beginning") { $0.set("iat", nil) },
    Token("of another issuer") { $0.set("iss", "57246542-96fe-1a63-e053-0824d011072a") },
    Token("for another audience") { $0.set("aud", "appstoreconnect-v2") },
    Token("of an unknown app") { $0.set("bid", "com.example.other") },
    Token("of no app") { $0.set("bid", nil) },
    Token("of another key id") { $0.set("kid", "ABCDEFGHIJ") },
    Token("of another algorithm") { $0.set("alg", "HS256") },
    Token("of another type") { $0.set("typ", "JWE") },
    Token("signed by another key") { $0.key = P256.Signing.PrivateKey() },
  ]

  @Test(arguments: tokens) func whoMayAsk(_ token: Token) throws {
    let bought = try simulation.buy("monthly", on: "phone")
    let text = try stage.token(token.change)
    let answer = simulation.serverAPI(
      ServerAPIRequest(
        path: "/inApps/v1/transactions/\(bought.transactionID)", authorization: "Bearer \(text)"),
      at: .production)
    #expect(answer.httpStatus == (token.isGood ? 200 : 401))
    if !token.isGood { #expect((try? JSONValue(parsing: answer.body)) == nil) }
  }

  @Test(arguments: [nil, "", "Bearer", "Bearer ", "Bearer a.b.c", "Bearer a.b", "Basic abc"])
  func noToken(_ authorization: String?) throws {
    let answer = simulation.serverAPI(
      ServerAPIRequest(path: "/inApps/v1/transactions/1", authorization: authorization),
      at: .production)
    #expect(answer.httpStatus == 401)
  }

  // MARK: One transaction

  @Test func transactionByAnyID() throws {
    let bought = try simulation.buy("monthly", on: "phone")
    simulation.advance(by: .days(31))
    let renewal = try #require(simulation.truth().last)
    let alias = try #require(try simulation.restore(on: "phone").first?.transactionID)
    for (id, expected) in [
      (bought.transactionID, bought.transactionID), (renewal.transactionID, renewal.transactionID),
      (alias, bought.transactionID),
    ] {
      let answer = try stage.json("GET", "/inApps/v1/transactions/\(id)")
      #expect(answer.keys == ["signedTransactionInfo"])
      let parts = try SignedParts(try #require(answer.text("signedTransactionInfo")))
      #expect(parts.isSigned)
      #expect(parts.payload.text("transactionId") == expected.rawValue)
    }
  }

  @Test func unknownIDs() throws {
    let bought = try simulation.buy("monthly", on: "phone")
    #expect(try error("GET", "/inApps/v1/transactions/1") == 4_040_010)
    #expect(try error("GET", "/inApps/v1/transactions/one") == 4_000_006)
    // A production id in the sandbox, and the other way round.
    let path = "/inApps/v1/transactions/\(bought.transactionID)"
    #expect(try error("GET", path, at: .sandbox) == 4_040_010)
    try simulation.addAppleID("tester", environment: .sandbox)
    try simulation.addDevice("test phone", appleID: "tester")
    let tested = try simulation.buy("monthly", on: "test phone")
    for path in [
      "/inApps/v1/transactions/\(tested.transactionID)",
      "/inApps/v2/history/\(tested.transactionID)",
      "/inApps/v1/subscriptions/\(tested.transactionID)",
      "/inApps/v2/refund/lookup/\(tested.transactionID)",
    ] {
      #expect(try error("GET", path, at: .production) == 4_040_010)
      _ = try stage.json("GET", path, at: .sandbox)
    }
    try simulation.deleteAppleID("ada")
    #expect(try error("GET", path) == 4_040_001)
  }

  @Test func unknownPaths() throws {
    for (method, path) in [
      ("GET", "/inApps/v1/history/1"), ("POST", "/inApps/v1/transactions/1"), ("GET", "/inApps"),
      ("GET", "/inApps/v1/transactions/1/2/3"),
    ] {
      #expect(try stage.ask(method, path).httpStatus == 404)
    }
  }

  @Test func otherAppsAreInvisible() throws {
    try simulation.add(
      SimulatedApp(
        bundleID: "com.example.other", appAppleID: 2, sharedSecret: "s",
        products: [.oneTime("gem", .consumable)]))
    let gem = try simulation.buy("gem", on: "phone")
    #expect(try error("GET", "/inApps/v1/transactions/\(gem.transactionID)") == 4_040_010)
    let bought = try simulation.buy("monthly", on: "phone")
    #expect(try ids(try stage.json("GET", path(bought.transactionID))).count == 1)
  }

  // MARK: History

  @Test func historyInPages() throws {
    let first = try simulation.buy("coins.100", on: "phone").transactionID
    for _ in 2...45 {
      simulation.advance(by: .hours(1))
      try simulation.buy("coins.100", on: "phone")
    }
    let all = simulation.truth().map(\.transactionID.rawValue)
    var seen: [String] = []
    var revision: String?
    var pages = 0
    while true {
      let answer = try stage.json(
        "GET", path(first), revision.map { [("revision", $0)] } ?? [])
      pages += 1
      seen += try ids(answer)
      revision = answer.text("revision")
      #expect(answer.text("bundleId") == SimulatedApp.sample.bundleID)
      #expect(answer["appAppleId"]?.integer == Int64(SimulatedApp.sample.appAppleID))
      #expect(answer.text("environment") == "Production")
      #expect(answer["hasMore"]?.bool == (pages < 3))
      if answer["hasMore"] != true { break }
    }
    #expect(pages == 3)
    #expect(seen == all)

    // The last revision returns only changes, including changed transactions.
    let last = try #require(revision)
    #expect(try ids(try stage.json("GET", path(first), [("revision", last)])).isEmpty)
    try simulation.refund(first)
    let bought = try simulation.buy("coins.100", on: "phone")
    let newer = try stage.json("GET", path(first), [("revision", last)])
    #expect(try ids(newer) == [first.rawValue, bought.transactionID.rawValue])
    #expect(try payloads(newer).first?.revocationDate != nil)
    let afterwards = try #require(newer.text("revision"))
    #expect(try ids(try stage.json("GET", path(first), [("revision", afterwards)])).isEmpty)

    // From the end: everything once, the newest change first.
    var descending: [String] = []
    var query = [("sort", "DESCENDING")]
    while true {
      let answer = try stage.json("GET", path(first), query)
      descending += try ids(answer)
      guard answer["hasMore"] == true else { break }
      query = [("sort", "DESCENDING"), ("revision", try #require(answer.text("revision")))]
    }
    #expect(
      descending
        == (all.dropFirst() + [first.rawValue, bought.transactionID.rawValue]).reversed())
  }

  @Test func aRevisionIsOfItsQuery() throws {
    let first = try simulation.buy("coins.100", on: "phone").transactionID
    try simulation.buy("monthly", on: "phone")
    let query = [("productType", "CONSUMABLE"), ("sort", "ASCENDING")]
    let revision = try #require(
      try stage.json("GET", path(first), query).text("revision"))
    let again = [("sort", "ASCENDING"), ("productType", "CONSUMABLE"), ("revision", revision)]
    _ = try stage.json("GET", path(first), again)
    for query in [
      [("revision", revision)], [("revision", revision), ("sort", "ASCENDING")],
      [("revision", "nonsense")], [("revision", "")],
      query + [("revision", revision + "x")],
    ] {
      #expect(try error("GET", path(first), query) == 4_000_005)
    }
    // Nor is it another customer's.
    try simulation.addAppleID("bob")
    try simulation.addDevice("tablet", appleID: "bob")
    let other = try simulation.buy("coins.100", on: "tablet").transactionID
    #expect(try error("GET", path(other), query + [("revision", revision)]) == 4_000_005)
  }

  @Test func changesComeAgain() throws {
    let bought = try simulation.buy("monthly", on: "phone")
    func newer(since revision: String) throws -> (ids: [String], revision: String) {
      let answer = try stage.json("GET", path(bought.transactionID), [("revision", revision)])
      return (try ids(answer), try #require(answer.text("revision")))
    }
    var revision = try #require(
      try stage.json("GET", path(bought.transactionID)).text("revision"))
    let line = bought.originalTransactionID
    let id = bought.transactionID.rawValue
    simulation.advance(by: .days(1))
    try simulation.extend(line, days: 3)
    var found = try newer(since: revision)
    #expect(found.ids == [id])
    revision = found.revision
    _ = try stage.ask(
      "PUT", "/inApps/v1/transactions/\(line)/appAccountToken",
      body: ["appAccountToken": .string(UUID().uuidString)])
    found = try newer(since: revision)
    #expect(found.ids == [id])
    revision = found.revision
    let upgrade = try simulation.buy("premium", on: "phone")
    found = try newer(since: revision)
    #expect(found.ids == [id, upgrade.transactionID.rawValue])
    revision = found.revision
    try simulation.migrate(line)
    found = try newer(since: revision)
    #expect(found.ids == [upgrade.transactionID.rawValue])
  }

  // swift-format-ignore
  static let filters: [(query: [(String, String)], products: [String])] = [
    ([], ["monthly", "coins.100", "lifetime", "season.pass", "news.weekly", "monthly", "premium"]),
    ([("productType", "AUTO_RENEWABLE")], ["monthly", "news.weekly", "monthly", "premium"]),
    ([("productType", "CONSUMABLE"), ("productType", "NON_RENEWABLE")], ["coins.100", "season.pass"]),
    ([("productType", "NON_CONSUMABLE")], ["lifetime"]),
    ([("productId", "monthly"), ("productId", "lifetime")], ["monthly", "lifetime", "monthly"]),
    ([("subscriptionGroupIdentifier", "20500002")], ["news.weekly"]),
    ([("revoked", "true")], ["coins.100"]),
    ([("revoked", "false"), ("productType", "CONSUMABLE")], []),
    ([("inAppOwnershipType", "FAMILY_SHARED")], ["premium"]),
    ([("inAppOwnershipType", "PURCHASED"), ("productId", "premium")], []),
    ([("startDate", "1769904000000")], ["monthly"]),
    ([("startDate", "1769904000001")], []),
    ([("endDate", "1769904000000"), ("productId", "monthly")], ["monthly"]),
    ([("startDate", "1767225600000"), ("endDate", "1767225600001")], ["monthly"]),
    ([("startDate", "1767225600000"), ("endDate", "1767225660001"), ("productId", "coins.100")], ["coins.100"]),
  ]

  @Test(arguments: 0..<filters.count) func filtering(_ number: Int) throws {
    let (query, products) = Self.filters[number]
    let bought = try simulation.buy("monthly", on: "phone")
    var coins: TransactionID?
    for product in ["coins.100", "lifetime", "season.pass", "news.weekly"] as [ProductID] {
      simulation.advance(by: .minutes(1))
      let event = try simulation.buy(product, on: "phone")
      if product == "coins.100" { coins = event.transactionID }
      if product == "news.weekly" {
        try simulation.setAutoRenew(false, event.originalTransactionID)
      }
    }
    // A finished consumable is in the history all the same.
    try simulation.finish(try #require(coins))
    try stage.advance(to: "2026-01-31T05:00:00Z")
    try simulation.addAppleID("eve")
    try simulation.addDevice("eve's phone", appleID: "eve")
    simulation.advance(by: .minutes(1))
    try simulation.buy("premium", on: "eve's phone")
    try simulation.addFamilyMember("ada", of: "eve")
    try simulation.refund(try #require(coins))
    let answer = try stage.json("GET", path(bought.transactionID), query)
    // Everything once: a refund moves its transaction to the end.
    let found = try payloads(answer).compactMap(\.productID)
    #expect(found.sorted() == products.sorted())
  }

  @Test(arguments: [
    ("sort", "UP", 4_000_021), ("productType", "coins", 4_000_022),
    ("productId", "", 4_000_023), ("subscriptionGroupIdentifier", "", 4_000_024),
    ("inAppOwnershipType", "MINE", 4_000_026), ("revoked", "yes", 4_000_030),
    ("startDate", "today", 4_000_015), ("endDate", "-99999999999999999", 4_000_016),
    ("revision", "x", 4_000_005),
  ])
  func wrongQueries(_ name: String, _ value: String, _ code: Int64) throws {
    let bought = try simulation.buy("monthly", on: "phone")
    #expect(try error("GET", path(bought.transactionID), [(name, value)]) == code)
  }

  @Test func endBeforeStart() throws {
    let bought = try simulation.buy("monthly", on: "phone")
    let query = [("startDate", "2000"), ("endDate", "1000")]
    #expect(try error("GET", path(bought.transactionID), query) == 4_000_013)
  }

  // MARK: Statuses

  private func statuses(_ answer: JSONValue) throws -> [String: Int64] {
    var found: [String: Int64] = [:]
    for group in answer["data"]?.array ?? [] {
      for item in group["lastTransactions"]?.array ?? [] {
        let original = try #require(item.text("originalTransactionId"))
        found[original] = item["status"]?.integer
        for key in ["signedTransactionInfo", "signedRenewalInfo"] {
          let payload = try SignedParts(try #require(item.text(key))).payload
          #expect(payload.text("originalTransactionId") == original)
          if key == "signedTransactionInfo" {
            #expect(
              payload.text("subscriptionGroupIdentifier")
                == group.text("subscriptionGroupIdentifier"))
          }
        }
      }
    }
    return found
  }

  @Test func everyStatus() throws {
    let line = try simulation.buy("monthly", on: "phone").originalTransactionID
    let newer = try simulation.buy("news.weekly", on: "phone").originalTransactionID
    try simulation.buy("coins.100", on: "phone")
    let path = "/inApps/v1/subscriptions/\(line)"
    func now(_ query: [(String, String)] = []) throws -> [String: Int64] {
      try statuses(try stage.json("GET", path, query))
    }
    #expect(try now() == [line.rawValue: 1, newer.rawValue: 1])
    try simulation.setAutoRenew(false, newer)
    try simulation.failCard(of: "ada")
    try stage.advance(to: "2026-02-02T00:00:00Z")
    #expect(try now() == [line.rawValue: 4, newer.rawValue: 2])
    #expect(try now([("status", "4")]) == [line.rawValue: 4])
    #expect(try now([("status", "1"), ("status", "2")]) == [newer.rawValue: 2])
    try stage.advance(to: "2026-02-20T00:00:00Z")
    #expect(try now()[line.rawValue] == 3)
    try stage.advance(to: "2026-05-01T00:00:00Z")
    #expect(try now()[line.rawValue] == 2)
    try simulation.refund(try #require(simulation.truth(of: "ada").first).transactionID)
    #expect(try now()[line.rawValue] == 5)
    try simulation.reverseRefund(try #require(simulation.truth(of: "ada").first).transactionID)
    #expect(try now()[line.rawValue] == 2)
    #expect(try error("GET", path, [("status", "6")]) == 4_000_031)
  }

  @Test func statusesOfBothOwnAndShared() throws {
    try simulation.addAppleID("eve")
    try simulation.addDevice("eve's phone", appleID: "eve")
    let own = try simulation.buy("monthly", on: "phone").originalTransactionID
    try simulation.buy("premium", on: "eve's phone")
    try simulation.addFamilyMember("ada", of: "eve")
    let answer = try stage.json("GET", "/inApps/v1/subscriptions/\(own)")
    #expect(answer["data"]?.array?.count == 1)
    #expect(try statuses(answer).count == 2)
    try simulation.revokeFamilyAccess(of: "ada")
    let after = try statuses(try stage.json("GET", "/inApps/v1/subscriptions/\(own)"))
    #expect(after.values.sorted() == [1, 5])
  }

  @Test func everythingByTheDownload() throws {
    let bought = try simulation.buy("monthly", on: "phone")
    let download = try #require(
      try SignedParts(try simulation.signedTransaction(of: bought.transactionID)).payload
        .text("appTransactionId"))
    #expect(try ids(try stage.json("GET", "/inApps/v2/history/\(download)")).count == 1)
    #expect(
      try statuses(try stage.json("GET", "/inApps/v1/subscriptions/\(download)")).count == 1)
    for id in [download, bought.transactionID.rawValue] {
      let answer = try stage.json("GET", "/inApps/v1/transactions/appTransactions/\(id)")
      let payload = try SignedParts(try #require(answer.text("signedAppTransactionInfo"))).payload
      #expect(payload.text("appTransactionId") == download)
    }
    #expect(try error("GET", "/inApps/v2/history/\(download)", at: .sandbox) == 4_040_010)
  }

  // MARK: Refunds and orders

  @Test func refundsInPages() throws {
    for _ in 1...25 { try simulation.buy("coins.100", on: "phone") }
    let charges = simulation.truth().map(\.transactionID)
    for id in charges.reversed() {
      simulation.advance(by: .minutes(1))
      try simulation.refund(id)
    }
    let path = "/inApps/v2/refund/lookup/\(charges[0])"
    let first = try stage.json("GET", path)
    #expect(try ids(first) == charges.reversed().prefix(20).map(\.rawValue))
    #expect(first["hasMore"] == true)
    let revision = try #require(first.text("revision"))
    let second = try stage.json("GET", path, [("revision", revision)])
    #expect(try ids(second) == charges.reversed().suffix(5).map(\.rawValue))
    #expect(second["hasMore"] == false)
    let last = try #require(second.text("revision"))
    #expect(try ids(try stage.json("GET", path, [("revision", last)])).isEmpty)
    try simulation.reverseRefund(charges[24])
    #expect(try ids(try stage.json("GET", path)).first == charges[23].rawValue)
    #expect(try error("GET", path, [("revision", "x")]) == 4_000_005)
    // A charge that was not refunded has no refunds.
    try simulation.addAppleID("bob")
    let none = try simulation.buyInSettings("monthly", appleID: "bob")
    let empty = try stage.json("GET", "/inApps/v2/refund/lookup/\(none.transactionID)")
    #expect(try ids(empty).isEmpty)
  }

  @Test func orders() throws {
    let bought = try simulation.buy("monthly", on: "phone")
    let order = try #require(try simulation.truth(of: bought.transactionID).orderID)
    let found = try stage.json("GET", "/inApps/v1/lookup/\(order)")
    #expect(found["status"] == 0)
    #expect(try ids(found) == [bought.transactionID.rawValue])
    for (path, environment) in [
      ("/inApps/v1/lookup/MNONE", Environment.production), ("/inApps/v1/lookup/\(order)", .sandbox),
    ] {
      let missing = try stage.json("GET", path, at: environment)
      #expect(missing["status"] == 1)
      #expect(missing["signedTransactions"] == [])
    }
  }

  // MARK: Limits

  @Test func rateLimits() throws {
    let bought = try simulation.buy("monthly", on: "phone")
    let info = "/inApps/v1/transactions/\(bought.transactionID)"
    let refunds = "/inApps/v2/refund/lookup/\(bought.transactionID)"
    // Apple's limit of fifty a second becomes five an hour, and its ten a second becomes one.
    simulation.setRateLimitScale(5.0 / (50 * 3_600))
    for _ in 1...5 { #expect(try stage.ask("GET", info).httpStatus == 200) }
    #expect(try error("GET", info) == 4_290_000)
    let refused = try stage.ask("GET", info)
    #expect(refused.httpStatus == 429)
    #expect(
      refused.retryAfter == String((Stage.start + .hours(1)).milliseconds),
      "An instant in milliseconds, not a number of seconds.")
    #expect(try stage.ask("GET", refunds).httpStatus == 200)
    #expect(try error("GET", refunds) == 4_290_000)
    simulation.advance(by: .hours(1))
    #expect(try stage.ask("GET", info).httpStatus == 200)
    // The sandbox takes a tenth: nothing, here.
    #expect(try error("GET", info, at: .sandbox) == 4_290_000)
    simulation.setRateLimitScale(nil)
    for _ in 1...10 { #expect(try stage.ask("GET", info).httpStatus == 200) }
  }

  @Test func faults() throws {
    let bought = try simulation.buy("monthly", on: "phone")
    let path = "/inApps/v1/transactions/\(bought.transactionID)"
    simulation.setServerFaults {
      $0.next = [.serverError(4_040_002), .serverError(5_000_001), .unavailable]
    }
    #expect(try error("GET", path) == 4_040_002)
    #expect(try error("GET", path) == 5_000_001)
    #expect(try stage.ask("GET", path).httpStatus == 503)
    simulation.setServerFaults { $0.next = [.tooManyRequests(retryAfterSeconds: 90)] }
    let limited = try stage.ask("GET", path)
    #expect(limited.retryAfter == String((simulation.now + .seconds(90)).milliseconds))
    // Faults of receipts are others.
    simulation.setFaults { $0.next = [.unavailable] }
    #expect(try stage.ask("GET", path).httpStatus == 200)
    #expect(SimulatedFault(name: "5000001") == .serverError(5_000_001))
    #expect(SimulatedFault(name: "4040010") == nil)
  }
}
