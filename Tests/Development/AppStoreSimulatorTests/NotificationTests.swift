import AppStore
import AppStoreSimulator
import struct Foundation.UUID
import Subscriptions
import Testing

/// Apple's notifications: each event's types, and the state at the time of the event.
struct NotificationTests {
  enum Action: Sendable {
    case buy(ProductID), redeem(ProductID), off, on, failCard, repairCard, withdraw(ProductID)
    case refund, reverse, request, decline, raisePrice, acceptPrice, extend, migrate
    case wait(days: Int)
  }

  /// The notifications of a life: types of version 2 with status and renewal, types of version 1.
  struct Story: Sendable, CustomTestStringConvertible {
    let actions: [Action]
    /// Type, subtype and, for subscriptions only, status and autoRenewStatus.
    let two: [String]
    let one: [String]

    init(_ actions: [Action], two: [String], one: [String]) {
      self.actions = actions
      self.two = two
      self.one = one
    }

    var testDescription: String { "\(actions)" }
  }

  // swift-format-ignore
  static let stories = [
    Story([.buy("monthly")], two: ["SUBSCRIBED INITIAL_BUY 1 on"], one: ["INITIAL_BUY"]),
    Story([.buy("monthly"), .wait(days: 31)],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "DID_RENEW - 1 on"], one: ["INITIAL_BUY", "DID_RENEW"]),
    Story([.buy("coins.100")], two: ["ONE_TIME_CHARGE - - -"], one: []),
    Story([.buy("coins.100"), .refund],
      two: ["ONE_TIME_CHARGE - - -", "REFUND - - -"], one: ["REFUND"]),
    Story([.buy("monthly"), .buy("premium")],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "DID_CHANGE_RENEWAL_PREF UPGRADE 1 on"],
      one: ["INITIAL_BUY", "CANCEL", "DID_CHANGE_RENEWAL_STATUS", "INTERACTIVE_RENEWAL"]),
    Story([.buy("premium"), .buy("monthly"), .buy("premium")],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "DID_CHANGE_RENEWAL_PREF DOWNGRADE 1 on",
            "DID_CHANGE_RENEWAL_PREF - 1 on"],
      one: ["INITIAL_BUY", "DID_CHANGE_RENEWAL_PREF", "DID_CHANGE_RENEWAL_PREF"]),
    Story([.buy("monthly"), .off, .on, .off, .wait(days: 31), .buy("monthly")],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "DID_CHANGE_RENEWAL_STATUS AUTO_RENEW_DISABLED 1 off",
            "DID_CHANGE_RENEWAL_STATUS AUTO_RENEW_ENABLED 1 on",
            "DID_CHANGE_RENEWAL_STATUS AUTO_RENEW_DISABLED 1 off", "EXPIRED VOLUNTARY 2 off",
            "SUBSCRIBED RESUBSCRIBE 1 on"],
      one: ["INITIAL_BUY", "DID_CHANGE_RENEWAL_STATUS", "DID_CHANGE_RENEWAL_STATUS",
            "DID_CHANGE_RENEWAL_STATUS", "INTERACTIVE_RENEWAL"]),
    Story([.buy("monthly"), .failCard, .wait(days: 31), .repairCard],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "DID_FAIL_TO_RENEW GRACE_PERIOD 4 on",
            "DID_RENEW BILLING_RECOVERY 1 on"],
      one: ["INITIAL_BUY", "DID_FAIL_TO_RENEW", "DID_RECOVER"]),
    Story([.buy("monthly"), .failCard, .wait(days: 100)],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "DID_FAIL_TO_RENEW GRACE_PERIOD 4 on",
            "GRACE_PERIOD_EXPIRED - 3 on", "EXPIRED BILLING_RETRY 2 off"],
      one: ["INITIAL_BUY", "DID_FAIL_TO_RENEW"]),
    Story([.buy("monthly"), .withdraw("monthly"), .wait(days: 31)],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "EXPIRED PRODUCT_NOT_FOR_SALE 2 on"],
      one: ["INITIAL_BUY"]),
    Story([.buy("monthly"), .raisePrice, .wait(days: 31)],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "PRICE_INCREASE PENDING 1 on",
            "EXPIRED PRICE_INCREASE 2 on"],
      one: ["INITIAL_BUY", "PRICE_INCREASE_CONSENT"]),
    Story([.buy("monthly"), .raisePrice, .acceptPrice],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "PRICE_INCREASE PENDING 1 on",
            "PRICE_INCREASE ACCEPTED 1 on"],
      one: ["INITIAL_BUY", "PRICE_INCREASE_CONSENT"]),
    Story([.buy("monthly"), .request, .refund, .reverse],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "CONSUMPTION_REQUEST - 1 on",
            "DID_CHANGE_RENEWAL_STATUS AUTO_RENEW_DISABLED 5 off", "REFUND - 5 off",
            "REFUND_REVERSED - 1 off"],
      one: ["INITIAL_BUY", "CONSUMPTION_REQUEST", "DID_CHANGE_RENEWAL_STATUS", "CANCEL"]),
    Story([.buy("monthly"), .request, .decline],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "CONSUMPTION_REQUEST - 1 on", "REFUND_DECLINED - 1 on"],
      one: ["INITIAL_BUY", "CONSUMPTION_REQUEST"]),
    Story([.buy("monthly"), .extend],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "RENEWAL_EXTENDED - 1 on"], one: ["INITIAL_BUY"]),
    Story([.buy("monthly"), .migrate, .wait(days: 31)],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "MIGRATION - 1 on", "DID_RENEW - 1 on"],
      one: ["INITIAL_BUY", "DID_RENEW"]),
    Story([.buy("monthly"), .redeem("monthly")],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "OFFER_REDEEMED - 1 on"], one: ["INITIAL_BUY"]),
    Story([.buy("monthly"), .redeem("premium"), .redeem("monthly")],
      two: ["SUBSCRIBED INITIAL_BUY 1 on", "OFFER_REDEEMED UPGRADE 1 on",
            "OFFER_REDEEMED DOWNGRADE 1 on"],
      one: ["INITIAL_BUY", "CANCEL", "DID_CHANGE_RENEWAL_STATUS", "INTERACTIVE_RENEWAL",
            "DID_CHANGE_RENEWAL_PREF"]),
  ]

  @Test(arguments: stories) func events(_ story: Story) async throws {
    let stage = try Stage()
    try stage.notify(.v2, .v1)
    for action in story.actions {
      try Self.perform(action, on: stage)
      stage.simulation.advance(by: .seconds(7))
    }
    var two: [String] = []
    for notification in stage.simulation.notifications() where notification.version == .v2 {
      let signed = try await stage.verified(notification)
      let status = signed.payload.data?.status.map { String($0) } ?? "-"
      let renews = signed.renewalInfo?.payload.autoRenewStatus.map { $0 == 1 ? "on" : "off" }
      two.append(
        "\(notification.type) \(notification.subtype ?? "-") \(status) \(renews ?? "-")")
      try Self.check(signed, against: notification, on: stage)
    }
    #expect(two == story.two)
    let one = stage.simulation.notifications().filter { $0.version == .v1 }.map(\.type)
    #expect(one == story.one)
  }

  private static func perform(_ action: Action, on stage: Stage) throws {
    let simulation = stage.simulation
    let last = simulation.truth().last
    switch action {
    case .buy(let product): try simulation.buy(product, on: "phone")
    case .redeem(let product):
      try simulation.buy(
        product, on: "phone", offer: SimulatedOffer(.code, "SPRING", priceMilliunits: 1_990))
    case .off: try simulation.setAutoRenew(false, try #require(last).originalTransactionID)
    case .on: try simulation.setAutoRenew(true, try #require(last).originalTransactionID)
    case .failCard: try simulation.failCard(of: "ada")
    case .repairCard: try simulation.repairCard(of: "ada")
    case .withdraw(let product): try simulation.withdraw(product)
    case .refund: try simulation.refund(try #require(last).transactionID)
    case .reverse: try simulation.reverseRefund(try #require(last).transactionID)
    case .request: try simulation.requestRefund(try #require(last).transactionID, reason: .legal)
    case .decline: try simulation.declineRefund(try #require(last).transactionID)
    case .raisePrice: try simulation.raisePrice(of: "monthly", to: 12_990, needsConsent: true)
    case .acceptPrice: try simulation.acceptPrice(try #require(last).originalTransactionID)
    case .extend: try simulation.extend(try #require(last).originalTransactionID, days: 10)
    case .migrate: try simulation.migrate(try #require(last).originalTransactionID)
    case .wait(let days): simulation.advance(by: .days(days))
    }
  }

  /// Checks the properties common to all notifications.
  private static func check(
    _ signed: SignedNotification, against notification: SimulatedNotification, on stage: Stage
  ) throws {
    let event = try #require(notification.event)
    #expect(signed.payload.notificationType?.rawValue == notification.type)
    #expect(signed.payload.notificationUUID == notification.uuid.uuidString.lowercased())
    #expect(signed.payload.version == "2.0")
    #expect(signed.payload.signedDate == event.at)
    #expect(signed.payload.data?.appAppleID == Int64(SimulatedApp.sample.appAppleID))
    #expect(signed.payload.data?.bundleVersion == "1")
    let transaction = try #require(signed.transaction)
    #expect(transaction.payload.signedDate == event.at)
    #expect(transaction.payload.transactionID == event.transactionID.rawValue)
    #expect(signed.renewalInfo?.payload.signedDate ?? event.at == event.at)
    let reason = signed.payload.data?.consumptionRequestReason
    #expect(reason == (notification.type == "CONSUMPTION_REQUEST" ? "LEGAL" : nil))
    let isRefund = ["REFUND", "DID_CHANGE_RENEWAL_STATUS"].contains(notification.type)
    if !isRefund { #expect(transaction.payload.revocationDate == nil) }
    if notification.type == "REFUND" { #expect(transaction.payload.revocationDate == event.at) }
  }

  @Test func everyUUIDIsAnother() throws {
    func uuids(_ seed: UInt64) throws -> [UUID] {
      let stage = try Stage(seed: seed)
      try stage.notify(.v2, .v1)
      try stage.simulation.buy("monthly", on: "phone")
      stage.simulation.advance(by: .days(200))
      return stage.simulation.notifications().map(\.uuid)
    }
    let first = try uuids(1)
    #expect(Set(first).count == first.count)
    #expect(try uuids(1) == first)
    #expect(try uuids(2) != first)
  }

  @Test func nothingIsWrittenWithoutATarget() throws {
    let stage = try Stage()
    try stage.simulation.buy("monthly", on: "phone")
    #expect(stage.simulation.notifications().isEmpty)
    try stage.notify(.v2)
    stage.simulation.advance(by: .days(31))
    #expect(stage.simulation.notifications().map(\.type) == ["DID_RENEW"])
    try stage.simulation.setNotificationTargets([])
    stage.simulation.advance(by: .days(31))
    #expect(stage.simulation.notifications().count == 1)
  }

  @Test func environmentsHaveTargetsOfTheirOwn() async throws {
    let stage = try Stage()
    try stage.simulation.setNotificationTargets(
      [NotificationTarget(.v2, url: Stage.url)], environment: .sandbox)
    try stage.simulation.buy("monthly", on: "phone")
    #expect(stage.simulation.notifications().isEmpty)
    try stage.simulation.addAppleID("tester", environment: .sandbox)
    try stage.simulation.addDevice("test phone", appleID: "tester")
    try stage.simulation.buy("monthly", on: "test phone")
    let signed = try await stage.verified(try #require(stage.simulation.notifications().first))
    #expect(signed.environment == .sandbox)
    #expect(signed.payload.data?.appAppleID == nil)
  }

  @Test func familyMembersGetTheirOwn() async throws {
    let stage = try Stage()
    let simulation = stage.simulation
    try simulation.addAppleID("bob")
    try simulation.addDevice("bob's phone", appleID: "bob")
    try simulation.addFamilyMember("bob", of: "ada")
    try stage.notify(.v2)
    let line = try simulation.buy("premium", on: "phone").originalTransactionID
    try simulation.setAutoRenew(false, line)
    try simulation.setAutoRenew(true, line)
    try simulation.extend(line, days: 5)
    simulation.advance(by: .days(37))
    try simulation.refund(try #require(simulation.truth(of: "ada").last).transactionID)
    try simulation.reverseRefund(try #require(simulation.truth(of: "ada").last).transactionID)
    try simulation.revokeFamilyAccess(of: "bob")
    var sent: [String: [String]] = [:]
    for notification in simulation.notifications() {
      let signed = try await stage.verified(notification)
      let ownership = try #require(signed.transaction?.payload.inAppOwnershipType?.rawValue)
      sent[ownership, default: []].append(
        [notification.type, notification.subtype].compactMap(\.self).joined(separator: " "))
      let original = try #require(notification.originalTransactionID)
      #expect((original == line) == (ownership == "PURCHASED"))
    }
    let shared = [
      "SUBSCRIBED INITIAL_BUY", "DID_CHANGE_RENEWAL_STATUS AUTO_RENEW_DISABLED",
      "DID_CHANGE_RENEWAL_STATUS AUTO_RENEW_ENABLED", "RENEWAL_EXTENDED", "DID_RENEW",
      "DID_CHANGE_RENEWAL_STATUS AUTO_RENEW_DISABLED",
    ]
    #expect(sent["PURCHASED"] == shared + ["REFUND", "REFUND_REVERSED"])
    #expect(sent["FAMILY_SHARED"] == shared + ["REVOKE", "REFUND_REVERSED", "REVOKE"])
  }

  @Test func aMigratedSubscriptionNamesTheOneBefore() async throws {
    let stage = try Stage()
    try stage.notify(.v2)
    let bought = try stage.simulation.buy("monthly", on: "phone")
    stage.simulation.advance(by: .days(40))
    let renewal = try #require(stage.simulation.truth().last)
    let event = try stage.simulation.migrate(bought.originalTransactionID)
    #expect(event.kind == .migrated(from: bought.originalTransactionID))
    #expect(event.originalTransactionID != bought.originalTransactionID)
    #expect(event.transactionID == renewal.transactionID)
    let signed = try await stage.verified(try #require(stage.simulation.notifications().last))
    let old = OriginalTransactionKey(.production, bought.originalTransactionID)
    let new = OriginalTransactionKey(.production, event.originalTransactionID)
    #expect(signed.evidence.contains(.link(line: new, previous: old)))
    // Expired charges stay on the old line; the active one renews on the new line.
    #expect(try stage.simulation.truth(of: bought.transactionID).line == old)
    stage.simulation.advance(by: .days(31))
    let charges = stage.simulation.truth()
    #expect(charges.map(\.line) == [old, new, new])
    #expect(charges.map(\.kind) == [.purchase, .renewal, .renewal])
    let answer = try stage.answer()
    #expect(
      answer.pending.map { $0.text("original_transaction_id") } == [
        event.originalTransactionID.rawValue
      ])
    #expect(try stage.simulation.buy("premium", on: "phone").kind == .upgraded)
    #expect(throws: SimulationError.self) {
      try stage.simulation.migrate(bought.originalTransactionID)
    }
  }

  @Test func theFamilyKeepsItsSubscriptionsWhenThePurchasersMigrates() throws {
    let stage = try Stage()
    let simulation = stage.simulation
    try simulation.addAppleID("bob")
    try simulation.addFamilyMember("bob", of: "ada")
    let line = try simulation.buy("premium", on: "phone").originalTransactionID
    try simulation.migrate(line)
    simulation.advance(by: .days(31))
    let shares = simulation.truth(of: AppleID("bob"))
    #expect(shares.map(\.kind) == [.purchase, .renewal])
    #expect(Set(shares.map(\.line)).count == 1)
  }

  @Test func anExtensionMovesEveryPeriodAfterIt() throws {
    let stage = try Stage()
    let line = try stage.simulation.buy("monthly", on: "phone").originalTransactionID
    try stage.simulation.extend(line, days: 10)
    try stage.simulation.extend(line, days: 1)
    #expect(throws: SimulationError.self) { try stage.simulation.extend(line, days: 1) }
    try stage.advance(to: "2026-03-13T00:00:00Z")
    let latest = try stage.answer().latest
    #expect(
      latest.map { $0.minute("expires") } == [
        "2026-02-12T00:00", "2026-03-12T00:00", "2026-04-12T00:00",
      ])
    #expect(
      latest.map { $0.minute("purchase") } == [
        "2026-01-01T00:00", "2026-02-12T00:00", "2026-03-12T00:00",
      ])
  }

  @Test func anOfferIsForTheNextPeriodAlone() throws {
    let stage = try Stage()
    try stage.simulation.buy("monthly", on: "phone")
    try stage.simulation.buy(
      "monthly", on: "phone", offer: SimulatedOffer(.promotional, "stay", priceMilliunits: 990))
    #expect(try stage.answer().pending.first?.text("promotional_offer_id") == "stay")
    try stage.advance(to: "2026-03-05T00:00:00Z")
    #expect(stage.simulation.truth().map(\.priceMilliunits) == [9_990, 990, 9_990])
    #expect(
      try stage.answer().latest.map { $0.text("promotional_offer_id") } == [nil, "stay", nil])
  }
}
