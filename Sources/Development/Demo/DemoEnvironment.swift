import AppStore
import AppStoreSimulator
import Subscriptions

/// What a scenario is played with: a clock, people with phones, and Tenure.
///
/// Everything that is done on it is told to the terminal.
final class DemoStage {
  /// Between the deeds of people some time passes: Apple's dates are whole seconds.
  private static let pause = Duration.seconds(10)
  /// How long Apple is down at a time.
  private static let outage = Duration.minutes(20)
  /// How far the clock jumps at a time while one waits for the worker.
  private static let workerStep = Duration.minutes(10)
  /// How long such a jump takes in reality.
  private static let workerWait = Duration.milliseconds(200)
  /// After so many steps the worker is not going to do it any more.
  private static let workerStepLimit = 100

  let simulation: AppStoreSimulation
  let network: DemoNetwork
  let tenure: TenureClient
  /// Carries Apple's notifications to Tenure, whenever the story says so.
  let sender: NotificationSender
  let serverAPI: AppStoreServerAPI
  let printer: StoryPrinter
  /// What was expected so far, and what came of it.
  private(set) var checks: [DemoCheck] = []

  private var scenario = ""
  private var phones: [String: DemoPhone] = [:]
  private(set) var cast: Set<AppleID> = []
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

  /// Begins a scenario: with nobody on stage, and no news on its way.
  func begin(_ scenario: DemoScenario) throws {
    self.scenario = scenario.number
    cast = []
    nextFault = nil
    simulation.giveUpNotifications()
    try chooseNotifications(.v2)
    printer.heading(scenario.number, scenario.title)
  }

  // MARK: People

  /// The phone of somebody with an Apple ID of one's own; the same one if it has been on stage.
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

  /// Another device, on which an Apple ID is signed in that has been on stage.
  func device(_ name: String, appleID: AppleID, account: String) throws -> DemoPhone {
    try simulation.addDevice(DeviceID(name), appleID: appleID, account: AppAccountID(account))
    cast.insert(appleID)
    let phone = DemoPhone(name: name, appleID: appleID, account: account, stage: self)
    phones[name] = phone
    return phone
  }

  // MARK: Time

  var now: Timestamp { simulation.now }

  func tell(_ text: String) {
    printer.event(now, text)
  }

  func wait(_ duration: Duration) {
    wait(until: now + duration)
  }

  /// Lets time pass, and tells what Apple does meanwhile to those who are on stage.
  func wait(until moment: Timestamp) {
    for event in simulation.advance(to: moment) where cast.contains(event.appleID) {
      if let text = try? sentence(for: event) { printer.event(event.at, text) }
    }
  }

  /// Lets some time pass before the next deed of somebody.
  func pause() {
    wait(Self.pause)
    guard let fault = nextFault else { return }
    nextFault = nil
    simulation.setNotificationFaults { $0.next = [fault] }
  }

  /// Lets something go wrong with the notification of the next deed.
  func letNextNotification(_ fault: NotificationFault) {
    nextFault = fault
  }

  /// Lets time pass until the worker has decided a submission.
  func waitForWorker(_ submission: TenureClient.Submission) async throws
    -> TenureClient.Submission
  {
    try await waitForWorker {
      let answer = try await tenure.submission(submission.id)
      return answer.isPending ? nil : answer
    }
  }

  /// Lets time pass until the worker has done something.
  ///
  /// - Parameter result: Looks what it came to; nil as long as it is not done.
  /// - Returns: What it came to.
  /// - Throws: ``TenureClient/Failure`` if it is never done.
  func waitForWorker<Result>(_ result: () async throws -> Result?) async throws -> Result {
    for _ in 0..<Self.workerStepLimit {
      if let result = try await result() { return result }
      wait(Self.workerStep)
      try await Task.sleep(for: Self.workerWait)
    }
    throw TenureClient.Failure(description: "The worker did not do it.")
  }

  // MARK: Apple's bad hours

  /// Apple answers no requests for a while.
  func beginOutage() {
    let end = now + Self.outage
    simulation.setFaults { $0.outageEnd = end }
    tell("Apple's server answers 503 for the next 20 minutes.")
  }

  /// Lets the outage end before its time.
  func endOutage() {
    simulation.setFaults { $0.outageEnd = nil }
    tell("Apple is back.")
  }

  // MARK: What has to come out

  /// Checks whose a charge is, and by which row of the rule.
  func expect(
    _ what: String, _ id: TransactionID, isOwnedBy owner: String?,
    _ rule: Decision.Rule
  ) async throws {
    let found = try await tenure.transaction(id)
    let isMet = found.owner == owner && found.decision.rule == rule
    let result = found.owner.map { "\($0) owns \(what)" } ?? "Nobody owns \(what)"
    let wish = isMet ? "" : " (It should be \(owner ?? "nobody")'s, \(rule.rawValue).)"
    record(
      isMet, "\(result): \(found.decision.because)\(wish)",
      DemoCheck.Ownership(
        what: what, transaction: id, expected: owner, owner: found.owner,
        rule: found.decision.rule))
  }

  /// Checks what an account may use, now or as of another moment.
  func expect(_ account: String, mayUse names: [String], at moment: Timestamp? = nil) async throws {
    let found = try await tenure.entitlements(of: account, at: moment)
    let list = found.map { entitlement in
      "\(entitlement.name) "
        + (entitlement.accessEndsAt.map { "until \($0.prefix(10))" } ?? "for ever")
    }
    let when = moment.map { " on \($0.day)" } ?? ""
    expect(
      found.map(\.name) == names,
      "\(account) may use \(list.isEmpty ? "nothing" : list.joined(separator: ", "))\(when).")
  }

  /// Checks anything else.
  func expect(_ isMet: Bool, _ sentence: String) {
    record(isMet, sentence)
  }

  private func record(
    _ isMet: Bool, _ sentence: String, _ ownership: DemoCheck.Ownership? = nil
  ) {
    checks.append(
      DemoCheck(scenario: scenario, isMet: isMet, sentence: sentence, ownership: ownership))
    printer.check(isMet, sentence)
  }
}

/// What Apple tells by itself: it is on its way until the story lets it arrive.
extension DemoStage {
  /// Chooses which version of notifications Apple sends from now on.
  func chooseNotifications(_ version: SimulatedNotification.Version) throws {
    try simulation.setNotificationTargets(
      [NotificationTarget(version, url: tenure.notificationURL)])
  }

  /// Lets the notifications arrive that are due, of everybody, and tells of those about the people
  /// on stage.
  ///
  /// - Throws: ``TenureClient/Failure`` if Tenure does not take one.
  func notify() async throws {
    var told: [String] = []
    for notification in try await sender.deliverDueNotifications() {
      guard let attempt = notification.attempts.last, attempt.result == .success else {
        throw TenureClient.Failure(
          description: "\(notification.name) was not taken: "
            + (notification.attempts.last?.httpStatus.map { "\($0)" } ?? "no answer"))
      }
      if let event = notification.event, cast.contains(event.appleID) {
        told.append(notification.name)
      }
    }
    if !told.isEmpty { tell("Apple notifies: \(told.joined(separator: ", ")).") }
  }

  /// Lets what is on its way get lost.
  func loseNotifications() {
    simulation.giveUpNotifications()
    tell("Apple's notifications of it get lost.")
  }

  /// The notifications about a charge that did not arrive, by Apple's own books.
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
  /// Type and subtype, as the story tells them.
  fileprivate var name: String { subtype.map { "\(type) (\($0))" } ?? type }
}

extension DemoStage {
  /// Says what happened at Apple's; nil for what the story need not know.
  func sentence(for event: SimulatedEvent) throws -> String? {
    let charge = try simulation.truth(of: event.transactionID)
    let price = SimulatedPrice(milliunits: charge.priceMilliunits, currency: charge.currency).text
    let paid = charge.expiresDate.map { "paid until \($0.day)" } ?? "for ever"
    let buyer = event.account?.rawValue ?? "Somebody"
    let (product, payer) = (event.productID, event.appleID)
    switch event.kind {
    case .subscribed, .boughtOnce:
      return "\(buyer) buys \(product): \(payer) pays \(price)."
    case .resubscribed:
      return "\(buyer) buys \(product), on the same Apple ID as before: \(payer) pays \(price)."
    case .upgraded:
      return "\(buyer) changes to \(product): \(payer) pays \(price), Apple refunds the old rest."
    case .renewed:
      return "Apple renews \(product): \(payer) pays \(price), \(paid)."
    case .recovered:
      return "Apple can charge at last: \(payer) pays \(price) for \(product), \(paid)."
    case .renewalProductChanged(let next):
      return "\(buyer) chooses \(next) from the next period on. Nothing is charged now."
    case .autoRenewTurnedOff:
      return "\(buyer) switches auto-renew off."
    case .autoRenewTurnedOn:
      return "\(buyer) switches auto-renew on again."
    case .renewalFailed:
      return "Apple can't collect from \(payer), and keeps trying."
    case .gracePeriodExpired:
      return "The grace period is over; Apple keeps trying."
    case .expired:
      return "\(product) of \(payer) expires."
    case .refunded:
      return "Apple refunds \(price) for \(product) of \(charge.purchaseDate.day) to \(payer)."
    case .refundReversed:
      return "Apple takes this refund back: \(payer) has paid \(price) after all."
    case .familyAccessRevoked:
      return "Apple revokes the family's \(product) from \(payer)."
    case .migrated(let previous):
      return "Apple moves \(previous) to a new original transaction id, "
        + "\(event.originalTransactionID)."
    case .restored, .priceIncreaseAsked, .priceIncreaseAccepted, .offerRedeemed,
      .renewalExtended, .refundRequested, .refundDeclined:
      return nil
    }
  }

  /// Says what Tenure answered to a submission.
  func tellAnswer(_ answer: TenureClient.Submission, to account: String) {
    guard !answer.isPending else {
      tell("Tenure has stored it (202): Apple can't be asked now, and the worker will go on.")
      return
    }
    let new = answer.newlyOwned.map { "\($0.productID) (\($0.id))" }
    var text =
      new.isEmpty
      ? "Tenure: verified; nothing in it is newly \(account)'s"
      : "Tenure: verified; \(new.joined(separator: " and ")) is now \(account)'s"
    if let order = answer.order { text += ", the order is \(order.status.rawValue)" }
    if let warnings = answer.warnings, !warnings.isEmpty {
      text += " [\(warnings.joined(separator: ", "))]"
    }
    tell(text + ".")
  }
}
