import AppStore
import AppStoreSimulator
import Foundation
import HTTPAPI
import Subscriptions

/// Notifications that are duplicated, out of order, forged, or unsigned.
extension DemoScenario {
  static let disorderAndForgery = DemoScenario(
    "Notifications about vera's lifetime arrive out of order, twice, and forged"
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
    stage.expect(entries == entriesAfter, "The duplicate adds nothing to the ledger.")

    let genuine = stage.simulation.notifications().last { $0.event?.appleID == phone.appleID }
    stage.narrate("An attacker changes the type of a copy to REFUND and posts it.")
    let status = try await stage.tenure.postNotification(
      try forged(genuine?.signedPayload, writing: "REFUND", over: "REFUND_REVERSED"))
    stage.expect(
      status == 400, "Tenure answers \(status) and logs the reason: invalid signature.")
    try await stage.expect("vera", mayUse: ["lifetime"])
  }

  static let reversedRefund = DemoScenario(
    "walter's month is refunded, and Apple reverses the refund"
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
    "A version 1 notification proves nothing: Tenure asks Apple about xenia's month"
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
    stage.narrate(
      "Apple is available again, and the worker has verified the receipt from the notification.")
    stage.expect(true, "Apple confirms that the month is revoked: \(revokedAt).")
    try await stage.expect("xenia", mayUse: [])
  }

  static let foundInHistory = DemoScenario(
    "The notification of dana's refund is lost; Apple's notification history still has it"
  ) { stage in
    let phone = try stage.phone("dana")
    try await phone.subscribe("monthly")
    try await stage.notify()
    let month = try phone.latest("monthly")
    try phone.refund(month)
    stage.loseNotifications()
    try await stage.expect("dana", mayUse: ["pro"])
    let lost = try await stage.lostNotifications(about: month)
    stage.narrate(
      "The App Store Server API lists \(lost.count) undelivered notifications. They are forwarded.")
    var statuses: [UInt] = []
    for payload in lost.compactMap(\.notification?.jws) {
      let body = #"{"signedPayload":"\#(payload)"}"#
      statuses.append(try await stage.tenure.postNotification(body))
    }
    stage.expect(
      statuses == [200, 200],
      "Tenure accepts them from any sender because Apple signed them: \(statuses).")
    try await stage.expect("dana", mayUse: [])
  }

  /// A notification with another type but the original signature.
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
  /// Decodes base64url without padding (RFC 7515, section 2), or returns nil.
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

/// Notifications that arrive before, long after, or in another order than the events.
extension DemoScenario {
  static let notificationBeforeSubmission = DemoScenario(
    "Tenure is notified of ida's first purchase before her app submits it"
  ) { stage in
    let phone = try stage.phone("ida")
    try phone.buy("monthly")
    try await stage.notify()
    let month = try phone.latest("monthly").transactionID
    try await stage.expect("the month", month, isOwnedBy: nil, .unclaimed)
    try await phone.submit()
    try await stage.expect("the month", month, isOwnedBy: "ida", .submitter)
    try await stage.expect("ida", mayUse: ["pro"])
  }

  static let refundOfAnOldMonth = DemoScenario(
    "chloe's month of three months ago is refunded while the current month runs"
  ) { stage in
    let phone = try stage.phone("chloe")
    try await phone.subscribe("monthly")
    try await stage.notify()
    let first = try phone.latest("monthly")
    stage.wait(.days(95))
    try await stage.notify()
    try phone.refund(first)
    try await stage.notify()
    try await stage.expect(
      "the old month", first.transactionID, isOwnedBy: "chloe", .submitter)
    let revokedAt = try await stage.tenure.transaction(first.transactionID).revokedAt
    stage.expect(revokedAt != nil, "It is revoked: \(revokedAt ?? "no").")
    try await stage.expect("chloe", mayUse: ["pro"])
  }

  static let lateOff = DemoScenario(
    "An auto-renew “off” arrives two days after the “on” of the next day"
  ) { stage in
    let phone = try stage.phone("dora")
    try await phone.subscribe("monthly")
    try await stage.notify()
    let end = try phone.end(of: "monthly")
    stage.wait(.days(3))
    stage.letNextNotification(.late(.days(3)))
    try phone.switchAutoRenew(false)
    stage.wait(.days(1))
    try phone.switchAutoRenew(true)
    try await stage.notify()
    stage.wait(.days(2))
    try await stage.notify()
    let line = try await stage.tenure.line(phone.latest("monthly").originalTransactionID)
    stage.expect(line.isAutoRenewing, "Auto-renew is on, by date instead of by arrival.")
    stage.wait(until: end + .hours(2))
    try await phone.submit()
    try await stage.expect(
      "the renewal", phone.latest("monthly").transactionID, isOwnedBy: "dora",
      .activelyAutoRenewing)
  }

  static let correction = DemoScenario(
    "leo's claim is decided; a late notification shows that Apple had renewed for klara",
    moral: """
      Apple's notifications can arrive after the decision. The rule is replayed over all evidence, \
      so the owner is the same as if everything had arrived in order, and both accounts get events.
      """
  ) { stage in
    let phone = try stage.phone("klara")
    try await phone.subscribe("monthly")
    try await stage.notify()
    stage.wait(.days(10))
    try phone.failCard()
    stage.wait(until: try phone.end(of: "monthly") + .days(20))
    stage.loseNotifications()
    stage.letNextNotification(.late(.days(3)))
    try phone.repairCard()
    let month = try phone.latest("monthly").transactionID
    try phone.logIn("leo")
    try await stage.notify()
    try await phone.submit()
    try await stage.expect("the recovered month", month, isOwnedBy: "leo", .submitter)
    stage.wait(.days(3))
    try await stage.notify()
    try await stage.expect(
      "the recovered month", month, isOwnedBy: "klara", .activelyAutoRenewing)
    let correctedAt = try await stage.tenure.transaction(month).decision.correctedAt
    stage.expect(
      correctedAt != nil, "The ledger shows the correction: \(correctedAt ?? "no").")
    try await stage.expect("klara", mayUse: ["pro"])
    try await stage.expect("leo", mayUse: [])
  }

  static let oldSubmission = DemoScenario(
    "mia's receipt is pending for 19 days; a purchase on day 15 is not hers"
  ) { stage in
    let phone = try stage.phone("mia")
    try phone.buy("monthly")
    let first = try phone.latest("monthly").transactionID
    try phone.switchAutoRenew(false)
    try await stage.notify()
    stage.wait(.days(18))
    let receipt = try phone.receipt()
    stage.network.cut(receipt.receiptData)
    let waiting = try await phone.submit(receipt)
    let begin = stage.now
    stage.wait(until: begin + .days(15))
    try phone.buyInSettings("monthly")
    try await stage.notify()
    stage.wait(until: begin + .days(19))
    stage.network.repair(receipt.receiptData)
    let answer = try await stage.waitForWorker(waiting)
    stage.narrate("The worker reaches Apple.")
    stage.narrateAnswer(answer, to: "mia")
    try await stage.expect("the month before", first, isOwnedBy: "mia", .submitter)
    try await stage.expect(
      "the month of day 15", phone.latest("monthly").transactionID, isOwnedBy: nil, .unclaimed)
  }
}
