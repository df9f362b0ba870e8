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
