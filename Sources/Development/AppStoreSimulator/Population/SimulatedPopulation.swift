package import struct Foundation.UUID
import HeapModule
package import Subscriptions

package import struct Foundation.UUID

/// A seeded population of customers who buy, renew, cancel, fail to pay, and switch accounts and
/// devices.
///
/// It iterates over the submissions of their apps. Each call of `next` advances the simulation's
/// clock to the submission's time, so that a verifyReceipt request between two calls gets Apple's
/// response at that time.
package struct SimulatedPopulation: Sequence, IteratorProtocol {
  package struct Configuration: Sendable {
    package var seed: UInt64
    package var customers: Int
    package var months: Int
    package var app: SimulatedApp
    package var start: Timestamp
    /// The share of sandbox testers, from 0 to 1.
    package var sandboxShare: Double
    /// The token that the app attaches to an account's purchases; nil: none.
    package var appAccountToken: (@Sendable (AppAccountID) -> UUID?)?
    /// Nil: a signer with new keys.
    package var signer: SimulatedSigner?

    package init(
      seed: UInt64, customers: Int, months: Int, app: SimulatedApp = .sample,
      start: Timestamp = Timestamp(CalendarDate(year: 2026, month: 1, day: 1)),
      sandboxShare: Double = 0,
      appAccountToken: (@Sendable (AppAccountID) -> UUID?)? = nil,
      signer: SimulatedSigner? = nil
    ) {
      self.seed = seed
      self.customers = customers
      self.months = months
      self.app = app
      self.start = start
      self.sandboxShare = sandboxShare
      self.appAccountToken = appAccountToken
      self.signer = signer
    }
  }

  private struct Household {
    let appleID: AppleID
    let environment: Environment
    let devices: [DeviceID]
    /// The accounts used on these devices: family, friends, second accounts.
    let accounts: [AppAccountID]
    var loggedIn: [DeviceID: AppAccountID]
    /// Receipts that could not be sent when they were created.
    var unsent: [Unsent] = []
    var cardWorks = true
  }

  private struct Unsent {
    let account: AppAccountID
    let device: DeviceID
    let receiptData: String
    let transactionID: TransactionID?
  }

  private struct Visit: Comparable {
    let at: Timestamp
    let household: Int

    static func < (lhs: Visit, rhs: Visit) -> Bool {
      (lhs.at, lhs.household) < (rhs.at, rhs.household)
    }
  }

  /// The simulated App Store; copies of the population share it, so iterate only once.
  package let simulation: AppStoreSimulation
  private let configuration: Configuration
  private let end: Timestamp
  private var random: SplitMix64
  private var households: [Household] = []
  private var visits = Heap<Visit>()
  private var outbox: [SimulatedSubmission] = []

  /// Hours between two actions of a customer.
  private static let visitIntervalHours = 6...480

  package init(configuration: Configuration) throws {
    self.configuration = configuration
    end = CalendarPeriod(months: configuration.months).end(from: configuration.start)
    random = SplitMix64(seed: configuration.seed)
    simulation = try AppStoreSimulation(
      configuration: AppStoreSimulation.Configuration(
        seed: random.next(), start: configuration.start, apps: [configuration.app],
        signer: configuration.signer))
    for number in 0..<configuration.customers { try addHousehold(number) }
  }

  private mutating func addHousehold(_ number: Int) throws {
    let appleID = AppleID("customer-\(number)")
    let isTester = random.chance(configuration.sandboxShare)
    let environment: Environment = isTester ? .sandbox : .production
    try simulation.addAppleID(appleID, environment: environment)

    let letters = ["a", "b", "c"].prefix(random.number(in: 1...3))
    var accounts = letters.map { AppAccountID("account-\(number)\($0)") }
    // Some people use the app with two Apple IDs, their own and a neighbor's.
    if number > 0, random.chance(0.1) { accounts.append(AppAccountID("account-\(number - 1)a")) }
    let devices = (1...random.number(in: 1...2)).map { DeviceID("device-\(number)-\($0)") }
    var household = Household(
      appleID: appleID, environment: environment, devices: devices, accounts: accounts,
      loggedIn: [:])
    for device in devices {
      let account = random.choice(of: accounts)
      household.loggedIn[device] = account
      try simulation.addDevice(device, appleID: appleID, account: account)
    }
    households.append(household)
    visits.insert(Visit(at: configuration.start + interval(), household: number))
  }

  /// The next submission; nil at the end.
  package mutating func next() -> SimulatedSubmission? {
    while outbox.isEmpty {
      guard let visit = visits.popMin(), visit.at < end else { return nil }
      simulation.advance(to: visit.at)
      sendUnsent(of: visit.household)
      // Impossible actions are skipped, such as a declined card or a plan already held.
      try? act(visit.household)
      visits.insert(Visit(at: visit.at + interval(), household: visit.household))
    }
    return outbox.removeFirst()
  }

  private mutating func interval() -> Duration {
    .seconds(
      random.number(in: Self.visitIntervalHours) * 3_600 + random.number(in: 0...3_599))
  }

  // MARK: Customers' actions

  private enum Step {
    case openApp, subscribe, buyCoins, buyForEver, switchAccount, toggleRenewal, toggleCard, refund,
      reverseRefund, restore, subscribeInSettings, changeFamily, nothing
  }

  /// Frequencies, out of a thousand.
  private static let steps: [(step: Step, weight: Int)] = [
    (.openApp, 330), (.subscribe, 200), (.buyCoins, 70), (.buyForEver, 30), (.switchAccount, 110),
    (.toggleRenewal, 80), (.toggleCard, 50), (.refund, 25), (.reverseRefund, 5), (.restore, 40),
    (.subscribeInSettings, 20), (.changeFamily, 10), (.nothing, 30),
  ]

  private mutating func chooseStep() -> Step {
    var rest = random.number(in: 1...Self.steps.reduce(0) { $0 + $1.weight })
    for (step, weight) in Self.steps {
      rest -= weight
      if rest <= 0 { return step }
    }
    return .nothing
  }

  private mutating func act(_ number: Int) throws {
    let step = chooseStep()
    guard let device = random.choice(of: households[number].devices) else { return }
    switch step {
    case .nothing: break
    case .openApp: try submit(from: device, of: number)
    case .subscribe: try subscribe(on: device, of: number)
    case .buyCoins: try buyOnce([.consumable, .nonRenewing], on: device, of: number)
    case .buyForEver: try buyOnce([.nonConsumable], on: device, of: number)
    case .switchAccount: try switchAccount(on: device, of: number)
    case .toggleRenewal: try toggleRenewal(on: device, of: number)
    case .toggleCard: try toggleCard(of: number)
    case .refund, .reverseRefund: try refund(of: number, reversing: step == .reverseRefund)
    case .restore:
      try simulation.restore(on: device)
      try submit(from: device, of: number, restores: true)
    case .subscribeInSettings:
      guard let product = product(of: [.autoRenewable]) else { return }
      try simulation.buyInSettings(product, appleID: households[number].appleID)
    case .changeFamily: try changeFamily(of: number)
    }
  }

  private mutating func product(of types: [ProductType]) -> ProductID? {
    random.choice(of: configuration.app.products.filter { types.contains($0.type) })?.id
  }

  private mutating func subscribe(on device: DeviceID, of number: Int) throws {
    guard let product = product(of: [.autoRenewable]) else { return }
    let event = try simulation.buy(
      product, on: device, appAccountToken: token(on: device, of: number))
    try submit(from: device, of: number, transaction: event.transactionID)
  }

  private mutating func buyOnce(
    _ types: [ProductType], on device: DeviceID, of number: Int
  ) throws {
    guard let product = product(of: types) else { return }
    let event = try simulation.buy(
      product, on: device, appAccountToken: token(on: device, of: number))
    try submit(from: device, of: number, transaction: event.transactionID)
    // Sometimes the app crashes before it finishes the transaction, and receipts keep listing it.
    if random.chance(0.8) { _ = try? simulation.finish(event.transactionID) }
  }

  private func token(on device: DeviceID, of number: Int) -> UUID? {
    households[number].loggedIn[device].flatMap { configuration.appAccountToken?($0) }
  }

  private mutating func switchAccount(on device: DeviceID, of number: Int) throws {
    let account = random.choice(of: households[number].accounts)
    households[number].loggedIn[device] = account
    try simulation.logIn(account, on: device)
    try submit(from: device, of: number)
  }

  private mutating func toggleRenewal(on device: DeviceID, of number: Int) throws {
    guard let line = random.choice(of: subscriptionLines(of: number)) else { return }
    if (try? simulation.setAutoRenew(false, line)) == nil {
      try simulation.setAutoRenew(true, line, on: device)
    }
  }

  private func subscriptionLines(of number: Int) -> [OriginalTransactionID] {
    var seen: Set<OriginalTransactionID> = []
    return simulation.truth(of: households[number].appleID)
      .filter { $0.productType == .autoRenewable && $0.ownership == .purchased }
      .map(\.originalTransactionID).filter { seen.insert($0).inserted }
  }

  private mutating func toggleCard(of number: Int) throws {
    households[number].cardWorks.toggle()
    if households[number].cardWorks {
      try simulation.repairCard(of: households[number].appleID)
    } else {
      try simulation.failCard(of: households[number].appleID)
    }
  }

  private mutating func refund(of number: Int, reversing: Bool) throws {
    let charges = simulation.truth(of: households[number].appleID)
      .filter { ($0.revokedAt != nil) == reversing && $0.ownership == .purchased }
    guard let charge = random.choice(of: charges) else { return }
    if reversing {
      try simulation.reverseRefund(charge.transactionID)
    } else {
      try simulation.refund(charge.transactionID)
    }
  }

  private mutating func changeFamily(of number: Int) throws {
    let member = households[number].appleID
    guard (try? simulation.revokeFamilyAccess(of: member)) == nil else { return }
    guard let organizer = random.choice(of: households)?.appleID else { return }
    try simulation.addFamilyMember(member, of: organizer)
  }

  // MARK: Submissions

  private mutating func submit(
    from device: DeviceID, of number: Int, transaction: TransactionID? = nil,
    restores: Bool = false
  ) throws {
    guard let account = households[number].loggedIn[device] else { return }
    let receipt = try simulation.receipt(on: device, bundleID: configuration.app.bundleID)
    // Without a network, the app sends it when opened next, even if another account is logged in.
    if !restores, random.chance(0.1) {
      households[number].unsent.append(
        Unsent(
          account: account, device: device, receiptData: receipt, transactionID: transaction))
      return
    }
    outbox.append(
      submission(
        of: number,
        Unsent(
          account: account, device: device, receiptData: receipt, transactionID: transaction),
        restores: restores))
  }

  private mutating func sendUnsent(of number: Int) {
    outbox += households[number].unsent.map { submission(of: number, $0, restores: false) }
    households[number].unsent = []
  }

  private func submission(of number: Int, _ content: Unsent, restores: Bool)
    -> SimulatedSubmission
  {
    SimulatedSubmission(
      at: simulation.now, account: content.account, device: content.device,
      environment: households[number].environment, bundleID: configuration.app.bundleID,
      receiptData: content.receiptData, transactionID: content.transactionID,
      restores: restores)
  }
}
