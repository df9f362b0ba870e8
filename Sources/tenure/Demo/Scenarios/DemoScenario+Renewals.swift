import AppStoreSimulator
import Subscriptions

/// Apple renews; whose it is does not depend on who is logged in.
extension DemoScenario {
  static let renewalUnderAnotherLogin = DemoScenario(
    "1", "Apple renews anna's month; ben's session submits it"
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

  static let renewalNobodySubmits = DemoScenario(
    "9", "uma's month renews; nobody submits the renewal"
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
    "15", "elsa's renewal is reported 20 hours early, by fritz"
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
      "elsa's entitlement shows the later end: \(shown ?? "none").")
    try await stage.expect("fritz", mayUse: [])
  }

  static let offAfterEarlyCharge = DemoScenario(
    "17", "irma switches off after Apple has charged 22 hours early"
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
