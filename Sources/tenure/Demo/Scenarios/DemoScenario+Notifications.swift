import AppStore
import AppStoreSimulator
import Foundation
import Subscriptions

/// Notifications come twice, in the wrong order, from strangers, or say too little to be believed.
extension DemoScenario {
  static let disorderAndForgery = DemoScenario(
    "G", "Notifications about vera's lifetime come in the wrong order, twice, and forged"
  ) { stage in
    let phone = try stage.phone("vera")
    try phone.buy("lifetime")
    try await phone.submit()
    try await stage.notify()
    let purchase = try phone.latest("lifetime")
    stage.letNextNotification(.outOfOrder)
    try phone.refund(purchase)
    stage.letNextNotification(.doubled)
    try phone.reverseRefund(purchase)
    try await stage.notify()
    let entries = try await stage.tenure.transaction(purchase.transactionID).history?.count
    try await stage.expect("vera", mayUse: ["lifetime"])

    stage.wait(.minutes(2))
    try await stage.notify()
    let entriesAfter = try await stage.tenure.transaction(purchase.transactionID).history?.count
    stage.expect(entries == entriesAfter, "The repetition adds nothing to the ledger.")

    let genuine = stage.simulation.notifications().last { $0.event?.appleID == phone.appleID }
    stage.tell("A stranger writes REFUND into a copy of it, and posts that.")
    let status = try await stage.tenure.postNotification(
      try forged(genuine?.signedPayload, writing: "REFUND", over: "REFUND_REVERSED"))
    stage.expect(
      status == 400, "Tenure answers \(status), and logs why: the signature does not fit.")
    try await stage.expect("vera", mayUse: ["lifetime"])
  }

  static let reversedRefund = DemoScenario(
    "H", "walter's month is refunded, and Apple takes that back"
  ) { stage in
    let phone = try stage.phone("walter")
    try await phone.subscribe("monthly")
    try await stage.notify()
    let month = try phone.latest("monthly")
    try phone.refund(month)
    try await stage.notify()
    try await stage.expect("walter", mayUse: [])
    try phone.reverseRefund(month)
    try await stage.notify()
    try await stage.expect("the month", month.transactionID, isOwnedBy: "walter", .submitter)
    try await stage.expect("walter", mayUse: ["pro"])
  }

  static let doorbell = DemoScenario(
    "I", "A notification of version 1 is only a doorbell: Tenure asks Apple about xenia's month"
  ) { stage in
    try stage.chooseNotifications(.v1)
    let phone = try stage.phone("xenia")
    try await phone.subscribe("monthly")
    try await stage.notify()
    let month = try phone.latest("monthly").transactionID
    stage.beginOutage()
    try phone.refund(phone.latest("monthly"))
    try await stage.notify()
    try await stage.expect("xenia", mayUse: ["pro"])
    let revokedAt = try await stage.waitForWorker {
      try await stage.tenure.transaction(month).revokedAt
    }
    stage.tell(
      "Apple is back, and the worker has shown it the receipt that was in the notification.")
    stage.expect(true, "Apple confirms that the month is revoked: \(revokedAt).")
    try await stage.expect("xenia", mayUse: [])
  }

  static let foundInHistory = DemoScenario(
    "M", "News of dana's refund gets lost; Apple's history of notifications still has it"
  ) { stage in
    let phone = try stage.phone("dana")
    try await phone.subscribe("monthly")
    try await stage.notify()
    let month = try phone.latest("monthly")
    try phone.refund(month)
    stage.loseNotifications()
    try await stage.expect("dana", mayUse: ["pro"])
    let lost = try await stage.lostNotifications(about: month)
    stage.tell(
      "The App Store Server API lists \(lost.count) that did not arrive. They are sent on.")
    var statuses: [UInt] = []
    for payload in lost.compactMap(\.notification?.jws) {
      let body = #"{"signedPayload":"\#(payload)"}"#
      statuses.append(try await stage.tenure.postNotification(body))
    }
    stage.expect(
      statuses == [200, 200],
      "Tenure takes them, whoever brings them, for Apple signed them: \(statuses).")
    try await stage.expect("dana", mayUse: [])
  }

  /// A notification with another type, but with the signature that it had.
  private static func forged(
    _ signedPayload: String?, writing type: String, over genuine: String
  ) throws -> String {
    var parts = (signedPayload ?? "").split(separator: ".").map(String.init)
    guard parts.count == 3, let payload = Data(base64URLEncoded: parts[1]) else {
      throw SimulationError(.notPossible, "There is no notification to forge.")
    }
    let text = String(decoding: payload, as: UTF8.self)
      .replacing("\"\(genuine)\"", with: "\"\(type)\"")
    parts[1] = Data(text.utf8).base64URLEncodedString()
    return #"{"signedPayload":"\#(parts.joined(separator: "."))"}"#
  }
}

extension Data {
  /// Nil for what is no base64url without padding (RFC 7515, section 2).
  fileprivate init?(base64URLEncoded text: String) {
    let padding = String(repeating: "=", count: (4 - text.count % 4) % 4)
    self.init(
      base64Encoded: text.replacing("-", with: "+").replacing("_", with: "/") + padding)
  }

  fileprivate func base64URLEncodedString() -> String {
    base64EncodedString().replacing("+", with: "-").replacing("/", with: "_")
      .replacing("=", with: "")
  }
}
