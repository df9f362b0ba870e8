import AppStore
import AppStoreSimulator
import Subscriptions

/// The environment of a scenario: a clock, people with phones, and Tenure.
///
/// Every action is printed to the terminal.
final class DemoEnvironment {
  /// The time between actions: Apple's dates are whole seconds.
  private static let pause = Duration.seconds(10)
  private static let outage = Duration.minutes(20)
  /// Simulated time per step while waiting for the worker.
  private static let workerStep = Duration.minutes(10)
  /// Real time per step.
  private static let workerWait = Duration.milliseconds(200)
  /// The number of steps after which the worker is considered stuck.
  private static let workerStepLimit = 100

  let simulation: AppStoreSimulation
  let network: DemoNetwork
  let tenure: TenureClient
  /// Delivers Apple's notifications when the story says so.
  let sender: NotificationSender
  let serverAPI: AppStoreServerAPI
  private(set) var printer: StoryPrinter
  private(set) var checks: [DemoCheck] = []

  private var scenario = ""
  private var phones: [String: DemoPhone] = [:]
  private(set) var cast: Set<AppleID> = []
  /// The accounts of the app that were used.
  var accounts: Set<String> = []
  private var nextFault: NotificationFault?

  init(
    simulation: AppStoreSimulation, network: DemoNetwork, tenure: TenureClient,
    sender: NotificationSender, serverAPI: AppStoreServerAPI, printer: StoryPrinter
  ) {
    self.simulation = simulation
    self.network = network
    self.tenure = tenure
    self.sender = sender
    self.serverAPI = serverAPI
    self.printer = printer
  }

  /// Begins a scenario: without people on stage or notifications in flight.
  func begin(_ scenario: DemoScenario) throws {
    self.scenario = scenario.title
    cast = []
    nextFault = nil
    simulation.giveUpNotifications()
    try chooseNotifications(.v2)
    printer.isSilent = scenario.moral == nil
    printer.heading(scenario.title)
    if let moral = scenario.moral { printer.remark(moral) }
  }

  // MARK: People

  /// The phone of a person with an Apple ID; the same phone if the person was on stage before.
  func phone(_ owner: String) throws -> DemoPhone {
    let name = "\(owner)'s iPhone"
    if let phone = phones[name] {
      cast.insert(phone.appleID)
      return phone
    }
    let appleID = AppleID("\(owner)@example.com")
    try simulation.addAppleID(appleID)
    return try device(name, appleID: appleID, account: owner)
  }

  func device(_ name: String, appleID: AppleID, account: String) throws -> DemoPhone {
    try simulation.addDevice(DeviceID(name), appleID: appleID, account: AppAccountID(account))
    cast.insert(appleID)
    accounts.insert(account)
    let phone = DemoPhone(name: name, appleID: appleID, account: account, stage: self)
    phones[name] = phone
    return phone
  }

  // MARK: Time

  var now: Timestamp { simulation.now }

  func narrate(_ text: String) {
    printer.event(now, text)
  }

  func wait(_ duration: Duration) {
    wait(until: now + duration)
  }

  /// Advances the clock and prints the App Store events of the people on stage.
  func wait(until moment: Timestamp) {
    for event in simulation.advance(to: moment) where cast.contains(event.appleID) {
      if let text = try? sentence(for: event) { printer.event(event.at, text) }
    }
  }

  /// Lets a few seconds pass before the next action, and arms its notification fault.
  func pause() {
    wait(Self.pause)
    guard let fault = nextFault else { return }
    nextFault = nil
    simulation.setNotificationFaults { $0.next = [fault] }
  }

  /// Sets a fault for the notification of the next action.
  func letNextNotification(_ fault: NotificationFault) {
    nextFault = fault
  }

  /// Advances the clock until the worker has decided a submission.
  func waitForWorker(_ submission: TenureClient.Submission) async throws
    -> TenureClient.Submission
  {
    try await waitForWorker {
      let answer = try await tenure.submission(submission.id)
      return answer.isPending ? nil : answer
    }
  }

  /// Advances the clock until `result` is no longer nil.
  func waitForWorker<Result>(_ result: () async throws -> Result?) async throws -> Result {
    for _ in 0..<Self.workerStepLimit {
      if let result = try await result() { return result }
      wait(Self.workerStep)
      try await Task.sleep(for: Self.workerWait)
    }
    throw TenureClient.Failure(description: "The worker did not finish in time.")
  }

  // MARK: Apple's outages

  func beginOutage() {
    let end = now + Self.outage
    simulation.setFaults { $0.outageEnd = end }
    narrate("The App Store answers 503 for the next 20 minutes.")
  }

  func endOutage() {
    simulation.setFaults { $0.outageEnd = nil }
    narrate("The App Store is available again.")
  }

  // MARK: Expected outcomes

  /// Checks a charge's owner and the ownership rule that decided it.
  func expect(
    _ what: String, _ id: TransactionID, isOwnedBy owner: String?,
    _ rule: Decision.Rule
  ) async throws {
    let found = try await tenure.transaction(id)
    let isMet = found.owner == owner && found.decision.rule == rule
    let result = found.owner.map { "\($0) owns \(what)" } ?? "No account owns \(what)"
    let wish = isMet ? "" : " (Expected: \(owner ?? "unclaimed"), \(rule.rawValue).)"
    expect(
      isMet, "\(result): \(found.decision.because)\(wish)",
      DemoCheck.Ownership(what: what, transaction: id))
  }

  /// Checks an account's active entitlements, now or at another time.
  func expect(_ account: String, mayUse names: [String], at moment: Timestamp? = nil) async throws {
    let found = try await tenure.entitlements(of: account, at: moment)
    let list = found.map { entitlement in
      let end = entitlement.accessEndsAt.map { "until \($0.prefix(10))" } ?? "no expiration"
      return "\(entitlement.name) (\(end))"
    }
    let result = list.isEmpty ? "no active entitlements" : list.joined(separator: ", ")
    let when = moment.map { "On \($0.day), " } ?? ""
    expect(found.map(\.name) == names, "\(when)\(account) has \(result).")
  }

  /// Records an outcome that was checked elsewhere.
  func expect(_ isMet: Bool, _ sentence: String, _ ownership: DemoCheck.Ownership? = nil) {
    checks.append(
      DemoCheck(scenario: scenario, isMet: isMet, sentence: sentence, ownership: ownership))
    printer.check(isMet, sentence)
  }
}

/// Apple's notifications, which are held until the story delivers or loses them.
extension DemoEnvironment {
  func chooseNotifications(_ version: SimulatedNotification.Version) throws {
    try simulation.setNotificationTargets(
      [NotificationTarget(version, url: tenure.notificationURL)])
  }

  /// Delivers all due notifications, and prints those about the people on stage.
  ///
  /// - Throws: ``TenureClient/Failure`` if Tenure does not accept one.
  func notify() async throws {
    var sent: [String] = []
    for notification in try await sender.deliverDueNotifications() {
      guard let attempt = notification.attempts.last, attempt.result == .success else {
        throw TenureClient.Failure(
          description: "\(notification.name) was not accepted: "
            + (notification.attempts.last?.httpStatus.map { "\($0)" } ?? "no answer"))
      }
      if let event = notification.event, cast.contains(event.appleID) {
        sent.append(notification.name)
      }
    }
    if !sent.isEmpty { narrate("Apple sends \(sent.joined(separator: ", ")).") }
  }

  /// Drops the notifications in flight.
  func loseNotifications() {
    simulation.giveUpNotifications()
    narrate("Apple's notifications about it get lost.")
  }

  /// The undelivered notifications about a charge, from Apple's notification history.
  func lostNotifications(about charge: SimulatedCharge) async throws -> [SentNotification] {
    var query = NotificationHistoryQuery(
      startDate: charge.purchaseDate, endDate: now + .seconds(1))
    query.subject = .transaction(charge.transactionID)
    query.onlyFailures = true
    let pages = serverAPI.notificationHistoryPages(
      query, of: DemoCatalogue.app.bundleID, in: .production)
    var lost: [SentNotification] = []
    for try await page in pages { lost += page.content.notifications }
    return lost
  }
}

extension SimulatedNotification {
  /// Type and subtype, as printed.
  fileprivate var name: String { subtype.map { "\(type) (\($0))" } ?? type }
}

extension DemoEnvironment {
  /// A sentence about an App Store event; nil if the story doesn't mention it.
  func sentence(for event: SimulatedEvent) throws -> String? {
    let charge = try simulation.truth(of: event.transactionID)
    let price = price(of: charge)
    let paid = charge.expiresDate.map { "paid until \($0.day)" } ?? "forever"
    let buyer = event.account?.rawValue ?? "The customer"
    let (product, payer) = (event.productID, event.appleID)
    switch event.kind {
    case .subscribed, .boughtOnce:
      return "\(buyer) buys \(product): \(payer) pays \(price)."
    case .resubscribed:
      return "\(buyer) buys \(product) again on the same Apple ID: \(payer) pays \(price)."
    case .upgraded:
      return "\(buyer) upgrades to \(product): \(payer) pays \(price). "
        + "Apple refunds the unused time."
    case .renewed:
      return "Apple renews \(product): \(payer) pays \(price), \(paid)."
    case .recovered:
      return "Apple's retry succeeds: \(payer) pays \(price) for \(product), \(paid)."
    case .renewalProductChanged(let next):
      return "\(buyer) switches to \(next) at the next renewal. Nothing is charged now."
    case .autoRenewTurnedOff:
      return "\(buyer) turns auto-renew off."
    case .autoRenewTurnedOn:
      return "\(buyer) turns auto-renew on again."
    case .renewalFailed:
      return "Apple's charge to \(payer) fails; Apple keeps retrying."
    case .gracePeriodExpired:
      return "The grace period ends; Apple keeps retrying."
    case .expired:
      return "\(payer)'s \(product) expires."
    case .refunded:
      return "Apple refunds \(price) to \(payer) for \(product) of \(charge.purchaseDate.day)."
    case .refundReversed:
      return "Apple reverses the refund: \(payer) has paid \(price) after all."
    case .familyAccessRevoked:
      return "Apple revokes \(payer)'s family access to \(product)."
    case .migrated(let previous):
      return "Apple moves \(previous) to a new original transaction ID, "
        + "\(event.originalTransactionID)."
    case .restored, .priceIncreaseAsked, .priceIncreaseAccepted, .offerRedeemed,
      .renewalExtended, .refundRequested, .refundDeclined:
      return nil
    }
  }

  /// For example `9.99 USD`.
  private func price(of charge: SimulatedCharge) -> String {
    let cents = (charge.priceMilliunits + 5) / 10
    let (whole, rest) = (cents / 100, cents % 100)
    return "\(whole).\(rest < 10 ? "0" : "")\(rest) \(charge.currency)"
  }

  func narrateAnswer(_ answer: TenureClient.Submission, to account: String) {
    guard !answer.isPending else {
      narrate("Tenure stores it (202): Apple is unavailable, so the worker will retry.")
      return
    }
    let new = answer.newlyOwned.map { "\($0.productID) (\($0.id))" }
    let warnings = answer.warnings ?? []
    var text = "Tenure: verified; \(account) "
    if !new.isEmpty {
      text += "now owns \(new.joined(separator: " and "))"
    } else {
      text += warnings.isEmpty ? "gets nothing new" : "gets nothing"
    }
    if let order = answer.order { text += ", the order is \(order.status.rawValue)" }
    if !warnings.isEmpty {
      text += ": " + warnings.map { $0.replacing("_", with: " ") }.joined(separator: ", ")
    }
    narrate(text + ".")
  }
}
