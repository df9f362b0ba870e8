import AppStoreSimulator
import Subscriptions

/// Submissions that are interrupted, repeated, or wait for Apple.
extension DemoScenario {
  static let lostOrder = DemoScenario(
    "olaf's app crashes between payment and submission; the order is fulfilled later"
  ) { stage in
    let phone = try stage.phone("olaf")
    let order = try await stage.tenure.openOrder(of: "olaf", for: "lifetime")
    stage.narrate("olaf's app opens an order for lifetime.")
    try phone.buy("lifetime")
    stage.narrate("The app crashes. Nothing is submitted.")
    stage.wait(.days(3))
    stage.narrate("olaf opens the app again. It lost the order but has the receipt.")
    try await phone.submit()
    try await stage.expect(
      "the purchase", phone.latest("lifetime").transactionID, isOwnedBy: "olaf", .submitter)
    let found = try await stage.tenure.order(order.id)
    stage.expect(
      found.status == .fulfilled,
      "The order is \(found.status.rawValue) by \(found.transactionID?.rawValue ?? "nothing").")
  }

  static let refund = DemoScenario(
    "rita's current month is refunded",
    moral: """
      A refund arrives outside of any session. It revokes exactly the refunded charge, and access \
      ends at once.
      """
  ) { stage in
    let phone = try stage.phone("rita")
    try await phone.subscribe("monthly")
    try await stage.notify()
    try await stage.expect("rita", mayUse: ["pro"])
    stage.wait(.days(4))
    let month = try phone.latest("monthly")
    try phone.refund(month)
    try await stage.notify()
    try await stage.expect("the month", month.transactionID, isOwnedBy: "rita", .submitter)
    try await stage.expect("rita", mayUse: [])
  }

  static let appleIsDown = DemoScenario(
    "Apple is down when petra's receipt arrives; the worker decides it",
    moral: """
      A customer who has paid must not lose the purchase because Apple does not answer. The receipt \
      is stored before Apple is asked, and a worker decides it later.
      """
  ) { stage in
    let phone = try stage.phone("petra")
    try phone.buy("monthly")
    let receipt = try phone.receipt()
    stage.beginOutage()
    let waiting = try await phone.submit(receipt)
    stage.expect(waiting.isPending, "The submission is \(waiting.status).")
    let answer = try await stage.waitForWorker(waiting)
    stage.narrate("Apple is available again, and the worker has verified the receipt.")
    stage.narrateAnswer(answer, to: "petra")
    try await stage.expect(
      "the month", phone.latest("monthly").transactionID, isOwnedBy: "petra", .submitter)
    try await stage.expect("petra", mayUse: ["pro"])
  }

  static let sentTwice = DemoScenario("quinn's receipt is submitted twice") { stage in
    let phone = try stage.phone("quinn")
    try phone.buy("coins.100")
    let coins = try phone.latest("coins.100").transactionID
    let receipt = try phone.receipt()
    let first = try await phone.submit(receipt)
    let second = try await phone.submit(receipt)
    stage.expect(
      first.newlyOwned.count == 1 && second.newlyOwned.isEmpty,
      "The coins are newly quinn's in the first response only: deliver once.")
    var deliveries: [Bool] = []
    for _ in 1...2 {
      deliveries.append(try await stage.tenure.acknowledgeDelivery(of: coins, to: "quinn"))
    }
    stage.expect(
      deliveries == [true, false], "Of two delivery acknowledgements, only the first counts.")
    try await stage.expect("the coins", coins, isOwnedBy: "quinn", .submitter)
  }

  static let fiftyAtOnce = DemoScenario(
    "sam and tina submit the same receipt, 25 times each, all at once"
  ) { stage in
    let phone = try stage.phone("sam")
    try phone.buy("coins.100")
    let coins = try phone.latest("coins.100").transactionID
    var receipt = try phone.receipt()
    var submissions = Array(repeating: receipt, count: 25)
    receipt.accountID = "tina"
    submissions += Array(repeating: receipt, count: 25)
    let tenure = stage.tenure
    let answers = try await withThrowingTaskGroup { group in
      for submission in submissions.shuffled() {
        group.addTask { try await tenure.submit(submission) }
      }
      return try await group.reduce(into: []) { $0.append($1) }
    }
    stage.narrate("\(answers.count) responses arrived.")
    let owners = Set(answers.flatMap { $0.transactions ?? [] }.map { $0.owner ?? "no account" })
    stage.expect(
      owners == ["sam"] || owners == ["tina"],
      "All name the same owner: \(owners.sorted().joined(separator: ", ")).")
    let deliveries = answers.flatMap(\.newlyOwned).count
    stage.expect(deliveries == 1, "\(deliveries) of them says to deliver the coins.")
    try await stage.expect("the coins", coins, isOwnedBy: owners.first, .submitter)
  }
}

/// Signed data, which carries more than a receipt and is verified without calling Apple.
extension DemoScenario {
  static let signedWhileAppleIsDown = DemoScenario(
    "Apple is down again, but ulla's app has a signed StoreKit 2 transaction"
  ) { stage in
    let phone = try stage.phone("ulla")
    try phone.buy("monthly")
    stage.beginOutage()
    let month = try phone.latest("monthly")
    let answer = try await phone.submitSigned(month)
    stage.expect(!answer.isPending, "The submission is \(answer.status) immediately.")
    try await stage.expect("the month", month.transactionID, isOwnedBy: "ulla", .submitter)
    try await stage.expect("ulla", mayUse: ["pro"])
    stage.endOutage()
  }

  static let revokedShare = DemoScenario(
    "zoe shares a purchase with yusuf, who leaves the family"
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
    "amir pays and his app never returns; the token in Apple's notification finds the order"
  ) { stage in
    let phone = try stage.phone("amir")
    let token = try await stage.tenure.account("amir").appAccountToken
    let order = try await stage.tenure.openOrder(of: "amir", for: "lifetime")
    stage.narrate("amir's app opens an order for lifetime and buys with his account's token.")
    try phone.buy("lifetime", token: token)
    stage.narrate("The app crashes. Nothing is ever submitted.")
    try await stage.notify()
    try await stage.expect(
      "the purchase", phone.latest("lifetime").transactionID, isOwnedBy: "amir", .appAccountToken)
    let found = try await stage.tenure.order(order.id)
    stage.expect(
      found.status == .fulfilled,
      "The order is \(found.status.rawValue) by \(found.transactionID?.rawValue ?? "nothing").")
    try await stage.expect("amir", mayUse: ["lifetime"])
  }

  static let movedSubscription = DemoScenario(
    "Apple moves bella's subscription to a new original transaction ID"
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
      "The new original transaction ID is bound to \(line.account ?? "no account").")

    try phone.logIn("cyrus")
    try phone.buy("premium")
    try await stage.notify()
    try await stage.expect(
      "the upgrade", phone.latest("premium").transactionID, isOwnedBy: "bella",
      .activelyAutoRenewing)
    try await stage.expect("bella", mayUse: ["premium", "pro"])
  }
}
