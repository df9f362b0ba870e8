import AppStore
import Foundation
import JSONText
import Subscriptions

// The fields and responses of the control interface.

extension ControlRequest {
  func offer() throws -> SimulatedOffer? {
    if let name = try optionalText("promotional_offer") {
      return SimulatedOffer(.promotional, name)
    }
    return try optionalText("offer_code").map { SimulatedOffer(.code, $0) }
  }

  func faults(_ key: String) throws -> [SimulatedFault]? {
    try optionalList(key, of: "faults", \.fault)
  }

  func rate() throws -> Double {
    try optional("rate", "a number from 0 to 1") { value -> Double? in
      guard let rate = value.double, (0...1).contains(rate) else { return nil }
      return rate
    } ?? 0
  }

  /// The changes requested by `next`, `rate`, `kinds`, `down_until` and `down_fault`.
  func faultPlan(usualKinds: [SimulatedFault]) throws -> @Sendable (inout FaultPlan) -> Void {
    let next = try faults("next") ?? []
    let kinds = try faults("kinds") ?? usualKinds
    let outage = try optional("down_fault", "a fault") { $0.fault } ?? .unavailable
    let outageEnd = try optionalMoment("down_until")
    let rate = try rate()
    return { plan in
      plan.next = next
      plan.rate = rate
      plan.kinds = kinds
      plan.outageEnd = outageEnd
      plan.outage = outage
    }
  }

  func notificationFaults(_ key: String) throws -> [NotificationFault]? {
    try optionalList(key, of: "faults") { $0.string.flatMap(NotificationFault.init(name:)) }
  }
}

extension JSONValue {
  var fault: SimulatedFault? {
    (string ?? integer.map { String($0) }).flatMap(SimulatedFault.init(name:))
  }

  var double: Double? {
    if case .number(let value) = self { return value }
    return integer.map(Double.init)
  }
}

extension SimulatedApp {
  init(_ request: ControlRequest) throws {
    self.init(
      bundleID: try request.text("bundle_id"),
      appAppleID: try request.optionalInteger("app_apple_id") ?? 1_234_567_890,
      sharedSecret: try request.text("shared_secret"),
      version: try request.optionalText("version") ?? "1",
      gracePeriod: try request.optional("grace_days", "3, 16 or 28") {
        $0.integer.flatMap(Int.init(exactly:)).flatMap(GracePeriod.init(rawValue:))
      },
      products: try request.required(
        "products",
        try request.optionalList("products", of: "products") { try SimulatedProduct($0) }))
  }
}

extension SimulatedProduct {
  private static let fieldNames = [
    "product_id", "type", "group", "level", "period", "price_milliunits", "currency",
    "introductory_period", "introductory_price_milliunits", "family_shareable",
  ]

  init?(_ json: JSONValue) throws {
    guard case .object = json else { return nil }
    let request = ControlRequest(fields: json)
    try request.check(allowed: Self.fieldNames)
    let id: ProductID = try request.id("product_id")
    let type: ProductType = try request.required("type", try request.optionalWord("type"))
    let price = Int64(try request.optionalInteger("price_milliunits") ?? 990)
    let currency = try request.optionalText("currency") ?? "USD"
    let isFamilyShareable = try request.optionalBool("family_shareable") ?? false
    guard type == .autoRenewable else {
      self = .oneTime(
        id, type, priceMilliunits: price, currency: currency,
        isFamilyShareable: isFamilyShareable)
      return
    }
    let introductoryPrice = Int64(
      try request.optionalInteger("introductory_price_milliunits") ?? 0)
    self = .subscription(
      id, group: try request.text("group"), level: try request.optionalInteger("level") ?? 1,
      period: try request.required("period", try request.optionalPeriod("period")),
      priceMilliunits: price, currency: currency,
      introductoryOffer: try request.optionalPeriod("introductory_period").map {
        IntroductoryOffer(period: $0, priceMilliunits: introductoryPrice)
      },
      isFamilyShareable: isFamilyShareable)
  }
}

extension SimulatedEvent {
  var json: JSONValue {
    var members: [JSONValue.Member] = []
    members.append("number", .integer(Int64(number)))
    members.append("at", at.description)
    members.append("kind", kind.name)
    members.append("environment", environment.rawValue)
    members.append("bundle_id", bundleID)
    members.append("apple_id", appleID.rawValue)
    members.append("original_transaction_id", originalTransactionID.rawValue)
    members.append("transaction_id", transactionID.rawValue)
    members.append("product_id", productID.rawValue)
    members.append("account", account.map { .string($0.rawValue) } ?? .null)
    switch kind {
    case .renewalProductChanged(let product):
      members.append("auto_renew_product_id", product.rawValue)
    case .renewalFailed(let graceUntil):
      members.append("grace_until", graceUntil.map { .string($0.description) } ?? .null)
    case .expired(let intent): members.append("expiration_intent", .integer(Int64(intent)))
    case .offerRedeemed(let redemption): members.append("redemption", redemption.rawValue)
    case .renewalExtended(let days): members.append("days", .integer(Int64(days)))
    case .refundRequested(let reason): members.append("reason", reason.rawValue)
    case .migrated(let line): members.append("previous_original_transaction_id", line.rawValue)
    default: break
    }
    return .object(members)
  }
}

extension SimulatedCharge {
  var json: JSONValue {
    func text(_ value: (some CustomStringConvertible)?) -> JSONValue {
      value.map { .string($0.description) } ?? .null
    }
    var members: [JSONValue.Member] = []
    members.append("environment", environment.rawValue)
    members.append("bundle_id", bundleID)
    members.append("apple_id", appleID.rawValue)
    members.append("original_transaction_id", originalTransactionID.rawValue)
    members.append("transaction_ids", .array(transactionIDs.map { .string($0.rawValue) }))
    members.append("web_order_line_item_id", text(webOrderLineItemID))
    members.append("product_id", productID.rawValue)
    members.append("product_type", productType.rawValue)
    members.append("subscription_group", text(group))
    members.append("kind", kind.rawValue)
    members.append("ownership_type", ownership.rawValue)
    members.append("made_at", madeAt.description)
    members.append("purchased_at", purchaseDate.description)
    members.append("expires_at", text(expiresDate))
    members.append("quantity", .integer(Int64(quantity)))
    members.append("price_milliunits", .integer(priceMilliunits))
    members.append("currency", currency)
    members.append("app_account_token", text(appAccountToken?.text))
    members.append("account", text(account))
    members.append("upgraded_at", text(upgradedAt))
    members.append("revoked_at", text(revokedAt))
    members.append("order_id", text(orderID))
    return .object(members)
  }
}

extension SimulatedNotification {
  /// Omits the content, which is long and contains secrets.
  var json: JSONValue {
    func text(_ value: String?) -> JSONValue { value.map { .string($0) } ?? .null }
    var members: [JSONValue.Member] = []
    members.append("number", .integer(Int64(number)))
    members.append("at", at.description)
    members.append("version", version.rawValue)
    members.append("uuid", uuid.text)
    members.append("type", type)
    members.append("subtype", text(subtype))
    members.append("environment", environment.rawValue)
    members.append("bundle_id", bundleID)
    members.append("original_transaction_id", text(originalTransactionID?.rawValue))
    members.append("transaction_id", text(transactionID?.rawValue))
    members.append("event", event.map { .integer(Int64($0.number)) } ?? .null)
    members.append(
      "attempts",
      .array(
        attempts.map { attempt in
          [
            "at": .string(attempt.at.description), "url": .string(attempt.url),
            "result": .string(attempt.result.rawValue),
            "http_status": attempt.httpStatus.map { .integer(Int64($0)) } ?? .null,
          ]
        }))
    return .object(members)
  }
}

// The control interface for signed data, notifications and the App Store Server API.
extension ControlAction {
  static let signedData = [
    ControlAction(
      name: "root-certificate", parameters: [],
      summary: "the root certificate of all signatures, in PEM", isQuestion: true
    ) { simulation, _ in
      ["pem": .string(simulation.rootCertificatePEM)]
    },
    ControlAction(
      name: "api-key", parameters: [],
      summary: "the key for the App Store Server API, including its private part", isQuestion: true
    ) { simulation, _ in
      [
        "issuer_id": .string(simulation.apiKey.issuerID),
        "key_id": .string(simulation.apiKey.keyID),
        "private_key": .string(simulation.apiKey.privateKeyPEM),
      ]
    },
    ControlAction(
      name: "signed-transaction", parameters: ["transaction_id"],
      summary: "a transaction as StoreKit 2 returns it, a JWS", isQuestion: true
    ) { simulation, request in
      [
        "signed_transaction": .string(
          try simulation.signedTransaction(of: try request.id("transaction_id")))
      ]
    },
    ControlAction(
      name: "signed-renewal-info", parameters: ["original_transaction_id"],
      summary: "a subscription's renewal info, a JWS", isQuestion: true
    ) { simulation, request in
      [
        "signed_renewal_info": .string(
          try simulation.signedRenewalInfo(of: try request.id("original_transaction_id")))
      ]
    },
    ControlAction(
      name: "signed-transactions", parameters: ["device", "bundle_id?"],
      summary: "all signed data that StoreKit 2 returns on a device", isQuestion: true
    ) { simulation, request in
      let device: DeviceID = try request.id("device")
      let bundleID = try request.optionalText("bundle_id")
      func list(_ texts: [String]) -> JSONValue { .array(texts.map { .string($0) }) }
      return [
        "signed_transactions": list(
          try simulation.signedTransactions(on: device, bundleID: bundleID)),
        "current_entitlements": list(
          try simulation.currentEntitlements(on: device, bundleID: bundleID)),
        "signed_renewal_infos": list(
          try simulation.signedRenewalInfos(on: device, bundleID: bundleID)),
        "signed_app_transaction": .string(
          try simulation.signedAppTransaction(on: device, bundleID: bundleID)),
      ]
    },
  ]

  static let lineChanges = [
    ControlAction(
      name: "request-refund", parameters: ["transaction_id", "reason?"],
      summary: "requests a refund: CONSUMPTION_REQUEST"
    ) { simulation, request in
      try simulation.requestRefund(
        try request.id("transaction_id"),
        reason: try request.optionalWord("reason") ?? .unintendedPurchase
      ).json
    },
    ControlAction(
      name: "decline-refund", parameters: ["transaction_id"], summary: "declines a refund request"
    ) { simulation, request in
      try simulation.declineRefund(try request.id("transaction_id")).json
    },
    ControlAction(
      name: "extend", parameters: ["original_transaction_id", "days"],
      summary: "extends a subscription without a charge"
    ) { simulation, request in
      let days = try request.integer("days")
      return try simulation.extend(try request.id("original_transaction_id"), days: days).json
    },
    ControlAction(
      name: "migrate", parameters: ["original_transaction_id"],
      summary: "continues a subscription under a new original ID"
    ) { simulation, request in
      try simulation.migrate(try request.id("original_transaction_id")).json
    },
    ControlAction(
      name: "consumption-reports", parameters: ["transaction_id"],
      summary: "the consumption information sent by the app's server", isQuestion: true
    ) { simulation, request in
      [
        "reports": .array(
          try simulation.consumptionReports(of: try request.id("transaction_id")))
      ]
    },
  ]

  static let notifications = [
    ControlAction(
      name: "notify", parameters: ["url?", "version?", "bundle_id?", "environment?"],
      summary: "the target of notifications: v2, v1, v1-before-2021 or both; without a URL, none"
    ) { simulation, request in
      let targets = try request.notificationTargets()
      try simulation.setNotificationTargets(
        targets, of: try request.optionalText("bundle_id"),
        environment: try request.optionalWord("environment"))
      return [:]
    },
    ControlAction(
      name: "send-test", parameters: ["bundle_id?", "environment?"],
      summary: "sends a TEST notification"
    ) { simulation, request in
      try simulation.sendTestNotification(
        of: try request.optionalText("bundle_id"),
        environment: try request.optionalWord("environment") ?? .production
      ).json
    },
    ControlAction(
      name: "notifications", parameters: ["after?"],
      summary: "notifications after a number, with their delivery attempts", isQuestion: true
    ) { simulation, request in
      let after = try request.optionalInteger("after") ?? 0
      return ["notifications": .array(simulation.notifications(after: after).map(\.json))]
    },
    ControlAction(
      name: "notification-faults", parameters: ["next?", "rate?", "kinds?"],
      summary: "faults of the next notifications, and of a share of all (0 to 1)"
    ) { simulation, request in
      let next = try request.notificationFaults("next") ?? []
      let kinds =
        try request.notificationFaults("kinds") ?? NotificationFaultPlan.usualKinds
      let rate = try request.rate()
      simulation.setNotificationFaults { plan in
        plan.next = next
        plan.rate = rate
        plan.kinds = kinds
      }
      return [:]
    },
  ]

  static let serverAPI = [
    ControlAction(
      name: "api-faults", parameters: ["next?", "rate?", "kinds?", "down_until?", "down_fault?"],
      summary: "the same for the App Store Server API"
    ) { simulation, request in
      let change = try request.faultPlan(usualKinds: FaultPlan.usualServerKinds)
      simulation.setServerFaults(change)
      return [:]
    },
    ControlAction(
      name: "rate-limits", parameters: ["scale?"],
      summary: "scales Apple's request limits; without a scale, unlimited"
    ) { simulation, request in
      simulation.setRateLimitScale(
        try request.optional("scale", "a number that is not negative") { value in
          value.double.flatMap { (0...ControlRequest.largestScale).contains($0) ? $0 : nil }
        })
      return [:]
    },
  ]
}

extension ControlRequest {
  /// Far above the requests that a machine can handle in an hour.
  static let largestScale = 1e6

  fileprivate func notificationTargets() throws -> [NotificationTarget] {
    guard let url = try optionalText("url") else { return [] }
    let expectation = "v1, v2, both or v1-before-2021"
    let versions =
      try optional("version", expectation) { value in
        value.string.flatMap(SimulatedNotification.Version.list)
      } ?? [.v2]
    return versions.map { NotificationTarget($0, url: url) }
  }
}

extension SimulatedNotification.Version {
  /// One version by its name, or `both`; nil for other names.
  package static func list(_ name: String) -> [SimulatedNotification.Version]? {
    if name == "both" { return [.v1, .v2] }
    return SimulatedNotification.Version(rawValue: name).map { [$0] }
  }
}
