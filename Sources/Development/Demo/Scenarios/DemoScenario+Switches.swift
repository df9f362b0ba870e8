import AppStoreSimulator
import Subscriptions

/// Purchases by another account on the same Apple ID, and so on the same original transaction.
extension DemoScenario {
  static let purchaseAfterLapse = DemoScenario(
    "carla's month ends; dario buys a quarter on the same phone",
    moral: """
      After a lapse no account is renewing, so the purchase belongs to the account that submits it. \
      The earlier owner keeps what it paid for until its end, and gets nothing of the new purchase.
      """
  ) { stage in
    let phone = try stage.phone("carla")
    try await phone.subscribe("monthly", offAfter: .days(10))
    let end = try phone.end(of: "monthly")
    stage.wait(until: end + .days(3))
    try phone.logIn("dario")
    try await phone.subscribe("quarterly")
    let quarter = try phone.latest("quarterly")
    try await stage.expect("the quarter", quarter.transactionID, isOwnedBy: "dario", .submitter)
    let line = try await stage.tenure.line(quarter.originalTransactionID)
    stage.expect(
      line.account == "dario",
      "The original transaction is now bound to \(line.account ?? "no account").")
    try await stage.expect("carla", mayUse: ["pro"], at: end - .days(1))
    try await stage.expect("carla", mayUse: [])
    try await stage.expect("dario", mayUse: ["pro"])
  }

  static let renewalOfThePurchase = DemoScenario(
    "The quarter renews while carla is logged in again"
  ) { stage in
    let phone = try stage.phone("carla")
    try phone.logIn("carla")
    stage.wait(until: try phone.end(of: "quarterly") + .hours(2))
    try await phone.submit()
    try await stage.expect(
      "the renewal", phone.latest("quarterly").transactionID, isOwnedBy: "dario",
      .activelyAutoRenewing)
    try await stage.expect("carla", mayUse: [])
    try await stage.expect("dario", mayUse: ["pro"])
  }

  static let upgradeAfterOff = DemoScenario(
    "edith turned auto-renew off; felix upgrades while her month still runs"
  ) { stage in
    let phone = try stage.phone("edith")
    try await phone.subscribe("monthly", offAfter: .days(10))
    stage.wait(.days(2))
    try phone.logIn("felix")
    try await phone.subscribe("premium")
    try await stage.expect(
      "the upgrade", phone.latest("premium").transactionID, isOwnedBy: "felix", .submitter)
    try await stage.expect("edith", mayUse: [])
    try await stage.expect("felix", mayUse: ["premium", "pro"])
  }

  static let changeAtRenewal = DemoScenario(
    "gina turned auto-renew off; hugo orders a quarter, charged when her month ends"
  ) { stage in
    let phone = try stage.phone("gina")
    try await phone.subscribe("monthly", offAfter: .days(10))
    stage.wait(.days(2))
    try phone.logIn("hugo")
    let order = try await stage.tenure.openOrder(of: "hugo", for: "quarterly")
    stage.narrate("hugo's app opens an order for quarterly.")
    try await phone.subscribe("quarterly")
    stage.wait(until: try phone.end(of: "monthly") + .hours(2))
    try await phone.submit(order: order)
    try await stage.expect(
      "the quarter", phone.latest("quarterly").transactionID, isOwnedBy: "hugo", .submitter)
    let status = try await stage.tenure.order(order.id).status
    stage.expect(status == .fulfilled, "hugo's order is \(status.rawValue).")
    try await stage.expect("gina", mayUse: [])
  }

  static let onAfterThePurchase = DemoScenario(
    "tom buys seconds after sofia's month; the response says “on” because of his purchase"
  ) { stage in
    let phone = try stage.phone("sofia")
    try await phone.subscribe("monthly", offAfter: .days(10))
    stage.wait(until: try phone.end(of: "monthly") + .seconds(10))
    try phone.logIn("tom")
    try await phone.subscribe("monthly")
    try await stage.expect(
      "the second month", phone.latest("monthly").transactionID, isOwnedBy: "tom", .submitter)
    try await stage.expect("sofia", mayUse: [])
  }
}

/// One charge with two transaction IDs.
extension DemoScenario {
  static let restoredLifetime = DemoScenario(
    "zeno restores yara's lifetime purchase"
  ) { stage in
    let phone = try stage.phone("yara")
    try phone.buy("lifetime")
    try await phone.submit()
    stage.wait(.days(3))
    try phone.logIn("zeno")
    try phone.restore()
    let answer = try await phone.submit(restore: true)
    try await expectAlias(
      of: phone, "lifetime", ownedBy: "yara", answeredTo: "zeno", answer, stage)
    try await stage.expect("yara", mayUse: ["lifetime"])
    try await stage.expect("zeno", mayUse: [])
  }

  static let restoredMonth = DemoScenario(
    "alma turned auto-renew off; boris restores on her phone while her month runs"
  ) { stage in
    let phone = try stage.phone("alma")
    try await phone.subscribe("monthly", offAfter: .days(10))
    try phone.logIn("boris")
    try phone.restore()
    let answer = try await phone.submit(restore: true)
    try await expectAlias(
      of: phone, "monthly", ownedBy: "alma", answeredTo: "boris", answer, stage)
    try await stage.expect("alma", mayUse: ["pro"])
    try await stage.expect("boris", mayUse: [])
  }

  /// Checks that a restored charge is found under its new ID and still belongs to its owner, and
  /// that the response to the other account says so.
  private static func expectAlias(
    of phone: DemoPhone, _ product: ProductID, ownedBy owner: String, answeredTo account: String,
    _ answer: TenureClient.Submission, _ stage: DemoEnvironment
  ) async throws {
    let charge = try phone.latest(product)
    let alias = charge.transactionIDs.last ?? charge.transactionID
    try await stage.expect("the restored charge", alias, isOwnedBy: owner, .submitter)
    let found = try await stage.tenure.transaction(alias)
    stage.expect(
      found.id == charge.transactionID && found.aliases == [alias],
      "\(alias) is an alias of \(found.id): one charge.")
    stage.expect(
      answer.warnings == ["owned_by_another_account"],
      "\(account) is warned that another account owns it.")
  }
}
