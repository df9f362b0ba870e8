import AppStoreSimulator
import Subscriptions

/// Apple's words arrive before, long after, or in another order than what they are about.
extension DemoScenario {
  static let newsBeforeSubmission = DemoScenario(
    "4", "Tenure hears of ida's first purchase before her app submits it"
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
    "13", "chloe's month of three months ago is refunded while the current one runs"
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
    "14", "“Off” of one day arrives two days after “on” of the next"
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
    stage.expect(line.isAutoRenewing, "By date, not by arrival, auto-renew is on.")
    stage.wait(until: end + .hours(2))
    try await phone.submit()
    try await stage.expect(
      "the renewal", phone.latest("monthly").transactionID, isOwnedBy: "dora",
      .activelyAutoRenewing)
  }

  static let correction = DemoScenario(
    "18", "leo's claim is decided; a notification comes late: Apple had renewed for klara"
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
      correctedAt != nil, "The ledger says that it was corrected: \(correctedAt ?? "no").")
    try await stage.expect("klara", mayUse: ["pro"])
    try await stage.expect("leo", mayUse: [])
  }

  static let oldSubmission = DemoScenario(
    "19", "mia's receipt waits 19 days; what is bought on day 15 is not hers"
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
    stage.network.mend(receipt.receiptData)
    let answer = try await stage.waitForWorker(waiting)
    stage.tell("The worker gets through to Apple.")
    stage.tellAnswer(answer, to: "mia")
    try await stage.expect("the month before", first, isOwnedBy: "mia", .submitter)
    try await stage.expect(
      "the month of day 15", phone.latest("monthly").transactionID, isOwnedBy: nil, .unclaimed)
  }
}
