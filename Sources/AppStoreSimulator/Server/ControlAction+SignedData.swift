import AppStore
import JSONText
import Subscriptions

/// The control interface to what Apple signs, tells by itself and answers to servers.
extension ControlAction {
  static let signedData = [
    ControlAction(
      name: "root-certificate", parameters: [],
      summary: "the root of everything that is signed here, as PEM", isQuestion: true
    ) { simulation, _ in
      ["pem": .string(simulation.rootCertificatePEM)]
    },
    ControlAction(
      name: "api-key", parameters: [],
      summary: "the key for the App Store Server API, its private part too", isQuestion: true
    ) { simulation, _ in
      [
        "issuer_id": .string(simulation.apiKey.issuerID),
        "key_id": .string(simulation.apiKey.keyID),
        "private_key": .string(simulation.apiKey.privateKeyPEM),
      ]
    },
    ControlAction(
      name: "signed-transaction", parameters: ["transaction_id"],
      summary: "a transaction as StoreKit 2 gives it to the app: a JWS", isQuestion: true
    ) { simulation, request in
      [
        "signed_transaction": .string(
          try simulation.signedTransaction(of: try request.id("transaction_id")))
      ]
    },
    ControlAction(
      name: "signed-renewal-info", parameters: ["original_transaction_id"],
      summary: "whether and as what a subscription renews: a JWS", isQuestion: true
    ) { simulation, request in
      [
        "signed_renewal_info": .string(
          try simulation.signedRenewalInfo(of: try request.id("original_transaction_id")))
      ]
    },
    ControlAction(
      name: "signed-transactions", parameters: ["device", "bundle_id?"],
      summary: "everything that StoreKit 2 gives to the app on a device", isQuestion: true
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
      summary: "a customer wants the money back: CONSUMPTION_REQUEST"
    ) { simulation, request in
      try simulation.requestRefund(
        try request.id("transaction_id"),
        reason: try request.optionalWord("reason") ?? .unintendedPurchase
      ).json
    },
    ControlAction(
      name: "decline-refund", parameters: ["transaction_id"], summary: "Apple keeps the money"
    ) { simulation, request in
      try simulation.declineRefund(try request.id("transaction_id")).json
    },
    ControlAction(
      name: "extend", parameters: ["original_transaction_id", "days"],
      summary: "more days without a charge"
    ) { simulation, request in
      let days = try request.integer("days")
      return try simulation.extend(try request.id("original_transaction_id"), days: days).json
    },
    ControlAction(
      name: "migrate", parameters: ["original_transaction_id"],
      summary: "a subscription goes on under a new original id"
    ) { simulation, request in
      try simulation.migrate(try request.id("original_transaction_id")).json
    },
    ControlAction(
      name: "consumption-reports", parameters: ["transaction_id"],
      summary: "what the app's server told after a request for a refund", isQuestion: true
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
      summary: "where notifications go: v2, v1 or v1-before-2021, or both; without a URL nowhere"
    ) { simulation, request in
      let targets = try request.notificationTargets()
      try simulation.setNotificationTargets(
        targets, of: try request.optionalText("bundle_id"),
        environment: try request.optionalWord("environment"))
      return [:]
    },
    ControlAction(
      name: "send-test", parameters: ["bundle_id?", "environment?"],
      summary: "a notification of the type TEST"
    ) { simulation, request in
      try simulation.sendTestNotification(
        of: try request.optionalText("bundle_id"),
        environment: try request.optionalWord("environment") ?? .production
      ).json
    },
    ControlAction(
      name: "notifications", parameters: ["after?"],
      summary: "what was written to servers and how it fared, after a number", isQuestion: true
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
      summary: "the same of the App Store Server API"
    ) { simulation, request in
      let change = try request.faultPlan(usualKinds: FaultPlan.usualServerKinds)
      simulation.setServerFaults(change)
      return [:]
    },
    ControlAction(
      name: "rate-limits", parameters: ["scale?"],
      summary: "how many times Apple's number of requests the API takes; none: any number"
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
  /// Far beyond what a machine can be asked in an hour.
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
  /// One version by its name, or `both`; nil for another word.
  package static func list(_ name: String) -> [SimulatedNotification.Version]? {
    if name == "both" { return [.v1, .v2] }
    return SimulatedNotification.Version(rawValue: name).map { [$0] }
  }
}
