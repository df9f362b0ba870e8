import AppStoreSimulator
import Bootstrap
import Subscriptions

/// Renewals, whose owner does not depend on who is logged in.
extension DemoScenario {
  static let renewalUnderAnotherLogin = DemoScenario(
    "Apple renews anna's month; ben's session submits it",
    moral: """
      One phone often has several logins, and Apple's receipt names none of them. The renewal \
      belongs to the account that was still auto-renewing, even if another one submits it first.
      """
  ) { stage in
    let phone = try stage.phone("anna")
    try await phone.subscribe("monthly")
    let end = try phone.end(of: "monthly")
    stage.wait(until: end - .hours(12))
    try phone.logIn("ben")
    stage.wait(until: end + .hours(2))
    try await phone.submit()
    try await stage.expect(
      "the renewal", phone.latest("monthly").transactionID, isOwnedBy: "anna",
      .activelyAutoRenewing)
    try await stage.expect("anna", mayUse: ["pro"])
    try await stage.expect("ben", mayUse: [])
  }

  static let renewalWithoutSubmission = DemoScenario(
    "uma's month renews; the renewal is never submitted"
  ) { stage in
    let phone = try stage.phone("uma")
    try await phone.subscribe("monthly")
    try await stage.notify()
    stage.wait(until: try phone.end(of: "monthly") + .hours(2))
    try await stage.notify()
    try await stage.expect(
      "the renewal", phone.latest("monthly").transactionID, isOwnedBy: "uma",
      .activelyAutoRenewing)
    try await stage.expect("uma", mayUse: ["pro"])
  }

  static let earlyRenewal = DemoScenario(
    "fritz's session reports elsa's renewal 20 hours early"
  ) { stage in
    let phone = try stage.phone("elsa")
    try await phone.subscribe("monthly")
    stage.wait(until: try phone.end(of: "monthly") - .hours(20))
    try phone.logIn("fritz")
    try await phone.submit()
    let renewal = try phone.latest("monthly")
    try await stage.expect(
      "the renewal", renewal.transactionID, isOwnedBy: "elsa", .activelyAutoRenewing)
    let shown = try await stage.tenure.entitlements(of: "elsa").first?.expiresAt
    stage.expect(
      shown == renewal.expiresDate?.description,
      "elsa's entitlement has the later end: \(shown ?? "none").")
    try await stage.expect("fritz", mayUse: [])
  }

  static let offAfterEarlyCharge = DemoScenario(
    "irma turns auto-renew off after Apple has charged 22 hours early"
  ) { stage in
    let phone = try stage.phone("irma")
    try await phone.subscribe("monthly")
    let end = try phone.end(of: "monthly")
    stage.wait(until: end - .hours(20))
    try phone.switchAutoRenew(false)
    try phone.logIn("juri")
    try await phone.submit()
    stage.wait(until: end + .hours(2))
    try await phone.submit()
    try await stage.expect(
      "the renewal", phone.latest("monthly").transactionID, isOwnedBy: "irma",
      .activelyAutoRenewing)
    try await stage.expect("juri", mayUse: [])
  }
}

/// Lapsed subscriptions and recovered charges.
extension DemoScenario {
  static let recoveryAfterRetry = DemoScenario(
    "karin's card fails; Apple reports a billing retry, which succeeds on day 20"
  ) { stage in
    let phone = try stage.phone("karin")
    try await phone.subscribe("monthly")
    try await stage.notify()
    stage.wait(.days(10))
    try phone.failCard()
    let end = try phone.end(of: "monthly")
    stage.wait(until: end + .days(1))
    try await stage.notify()
    try await stage.expect("karin", mayUse: ["pro"])
    stage.wait(until: end + .days(17))
    try await stage.notify()
    try await stage.expect("karin", mayUse: [])
    stage.wait(until: end + .days(20))
    try phone.repairCard()
    try phone.logIn("lars")
    try await phone.submit()
    try await stage.expect(
      "the recovered month", phone.latest("monthly").transactionID, isOwnedBy: "karin",
      .activelyAutoRenewing)
    try await stage.expect("karin", mayUse: ["pro"])
    try await stage.expect("lars", mayUse: [])
  }

  static let unknownRecovery = DemoScenario(
    "The same with mona's card, but Tenure never learns of the billing retry"
  ) { stage in
    let phone = try stage.phone("mona")
    try await phone.subscribe("monthly")
    stage.wait(.days(10))
    try phone.failCard()
    stage.wait(until: try phone.end(of: "monthly") + .days(20))
    try phone.repairCard()
    stage.loseNotifications()
    try phone.logIn("nils")
    try await phone.submit()
    try await stage.expect(
      "the recovered month", phone.latest("monthly").transactionID, isOwnedBy: "nils", .submitter)
    try await stage.expect("mona", mayUse: [])
  }

  static let purchaseAfterMonths = DemoScenario(
    "olga lapsed four months ago; paul subscribes on that Apple ID"
  ) { stage in
    let phone = try stage.phone("olga")
    try await phone.subscribe("monthly")
    try phone.switchAutoRenew(false)
    stage.wait(until: try phone.end(of: "monthly") + .days(122))
    try phone.logIn("paul")
    try await phone.subscribe("monthly")
    try await stage.expect(
      "the new month", phone.latest("monthly").transactionID, isOwnedBy: "paul", .submitter)
    try await stage.expect("olga", mayUse: [])
  }

  static let purchaseAfterRefund = DemoScenario(
    "queenie's month is refunded; ravi buys on that Apple ID"
  ) { stage in
    let phone = try stage.phone("queenie")
    try await phone.subscribe("monthly")
    stage.wait(.days(5))
    try phone.refund(phone.latest("monthly"))
    stage.wait(.days(2))
    try phone.logIn("ravi")
    try await phone.subscribe("monthly")
    try await stage.expect(
      "the new month", phone.latest("monthly").transactionID, isOwnedBy: "ravi", .submitter)
    try await stage.expect("queenie", mayUse: [])
    try await stage.expect("ravi", mayUse: ["pro"])
  }

  static let resubscriptionWithoutSubmission = DemoScenario(
    "wanda lapsed; Apple reports a purchase in Settings before it is submitted"
  ) { stage in
    let phone = try stage.phone("wanda")
    try await phone.subscribe("monthly")
    try phone.switchAutoRenew(false)
    try await stage.notify()
    stage.wait(until: try phone.end(of: "monthly") + .days(30))
    try phone.buyInSettings("monthly")
    try await stage.notify()
    let month = try phone.latest("monthly").transactionID
    try await stage.expect("the new month", month, isOwnedBy: nil, .unclaimed)
    let iPad = try stage.device("wanda's iPad", appleID: phone.appleID, account: "xaver")
    try await iPad.submit()
    try await stage.expect("the new month", month, isOwnedBy: "xaver", .submitter)
  }

  static let renewalOfAnUnclaimedPurchase = DemoScenario(
    "gita lapsed; a purchase in Settings stays unclaimed; hans submits its renewal"
  ) { stage in
    let phone = try stage.phone("gita")
    try await phone.subscribe("monthly")
    try phone.switchAutoRenew(false)
    try await stage.notify()
    stage.wait(until: try phone.end(of: "monthly") + .days(10))
    try phone.buyInSettings("monthly")
    try await stage.notify()
    try await stage.expect(
      "the purchase", phone.latest("monthly").transactionID, isOwnedBy: nil, .unclaimed)
    stage.wait(until: try phone.end(of: "monthly") + .hours(2))
    try await stage.notify()
    let iPad = try stage.device("gita's iPad", appleID: phone.appleID, account: "hans")
    try await iPad.submit()
    try await stage.expect(
      "the renewal", phone.latest("monthly").transactionID, isOwnedBy: "hans", .submitter)
    try await stage.expect("gita", mayUse: [])
  }
}
