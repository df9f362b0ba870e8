import AppStoreSimulator
import Foundation
import LedgerStorage
import Postgres
import Subscriptions

/// A year of an app's customers, lived in steps against Tenure and the simulated App Store.
///
/// In each step people do what they do, their apps send it, Apple's notifications are delivered,
/// and then the clock waits until Tenure has nothing left that is due: so nothing depends on how
/// fast a machine is. At the end what Tenure says is compared with what is true.
final class Year {
  /// How the programs are told what time it is.
  typealias ClockHand = @Sendable (Timestamp) throws -> Void

  /// How many notifications are carried at once.
  private static let carriers = 4
  /// How often it is looked whether anything is left to do.
  private static let pollInterval: Duration = .milliseconds(2)
  /// How long that may take in reality.
  private static let workLimit: Duration = .seconds(300)

  let plan: YearPlan
  let simulation: AppStoreSimulation
  let tenure: TenureClient
  private let sender: NotificationSender
  private let ledger: Ledger
  /// Moves the clock of programs that don't share this one's; nil: they do.
  private let clockHand: ClockHand?
  /// How far the clock moves when a job that is due is not begun or not ended.
  ///
  /// A worker that was killed keeps its jobs until their lease ends, which only time can bring
  /// about; nil where nobody is killed.
  private let leaseStep: Duration?
  private var random: SplitMix64
  var households: [YearHousehold]
  /// Who was a customer before: what each has bought, by whom.
  let residents: [YearResident]
  var oracle: YearOracle
  /// What cannot be right, found on the way.
  private(set) var findings: [String] = []
  private(set) var submissions = 0

  /// - Parameters:
  ///   - plan: What is lived.
  ///   - simulation: Where everybody buys; at the plan's start.
  ///   - tenure: Whose products are described.
  ///   - sender: What carries Apple's notifications.
  ///   - ledger: Whose queue is watched.
  ///   - clockHand: Moves the clock of other processes.
  ///   - leaseStep: How far the clock is moved to end the leases of the dead.
  ///   - residents: Who was a customer before.
  /// - Throws: What the App Store does not accept.
  init(
    _ plan: YearPlan, simulation: AppStoreSimulation, tenure: TenureClient,
    sender: NotificationSender, ledger: Ledger, clockHand: ClockHand? = nil,
    leaseStep: Duration? = nil, residents: [YearResident] = []
  ) throws {
    self.plan = plan
    self.simulation = simulation
    self.tenure = tenure
    self.sender = sender
    self.ledger = ledger
    self.clockHand = clockHand
    self.leaseStep = leaseStep
    random = SplitMix64(seed: plan.seed)
    self.residents = residents
    oracle = YearOracle(simulation: simulation)
    for resident in residents { oracle.note(resident.account, bought: resident.bought, for: nil) }
    households = []
    for number in 0..<plan.customers {
      let household = YearHousehold(number, in: plan, seed: random.next())
      try simulation.addAppleID(household.appleID)
      for device in household.devices {
        try simulation.addDevice(
          device, appleID: household.appleID,
          account: household.loggedIn[device].map { AppAccountID($0) })
      }
      households.append(household)
    }
    try simulation.setNotificationTargets(
      [NotificationTarget(.v2, url: tenure.notificationURL)])
    simulation.setNotificationFaults { $0.rate = plan.notificationFaultRate }
  }

  var now: Timestamp { simulation.now }

  // MARK: Living

  /// Lives to the end of the year.
  ///
  /// - Parameter beginning: Is told of each step in which Tenure has something to do, before that.
  /// - Throws: What kept Tenure from being asked.
  func live(beginning: (Year) async throws -> Void = { _ in }) async throws {
    try clockHand?(now)
    while now < plan.end {
      try Task.checkCancellation()
      try await live(until: min(plan.step(after: now), plan.end), beginning)
    }
    await lookForUndecided()
  }

  /// One step of the clock.
  private func live(
    until moment: Timestamp, _ beginning: (Year) async throws -> Void
  ) async throws {
    setBadDays()
    let news = oracle.events
    try await visit(until: moment)
    try move(to: moment)
    oracle.hear()
    if oracle.events > news || households.contains(where: { !$0.outbox.isEmpty }) {
      try await beginning(self)
    }
    // Apple is sometimes faster than the app, and sometimes slower.
    switch random.number(in: 1...3) {
    case 1:
      try await send()
      try await carry()
    case 2:
      try await carry()
      try await send()
    default:
      let sender = sender
      async let delivered: Void = Self.carry(sender)
      try await send()
      try await delivered
    }
    try await waitForTenure()
  }

  func move(to moment: Timestamp) throws {
    guard moment > now else { return }
    simulation.advance(to: moment)
    try clockHand?(moment)
  }

  func find(_ fault: String) {
    findings.append("\(now.day): \(fault)")
  }

  // MARK: Bad days

  private func setBadDays() {
    let moment = now
    if let outage = plan.outages.first(where: { $0.contains(moment) }) {
      let end = outage.upperBound
      simulation.setFaults { $0.outageEnd = end }
      simulation.setServerFaults { $0.outageEnd = end }
    }
    let isSilent = plan.silence.contains(moment)
    let rests = moment >= plan.rest
    let rate = plan.notificationFaultRate
    simulation.setNotificationFaults {
      $0.kinds = isSilent ? [.dropped] : NotificationFaultPlan.usualKinds
      $0.rate = isSilent ? 1 : rests ? 0 : rate
    }
  }

  // MARK: News

  private func carry() async throws {
    try await Self.carry(sender)
  }

  /// Delivers what is due, some of it at once.
  @concurrent
  private static func carry(_ sender: NotificationSender) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 1...carriers { group.addTask { try await sender.deliverDueNotifications() } }
      try await group.waitForAll()
    }
  }

  // MARK: Submissions

  private struct Mailbag: Sendable {
    let household: Int
    let letters: [YearHousehold.Letter]
  }

  private func takeLetters() -> [Mailbag] {
    households.indices.compactMap { number in
      let letters = households[number].outbox
      households[number].outbox = []
      return letters.isEmpty ? nil : Mailbag(household: number, letters: letters)
    }
  }

  /// Sends what the apps have to send: of one household in order, of different ones at once.
  private func send() async throws {
    let (bags, tenure) = (takeLetters(), tenure)
    let answers = try await withThrowingTaskGroup { group in
      for bag in bags {
        group.addTask { () -> [(Int, TenureClient.Submission)] in
          var answers: [(Int, TenureClient.Submission)] = []
          for letter in bag.letters {
            for _ in 0...(letter.isSentTwice ? 1 : 0) {
              answers.append((bag.household, try await tenure.submit(letter.content)))
            }
          }
          return answers
        }
      }
      return try await group.reduce(into: []) { $0 += $1 }
    }
    submissions += answers.count
    for (household, answer) in answers where answer.isPending {
      households[household].undecided.append((answer.id, now))
    }
  }

  /// Whether everything that a household has sent is decided.
  func isDecided(_ household: Int) async throws -> Bool {
    var rest: [(id: String, sentAt: Timestamp)] = []
    for submission in households[household].undecided {
      let answer = try await tenure.submission(submission.id)
      if answer.isPending { rest.append(submission) }
    }
    households[household].undecided = rest
    return rest.isEmpty
  }

  /// At the end nothing is left undecided.
  private func lookForUndecided() async {
    for number in households.indices where (try? await isDecided(number)) != true {
      find("what \(households[number].appleID) has submitted is not decided")
    }
  }

  // MARK: Tenure's work

  /// Waits until nothing is due that Tenure has not done.
  private func waitForTenure() async throws {
    guard try await hasBacklog() else { return }
    ledger.wakeWorkers()
    let end = ContinuousClock.now + Self.workLimit
    var nextMove = ContinuousClock.now + Self.leasePatience
    repeat {
      guard ContinuousClock.now < end else {
        let left = try await ledger.jobCounts(at: now).filter { $0.due + $0.running > 0 }
          .map { "\($0.kind) (\($0.due) due, \($0.running) running)" }
        throw TenureClient.Failure(
          description: "At \(now) nobody ends what is due: \(left.joined(separator: ", "))")
      }
      if let leaseStep, ContinuousClock.now >= nextMove {
        try move(to: now + leaseStep)
        ledger.wakeWorkers()
        nextMove = ContinuousClock.now + Self.leasePatience
      }
      try await Task.sleep(for: Self.pollInterval)
    } while try await hasBacklog()
  }

  /// Whether something is due; a database that is being replaced by another is asked again.
  private func hasBacklog() async throws -> Bool {
    let end = ContinuousClock.now + tenure.patience
    while true {
      do {
        return try await ledger.hasBacklog(at: now)
      } catch is PostgresError where ContinuousClock.now < end {
        try await Task.sleep(for: Self.pollInterval)
      }
    }
  }

  /// How long a job may take in reality before its worker is taken for dead.
  ///
  /// Too short costs nothing: two workers then do the same job, and one of them commits.
  private static let leasePatience: Duration = .milliseconds(500)
}

/// Somebody who bought one thing before the year begins, and for whom Apple renews it.
struct YearResident: Sendable {
  let appleID: AppleID
  let account: String
  /// The purchase; what Apple renews later is the account's, too.
  let bought: TransactionID
}

extension TenureClient {
  fileprivate func submit(_ content: YearHousehold.Letter.Content) async throws -> Submission {
    switch content {
    case .receipt(let receipt): try await submit(receipt)
    case .signedData(let signed): try await submit(signed)
    }
  }
}

/// Who lives through the year, and which bad days Apple has in it.
///
/// It can be a shorter time, or a longer one.
struct YearPlan: Sendable {
  /// The same seed gives the same lives.
  var seed: UInt64
  var customers: Int
  var length = CalendarPeriod(months: 12)
  var start = Timestamp(CalendarDate(year: 2025, month: 1, day: 1))

  /// Whether some apps open an order before a purchase.
  var opensOrders = true
  /// Until when everybody has done something for the first time.
  var firstVisits: Duration = .days(60)
  /// How long people wait before they do the next thing.
  var hoursBetweenVisits = 24...960
  /// Whether Apple is down at times, and its notifications of a week are lost.
  var hasBadDays = true

  /// How far the clock moves at a time.
  var step: Duration = .hours(6)
  /// The same around the times at which Apple is down.
  var outageStep: Duration = .hours(1)

  /// The share of notifications that arrive late, twice, in another order or at a later attempt.
  var notificationFaultRate = 0.1

  var end: Timestamp { length.end(from: start) }

  /// When customers do nothing new any more: what is on its way takes days at the most.
  var rest: Timestamp { end - Self.restLength }

  /// Twice Apple is down, for verifyReceipt and for the App Store Server API alike: for hours, and
  /// for more than a day.
  var outages: [Range<Timestamp>] {
    guard hasBadDays else { return [] }
    let (short, long) = (moment(0.3), moment(0.7))
    return [short..<short + .hours(9), long..<long + .hours(40)]
  }

  /// The notifications written in this week are lost for good: Tenure has to find out by itself.
  ///
  /// The others arrive in the end, some of them days late, twice or in another order.
  var silence: Range<Timestamp> {
    let begin = moment(0.5)
    return begin..<begin + (hasBadDays ? .days(7) : .zero)
  }

  /// By then whatever was left undone in an outage is done: the queue's longest pause is an hour.
  static let outageAftermath: Duration = .hours(6)
  /// Longer than Apple goes on with a notification, and than it is late.
  static let restLength: Duration = .days(9)

  /// A moment of the year, as a share of its length.
  private func moment(_ share: Double) -> Timestamp {
    let milliseconds = Double((end - start).inMilliseconds) * share
    return start + .milliseconds(Int64(milliseconds))
  }

  /// The moment to which the clock is moved next.
  func step(after moment: Timestamp) -> Timestamp {
    let isNearOutage = outages.contains {
      $0.lowerBound - step < moment && moment < $0.upperBound + Self.outageAftermath
    }
    let next = moment + (isNearOutage ? outageStep : step)
    let borders =
      outages.flatMap { [$0.lowerBound, $0.upperBound] }
      + [silence.lowerBound, silence.upperBound, rest, end]
    return borders.filter { $0 > moment }.min().map { min($0, next) } ?? next
  }
}

/// The hand of the clock that programs read from a file.
struct ClockHand: Sendable {
  /// What `TENURE_CLOCK_FILE` names.
  let path: String

  /// - Parameter directory: Where the file is made; by ``move(to:)``, and not before.
  init(in directory: URL) {
    path = directory.appending(path: "clock").path(percentEncoded: false)
  }

  /// Moves the hand.
  ///
  /// The file is replaced as a whole: nobody ever reads half of a number.
  func move(to moment: Timestamp) throws {
    try Data("\(moment.milliseconds)\n".utf8).write(to: URL(filePath: path), options: .atomic)
  }
}
