import AppStoreSimulator
import Foundation
import LedgerStorage
import Postgres
import Subscriptions

/// A year of an app's customers, simulated in steps against Tenure and the simulated App Store.
///
/// In each step customers act, their apps submit, and Apple's notifications are delivered; then the
/// clock waits until Tenure has no due work, so results don't depend on the machine's speed. At the
/// end Tenure's answers are compared with the truth.
final class Year {
  /// Sets the clock of other processes.
  typealias ClockHand = @Sendable (Timestamp) throws -> Void

  /// The number of notifications delivered concurrently.
  private static let carriers = 4
  private static let pollInterval: Duration = .milliseconds(2)
  private static let workLimit: Duration = .seconds(300)

  let plan: YearPlan
  let simulation: AppStoreSimulation
  let tenure: TenureClient
  private let sender: NotificationSender
  private let ledger: Ledger
  /// Nil if all programs share this process's clock.
  private let clockHand: ClockHand?
  /// How far the clock is moved when due jobs make no progress; nil if no worker is killed.
  ///
  /// A killed worker keeps its jobs until their lease ends.
  private let leaseStep: Duration?
  private var random: SplitMix64
  var households: [YearHousehold]
  /// Customers with a purchase from before the year.
  let residents: [YearResident]
  var oracle: YearOracle
  /// Faults found during the year.
  private(set) var findings: [String] = []
  private(set) var submissions = 0

  /// - Throws: `SimulationError` if the App Store does not accept it.
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

  // MARK: Steps

  /// Runs the year to its end.
  ///
  /// `beginning` is called in each step in which Tenure has work to do, before that work.
  func live(beginning: (Year) async throws -> Void = { _ in }) async throws {
    try clockHand?(now)
    while now < plan.end {
      try Task.checkCancellation()
      try await live(until: min(plan.step(after: now), plan.end), beginning)
    }
    await lookForUndecided()
  }

  private func live(
    until moment: Timestamp, _ beginning: (Year) async throws -> Void
  ) async throws {
    setBadDays()
    let newEvents = oracle.events
    try await visit(until: moment)
    try move(to: moment)
    oracle.receive()
    if oracle.events > newEvents || households.contains(where: { !$0.outbox.isEmpty }) {
      try await beginning(self)
    }
    // Notifications arrive before, after, or concurrently with the app's submissions.
    switch random.number(in: 1...3) {
    case 1:
      try await send()
      try await Self.carry(sender)
    case 2:
      try await Self.carry(sender)
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

  // MARK: Outages

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

  // MARK: Notifications

  /// Delivers due notifications, several of them concurrently.
  @concurrent
  private static func carry(_ sender: NotificationSender) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 1...carriers { group.addTask { try await sender.deliverDueNotifications() } }
      try await group.waitForAll()
    }
  }

  // MARK: Submissions

  private struct SubmissionBatch: Sendable {
    let household: Int
    let letters: [YearHousehold.Letter]
  }

  private func takeLetters() -> [SubmissionBatch] {
    households.indices.compactMap { number in
      let letters = households[number].outbox
      households[number].outbox = []
      return letters.isEmpty ? nil : SubmissionBatch(household: number, letters: letters)
    }
  }

  /// Sends the apps' submissions: in order within a household, concurrently between households.
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

  /// Whether all submissions of a household are decided.
  func isDecided(_ household: Int) async throws -> Bool {
    var rest: [(id: String, sentAt: Timestamp)] = []
    for submission in households[household].undecided {
      let answer = try await tenure.submission(submission.id)
      if answer.isPending { rest.append(submission) }
    }
    households[household].undecided = rest
    return rest.isEmpty
  }

  private func lookForUndecided() async {
    for number in households.indices where (try? await isDecided(number)) != true {
      find("a submission of \(households[number].appleID) is not decided")
    }
  }

  // MARK: Tenure's backlog

  /// Waits until Tenure has no due work.
  private func waitForTenure() async throws {
    guard try await hasBacklog() else { return }
    ledger.notifier.notify(.jobs)
    let end = ContinuousClock.now + Self.workLimit
    var nextMove = ContinuousClock.now + Self.leasePatience
    repeat {
      guard ContinuousClock.now < end else {
        let left = try await ledger.jobs.jobCounts(at: now).filter { $0.due + $0.running > 0 }
          .map { "\($0.kind) (\($0.due) due, \($0.running) running)" }
        throw TenureClient.Failure(
          description: "At \(now) due jobs are not finished: \(left.joined(separator: ", "))")
      }
      if let leaseStep, ContinuousClock.now >= nextMove {
        try move(to: now + leaseStep)
        ledger.notifier.notify(.jobs)
        nextMove = ContinuousClock.now + Self.leasePatience
      }
      try await Task.sleep(for: Self.pollInterval)
    } while try await hasBacklog()
  }

  /// Whether work is due; retries while the database fails over.
  private func hasBacklog() async throws -> Bool {
    let end = ContinuousClock.now + tenure.patience
    while true {
      do {
        return try await ledger.jobs.hasBacklog(at: now)
      } catch is PostgresError where ContinuousClock.now < end {
        try await Task.sleep(for: Self.pollInterval)
      }
    }
  }

  /// The real time without progress after which the clock is moved to end leases.
  ///
  /// Too short is harmless: two workers then run the same job, and one of them commits.
  private static let leasePatience: Duration = .milliseconds(500)
}

/// A customer with one purchase from before the year.
struct YearResident: Sendable {
  let appleID: AppleID
  let account: String
  /// The purchase; the account also owns its renewals.
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

/// The number of customers, the time they are simulated, and the faults on Apple's side.
struct YearPlan: Sendable {
  /// The same seed gives the same customers.
  var seed: UInt64
  var customers: Int
  var length = CalendarPeriod(months: 12)
  var start = Timestamp(CalendarDate(year: 2025, month: 1, day: 1))

  /// Whether some apps open an order before a purchase.
  var opensOrders = true
  /// The time in which every customer acts for the first time.
  var firstVisits: Duration = .days(60)
  /// The time between two visits of a customer.
  var hoursBetweenVisits = 24...960
  /// Whether Apple has outages, and a week of its notifications is lost.
  var hasBadDays = true

  /// How far the clock moves per step.
  var step: Duration = .hours(6)
  /// The same around Apple's outages.
  var outageStep: Duration = .hours(1)

  /// The share of notifications that arrive late, twice, out of order or at a later attempt.
  var notificationFaultRate = 0.1

  var end: Timestamp { length.end(from: start) }

  /// From here on customers do nothing new; pending work takes days at most.
  var rest: Timestamp { end - Self.restLength }

  /// Two outages of both verifyReceipt and the App Store Server API: for 9 and for 40 hours.
  var outages: [Range<Timestamp>] {
    guard hasBadDays else { return [] }
    let (short, long) = (moment(0.3), moment(0.7))
    return [short..<short + .hours(9), long..<long + .hours(40)]
  }

  /// The week whose notifications are lost for good, so that Tenure has to find out otherwise.
  ///
  /// All others arrive eventually.
  var silence: Range<Timestamp> {
    let begin = moment(0.5)
    return begin..<begin + (hasBadDays ? .days(7) : .zero)
  }

  /// The time after an outage by which postponed work is done: the longest retry delay is an hour.
  static let outageAftermath: Duration = .hours(6)
  /// Longer than Apple retries a notification, and than any is late.
  static let restLength: Duration = .days(9)

  /// A moment given as a share of the length.
  private func moment(_ share: Double) -> Timestamp {
    let milliseconds = Double((end - start).inMilliseconds) * share
    return start + .milliseconds(Int64(milliseconds))
  }

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

/// The clock file that programs read (`TENURE_CLOCK_FILE`).
struct ClockHand: Sendable {
  let path: String

  /// The file is created by the first ``move(to:)``.
  init(in directory: URL) {
    path = directory.appending(path: "clock").path(percentEncoded: false)
  }

  /// Sets the clock; the file is replaced atomically.
  func move(to moment: Timestamp) throws {
    try Data("\(moment.milliseconds)\n".utf8).write(to: URL(filePath: path), options: .atomic)
  }
}
