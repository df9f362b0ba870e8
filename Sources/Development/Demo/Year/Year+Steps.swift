import AppStoreSimulator
import struct Foundation.UUID
import Subscriptions

/// The customers' actions.
///
/// The owner of each charge is unambiguous: accounts log in and submit only while nothing of the
/// household is in flight, and buy only where no other account's subscription still renews.
extension Year {
  private enum Step {
    case openApp, subscribe, buyCoins, buyForEver, switchAccount, toggleRenewal, toggleCard, refund,
      reverseRefund, restore, subscribeInSettings, nothing
  }

  /// Weights in percent.
  private static let steps: [(step: Step, weight: Int)] = [
    (.openApp, 20), (.subscribe, 26), (.buyCoins, 8), (.buyForEver, 4), (.switchAccount, 14),
    (.toggleRenewal, 9), (.toggleCard, 7), (.refund, 4), (.reverseRefund, 1), (.restore, 3),
    (.subscribeInSettings, 2), (.nothing, 2),
  ]

  /// Weights in percent.
  private static let plans: [(product: ProductID, weight: Int)] = [
    ("monthly", 34), ("monthly.student", 12), ("premium", 16), ("quarterly", 20), ("yearly", 14),
    ("news.weekly", 4),
  ]

  private static let hoursWithoutNetwork = 6...48
  /// Keeps Apple's dates apart from each other.
  private static let margin: Duration = .hours(2)
  /// Apple charges up to a day before a period ends; nothing is changed in this time.
  private static let chargingTime: Duration = .hours(26)
  private static let refundTime: Duration = .days(60)

  /// Runs all visits due before a moment, in order of time.
  func visit(until moment: Timestamp) async throws {
    while let number = households.indices.min(by: {
      (households[$0].nextVisit, $0) < (households[$1].nextVisit, $1)
    }), households[number].nextVisit < moment {
      try move(to: households[number].nextVisit)
      oracle.receive()
      try await visit(number)
    }
  }

  private func visit(_ number: Int) async throws {
    guard households[number].outbox.isEmpty, try await isSettled(number) else {
      households[number].nextVisit = now + plan.step
      return
    }
    if !households[number].unsent.isEmpty {
      households[number].outbox += households[number].unsent
      households[number].unsent = []
    } else if now < plan.rest {
      do {
        try await act(number)
      } catch is SimulationError {
        // Impossible actions are skipped.
      }
    }
    let hours =
      households[number].unsent.isEmpty ? plan.hoursBetweenVisits : Self.hoursWithoutNetwork
    households[number].nextVisit =
      now + .seconds(households[number].random.number(in: hours) * 3_600)
      + .seconds(households[number].random.number(in: 0...3_599))
  }

  /// Whether nothing of a household is in flight.
  ///
  /// A submission made during an outage must be decided some hours after it, any other by the next
  /// step.
  private func isSettled(_ number: Int) async throws -> Bool {
    guard let first = households[number].undecided.map(\.sentAt).min() else { return true }
    let outage = plan.outages.first { $0.contains(first) || $0.upperBound == first }
    let promise = (outage?.upperBound ?? first) + YearPlan.outageAftermath
    guard now >= promise else { return false }
    guard try await !isDecided(number) else { return true }
    find("a submission of \(households[number].appleID) is undecided since \(first)")
    return false
  }

  private func act(_ number: Int) async throws {
    let step = households[number].random.weightedChoice(of: Self.steps) ?? .nothing
    let devices = households[number].devices
    guard let device = households[number].random.choice(of: devices) else { return }
    switch step {
    case .nothing: break
    case .openApp: try submit(from: device, of: number)
    case .subscribe: try await subscribe(on: device, of: number)
    case .buyCoins: try await buyCoins(on: device, of: number)
    case .buyForEver: try await buyForEver(on: device, of: number)
    case .switchAccount: try switchAccount(on: device, of: number)
    case .toggleRenewal: try toggleRenewal(on: device, of: number)
    case .toggleCard: try toggleCard(of: number)
    case .refund: try refund(of: number)
    case .reverseRefund: try reverseRefund(of: number)
    case .restore:
      try simulation.restore(on: device)
      try submit(from: device, of: number, restores: true)
    case .subscribeInSettings: try subscribeInSettings(device, of: number)
    }
  }

  // MARK: Purchases

  /// The status of a subscription group for an Apple ID.
  private enum Access {
    /// Never bought, or expired.
    case free
    /// Active, with its owner.
    case held(by: String?)
    /// Apple may be about to charge.
    case unclear
  }

  private func charge(of group: String?, for number: Int) -> Access {
    let charges = oracle.charges(of: households[number].appleID).filter { $0.charge.group == group }
    guard let last = charges.last(where: { $0.charge.upgradedAt == nil }),
      let end = last.charge.expiresDate
    else { return .free }
    guard !oracle.isTroubled(last.charge.originalTransactionID) else { return .unclear }
    let isNearEnd = (end - now).isWithin(Self.chargingTime)
    if isNearEnd, now < end + Self.margin { return .unclear }
    guard now < end else { return .free }
    return .held(by: last.owner)
  }

  private func subscribe(on device: DeviceID, of number: Int) async throws {
    guard let account = households[number].loggedIn[device],
      let product = households[number].random.weightedChoice(of: Self.plans)
    else { return }
    let group = DemoCatalogue.app.products.first { $0.id == product }?.group
    switch charge(of: group, for: number) {
    case .unclear: return
    case .held(let holder):
      guard holder == account else { return }
      try await buy(product, on: device, of: number)
    case .free:
      try await buy(product, on: device, of: number, opensOrder: true)
    }
  }

  private func buyCoins(on device: DeviceID, of number: Int) async throws {
    // Earlier purchases have mostly been acknowledged by the app.
    for owned in oracle.charges(of: households[number].appleID)
    where owned.charge.productType == .consumable && households[number].random.chance(0.8) {
      try simulation.finish(owned.charge.transactionID)
    }
    try await buy("coins.100", on: device, of: number, opensOrder: true)
  }

  private func buyForEver(on device: DeviceID, of number: Int) async throws {
    let product: ProductID =
      households[number].random.chance(0.5) ? "lifetime" : "season.pass"
    let isOwned = oracle.charges(of: households[number].appleID).contains {
      $0.charge.productID == product && $0.charge.revokedAt == nil
    }
    try await buy(product, on: device, of: number, opensOrder: !isOwned)
  }

  private func buy(
    _ product: ProductID, on device: DeviceID, of number: Int, opensOrder: Bool = false
  ) async throws {
    guard let account = households[number].loggedIn[device], households[number].cardWorks else {
      return
    }
    var order: TenureClient.Order?
    if opensOrder, plan.opensOrders, households[number].opensOrders {
      let opened = try await tenure.openOrder(of: account, for: product)
      oracle.note(openedOrder: opened.id)
      order = opened
    }
    let token =
      households[number].attachesTokens
      ? try await tenure.account(account).appAccountToken : nil
    let event = try simulation.buy(product, on: device, appAccountToken: token)
    switch event.kind {
    case .subscribed, .resubscribed, .upgraded, .boughtOnce:
      oracle.note(account, bought: event.transactionID, for: order?.id)
      try submit(
        from: device, of: number, naming: event.transactionID, order: order?.id)
    default:
      try submit(from: device, of: number)
    }
  }

  /// Buys outside the app and then opens it, in households where the account is unambiguous.
  private func subscribeInSettings(_ device: DeviceID, of number: Int) throws {
    let accounts = Set(households[number].loggedIn.values)
    guard households[number].accounts.count == 1, let account = accounts.first,
      households[number].cardWorks,
      let product = households[number].random.weightedChoice(of: Self.plans)
    else { return }
    let group = DemoCatalogue.app.products.first { $0.id == product }?.group
    guard case .free = charge(of: group, for: number) else { return }
    let event = try simulation.buyInSettings(product, appleID: households[number].appleID)
    oracle.note(account, bought: event.transactionID, for: nil)
    try submit(from: device, of: number)
  }

  // MARK: Other actions

  private func switchAccount(on device: DeviceID, of number: Int) throws {
    let accounts = households[number].accounts
    guard let account = households[number].random.choice(of: accounts) else { return }
    households[number].loggedIn[device] = account
    try simulation.logIn(AppAccountID(account), on: device)
    try submit(from: device, of: number)
  }

  /// Turns auto-renew off, or on again if the owner is logged in.
  private func toggleRenewal(on device: DeviceID, of number: Int) throws {
    let running = oracle.charges(of: households[number].appleID).filter {
      $0.charge.productType == .autoRenewable && $0.charge.upgradedAt == nil
        && $0.charge.revokedAt == nil && ($0.charge.expiresDate ?? now) > now + Self.chargingTime
    }
    guard let owned = households[number].random.choice(of: running) else { return }
    let line = owned.charge.originalTransactionID
    if (try? simulation.setAutoRenew(false, line)) != nil { return }
    guard owned.owner == households[number].loggedIn[device] else { return }
    try simulation.setAutoRenew(true, line, on: device)
  }

  private func toggleCard(of number: Int) throws {
    households[number].cardWorks.toggle()
    if households[number].cardWorks {
      try simulation.repairCard(of: households[number].appleID)
    } else {
      try simulation.failCard(of: households[number].appleID)
    }
  }

  private func refund(of number: Int) throws {
    let charges = oracle.charges(of: households[number].appleID).map(\.charge)
    let candidates = charges.filter { charge in
      // If the next renewal is already paid, its owner would be ambiguous.
      charge.revokedAt == nil && charge.upgradedAt == nil
        && charge.purchaseDate <= now - Self.margin
        && charge.madeAt > now - Self.refundTime
        && !charges.contains {
          $0.originalTransactionID == charge.originalTransactionID && $0.purchaseDate > now
        }
    }
    guard let charge = households[number].random.choice(of: candidates) else { return }
    try simulation.refund(charge.transactionID)
  }

  private func reverseRefund(of number: Int) throws {
    let charges = oracle.charges(of: households[number].appleID).map(\.charge)
    let latest = Dictionary(
      charges.map { ($0.originalTransactionID, $0) }, uniquingKeysWith: { $1 })
    let candidates = charges.filter {
      $0.revokedAt != nil && latest[$0.originalTransactionID]?.transactionID == $0.transactionID
    }
    guard let charge = households[number].random.choice(of: candidates) else { return }
    try simulation.reverseRefund(charge.transactionID)
  }

  // MARK: Submissions

  private func submit(
    from device: DeviceID, of number: Int, naming transaction: TransactionID? = nil,
    order: String? = nil, restores: Bool = false
  ) throws {
    guard let account = households[number].loggedIn[device],
      let content = try content(
        from: device, of: number, for: account, naming: transaction, order: order,
        restores: restores)
    else { return }
    let letter = YearHousehold.Letter(
      content: content, isSentTwice: households[number].random.chance(0.05))
    if households[number].random.chance(0.1) {
      households[number].unsent.append(letter)
    } else {
      households[number].outbox.append(letter)
    }
  }

  private func content(
    from device: DeviceID, of number: Int, for account: String, naming transaction: TransactionID?,
    order: String?, restores: Bool
  ) throws -> YearHousehold.Letter.Content? {
    switch households[number].form {
    case .receipts:
      return .receipt(
        TenureClient.ReceiptSubmission(
          accountID: account, receiptData: try simulation.receipt(on: device),
          transactionID: transaction?.rawValue, orderID: order, restore: restores))
    case .signedData:
      let signed =
        if let transaction {
          [try simulation.signedTransaction(of: transaction)]
        } else if restores {
          try simulation.signedTransactions(on: device)
        } else {
          try simulation.currentEntitlements(on: device)
        }
      guard !signed.isEmpty else { return nil }
      return .signedData(
        TenureClient.SignedSubmission(
          accountID: account, signedTransactions: signed, orderID: order, restore: restores))
    }
  }
}

extension SplitMix64 {
  /// A random choice by weight.
  mutating func weightedChoice<Choice>(of choices: [(Choice, Int)]) -> Choice? {
    var rest = number(in: 1...max(1, choices.reduce(0) { $0 + $1.1 }))
    for (choice, weight) in choices {
      rest -= weight
      if rest <= 0 { return choice }
    }
    return nil
  }
}

/// People who share an Apple ID, with its devices and the accounts logged in there.
struct YearHousehold {
  /// The form of the app's submissions.
  enum Form {
    /// Receipts of the original StoreKit.
    case receipts
    /// Signed data of StoreKit 2.
    case signedData
  }

  struct Letter: Sendable {
    enum Content: Sendable {
      case receipt(TenureClient.ReceiptSubmission)
      case signedData(TenureClient.SignedSubmission)
    }

    var content: Content
    /// Whether the app repeats it, as after a lost response.
    var isSentTwice = false
  }

  let appleID: AppleID
  let devices: [DeviceID]
  let accounts: [String]
  let form: Form
  /// Whether purchases carry the account's token.
  let attachesTokens: Bool
  /// Whether the app opens an order before a purchase.
  let opensOrders: Bool
  var loggedIn: [DeviceID: String] = [:]
  var cardWorks = true
  var nextVisit: Timestamp
  /// Submissions that failed to be sent; sent at the next visit.
  var unsent: [Letter] = []
  /// Submissions to send in this step.
  var outbox: [Letter] = []
  /// Pending submissions, with the time at which they were sent.
  var undecided: [(id: String, sentAt: Timestamp)] = []
  var random: SplitMix64

  init(_ number: Int, in plan: YearPlan, seed: UInt64) {
    var random = SplitMix64(seed: seed)
    appleID = AppleID("customer-\(number)")
    let letters = ["a", "b", "c"].prefix(random.number(in: 1...3))
    var accounts = letters.map { "customer-\(number)\($0)" }
    // Some customers use the app with two Apple IDs: their own, and a neighbour's.
    if number > 0, random.chance(0.1) { accounts.append("customer-\(number - 1)a") }
    self.accounts = accounts
    devices = (1...random.number(in: 1...2)).map { DeviceID("customer-\(number)-\($0)") }
    form = random.chance(0.5) ? .receipts : .signedData
    attachesTokens = random.chance(0.5)
    opensOrders = random.chance(0.5)
    for device in devices { loggedIn[device] = random.choice(of: accounts) }
    nextVisit = plan.start + .minutes(random.number(in: 60...Int(plan.firstVisits / .minutes(1))))
    self.random = random
  }
}
