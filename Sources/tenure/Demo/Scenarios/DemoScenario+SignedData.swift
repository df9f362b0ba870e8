import AppStoreSimulator
import Subscriptions

/// What Apple signs tells more than a receipt does, and needs no answer of Apple's.
extension DemoScenario {
  static let signedWhileAppleIsDown = DemoScenario(
    "F", "Apple is down again, but ulla's app has a signed transaction of StoreKit 2"
  ) { stage in
    let phone = try stage.phone("ulla")
    try phone.buy("monthly")
    stage.beginOutage()
    let month = try phone.latest("monthly")
    let answer = try await phone.submitSigned(month)
    stage.expect(!answer.isPending, "The submission is \(answer.status) at once.")
    try await stage.expect("the month", month.transactionID, isOwnedBy: "ulla", .submitter)
    try await stage.expect("ulla", mayUse: ["pro"])
    stage.endOutage()
  }

  static let revokedShare = DemoScenario(
    "J", "zoe shares a purchase with yusuf, who leaves the family"
  ) { stage in
    let phone = try stage.phone("zoe")
    let member = try stage.phone("yusuf")
    try phone.buy("lifetime")
    try await phone.submitSigned(phone.latest("lifetime"))
    try phone.share(with: member)
    let share = try member.latest("lifetime")
    try await member.submitSigned(share)
    try await stage.notify()
    try await stage.expect(
      "the purchase", phone.latest("lifetime").transactionID, isOwnedBy: "zoe", .submitter)
    try await stage.expect("the share", share.transactionID, isOwnedBy: "yusuf", .submitter)
    try await stage.expect("yusuf", mayUse: ["lifetime"])
    try member.leaveFamily()
    try await stage.notify()
    try await stage.expect("yusuf", mayUse: [])
    try await stage.expect("zoe", mayUse: ["lifetime"])
  }

  static let purchaseFoundByToken = DemoScenario(
    "K", "amir pays, and his app dies for good; a token in Apple's notification finds the order"
  ) { stage in
    let phone = try stage.phone("amir")
    let token = try await stage.tenure.account("amir").appAccountToken
    let order = try await stage.tenure.openOrder(of: "amir", for: "lifetime")
    stage.tell("amir's app opens an order for lifetime, and buys with the token of his account.")
    try phone.buy("lifetime", token: token)
    stage.tell("The app dies. Nothing is ever submitted.")
    try await stage.notify()
    try await stage.expect(
      "the purchase", phone.latest("lifetime").transactionID, isOwnedBy: "amir", .appAccountToken)
    let found = try await stage.tenure.order(order.id)
    stage.expect(
      found.status == .fulfilled,
      "The order is \(found.status.rawValue), by \(found.transactionID?.rawValue ?? "nothing").")
    try await stage.expect("amir", mayUse: ["lifetime"])
  }

  static let movedSubscription = DemoScenario(
    "L", "Apple moves bella's subscription to a new original transaction id"
  ) { stage in
    let phone = try stage.phone("bella")
    try await phone.subscribe("monthly")
    try await stage.notify()
    let month = try phone.latest("monthly")
    try phone.migrate(month)
    try await stage.notify()
    try await stage.expect("the month", month.transactionID, isOwnedBy: "bella", .submitter)
    let line = try await stage.tenure.line(phone.latest("monthly").originalTransactionID)
    stage.expect(
      line.account == "bella",
      "The new original transaction id is bound to \(line.account ?? "nobody").")

    try phone.logIn("cyrus")
    try phone.buy("premium")
    try await stage.notify()
    try await stage.expect(
      "the upgrade", phone.latest("premium").transactionID, isOwnedBy: "bella",
      .activelyAutoRenewing)
    try await stage.expect("bella", mayUse: ["premium", "pro"])
  }
}
