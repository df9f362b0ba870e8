import AppStore
import AppStoreSimulator
import JSONText
import Subscriptions
import Testing

/// Delivering: Apple's schedule, and everything that can go wrong on the way.
@Suite(.timeLimit(.minutes(10)))
struct NotificationSenderTests {
  private let server = StandInServer()

  private func sender(_ stage: Stage) -> NotificationSender {
    NotificationSender(simulation: stage.simulation, transport: server)
  }

  private static func hours(_ notification: SimulatedNotification) -> [Int64] {
    notification.attempts.map { ($0.at - notification.at).inMilliseconds / 3_600_000 }
  }

  @Test(arguments: [
    (SimulatedNotification.Version.v2, Environment.production, [0, 1, 13, 37, 85, 157] as [Int64]),
    (.v2, .sandbox, [0]),
    (.v1, .production, [0, 6, 30, 78]),
    (.v1, .sandbox, [0]),
  ])
  func schedule(
    _ version: SimulatedNotification.Version, _ environment: Environment, _ hours: [Int64]
  ) async throws {
    let stage = try Stage(environment: environment)
    try stage.notify(version)
    server.answer(then: 500)
    try stage.simulation.buy("news.weekly", on: "phone")
    try stage.simulation.setAutoRenew(false, stage.simulation.truth()[0].originalTransactionID)
    let sender = sender(stage)
    // Step by step, as the clock goes.
    try await sender.deliverDueNotifications()
    #expect(stage.simulation.notifications()[0].attempts.count == 1)
    for (earlier, later) in zip(hours, hours.dropFirst()) {
      stage.simulation.advance(by: .hours(Int(later - earlier)) - .seconds(1))
      #expect(try await sender.deliverDueNotifications().isEmpty)
      stage.simulation.advance(by: .seconds(1))
      #expect(try await sender.deliverDueNotifications().count == 2)
    }
    stage.simulation.advance(by: .days(30))
    try await sender.deliverDueNotifications()
    let first = stage.simulation.notifications()[0]
    #expect(Self.hours(first) == hours)
    #expect(first.attempts.allSatisfy { $0.httpStatus == 500 && $0.url == Stage.url })
    #expect(!first.hasArrived)
    // Every attempt carries the same bytes, so the same UUID.
    let bodies = server.requests.map(\.body).filter { $0 == first.body }
    #expect(bodies.count == hours.count)
  }

  @Test func whatIsGivenUpNeverArrives() async throws {
    let stage = try Stage()
    try stage.notify(.v2)
    stage.simulation.setNotificationFaults { $0.next = [nil, .late(.days(3)), .outOfOrder] }
    for _ in 1...3 { try stage.simulation.buy("coins.100", on: "phone") }
    stage.simulation.giveUpNotifications()
    stage.simulation.advance(by: .days(20))
    #expect(try await sender(stage).deliverDueNotifications().isEmpty)
    // Later notifications arrive, and none of the withheld ones with them.
    try stage.simulation.buy("coins.100", on: "phone")
    #expect(try await sender(stage).deliverDueNotifications().map(\.number) == [4])
  }

  @Test func aJumpOfTheClockMakesAllAttemptsAtTheirTimes() async throws {
    let stage = try Stage()
    try stage.notify(.v2)
    server.answer([500, 404, 301], then: 200)
    try stage.simulation.buy("coins.100", on: "phone")
    stage.simulation.advance(by: .days(20))
    let delivered = try await sender(stage).deliverDueNotifications()
    #expect(delivered.count == 4)
    #expect(Self.hours(try #require(delivered.last)) == [0, 1, 13, 37])
    #expect(
      delivered.last?.attempts.map(\.result) == [
        .unsuccessfulStatus, .unsuccessfulStatus, .unsuccessfulStatus, .success,
      ])
  }

  @Test(arguments: [
    (200, true), (204, true), (206, true), (207, false), (302, false), (400, false), (503, false),
  ])
  func success(_ status: Int, _ isSuccess: Bool) async throws {
    let stage = try Stage()
    try stage.notify(.v2)
    server.answer(then: status)
    try stage.simulation.buy("coins.100", on: "phone")
    let delivered = try await sender(stage).deliverDueNotifications()
    #expect(delivered.first?.hasArrived == isSuccess)
    stage.simulation.advance(by: .days(10))
    #expect(try await sender(stage).deliverDueNotifications().count == (isSuccess ? 0 : 5))
  }

  @Test(arguments: [
    (AppStoreTransportError.Kind.timedOut, SendAttempt.Result.timedOut),
    (.connectionFailed, .socketIssue), (.nameNotResolved, .socketIssue), (.tlsFailed, .tlsIssue),
    (.connectionLost, .prematureClose), (.answerTooLarge, .invalidResponse), (.other, .other),
  ])
  func transportFaults(
    _ kind: AppStoreTransportError.Kind, _ result: SendAttempt.Result
  ) async throws {
    let stage = try Stage()
    try stage.notify(.v2)
    server.fail(kind)
    try stage.simulation.buy("coins.100", on: "phone")
    let delivered = try await sender(stage).deliverDueNotifications()
    #expect(delivered.first?.attempts.map(\.result) == [result])
    server.fail(nil)
    stage.simulation.advance(by: .hours(1))
    #expect(try await sender(stage).deliverDueNotifications().first?.hasArrived == true)
  }

  @Test func requestsAreApples() async throws {
    let stage = try Stage()
    try stage.notify(.v2, .v1)
    try stage.simulation.buy("monthly", on: "phone")
    try await sender(stage).deliverDueNotifications()
    #expect(server.requests.count == 2)
    for request in server.requests {
      #expect(request.method == "POST")
      #expect(request.url == Stage.url)
      #expect(request.headers == [HTTPHeader("Content-Type", "application/json")])
    }
    let bodies = try server.requests.map { try JSONValue(parsing: $0.body) }
    #expect(bodies.contains { $0.keys == ["signedPayload"] })
    #expect(bodies.contains { $0.text("notification_type") == "INITIAL_BUY" })
  }

  /// The numbers of the notifications in the order in which their bodies arrived.
  private func arrivals(_ stage: Stage) -> [Int] {
    let notifications = stage.simulation.notifications()
    return server.requests.compactMap { request in
      notifications.first { $0.body == request.body }?.number
    }
  }

  @Test(arguments: [
    (NotificationFault.late(.days(3)), [2, 3, 1], [72] as [Int64]),
    (.doubled, [1, 1, 2, 3], [0, 0]), (.outOfOrder, [1, 2, 3], [1]), (.lost, [1, 2, 3], [0, 1]),
    (.answerLost, [1, 1, 2, 3], [0, 1]), (.dropped, [2, 3], [0, 1, 13, 37, 85, 157]),
  ])
  func faults(_ fault: NotificationFault, _ order: [Int], _ hours: [Int64]) async throws {
    let stage = try Stage()
    try stage.notify(.v2)
    stage.simulation.setNotificationFaults { $0.next = [fault] }
    for _ in 1...3 {
      try stage.simulation.buy("coins.100", on: "phone")
      stage.simulation.advance(by: .hours(2))
    }
    stage.simulation.advance(by: .days(10))
    try await sender(stage).deliverDueNotifications()
    #expect(arrivals(stage) == order)
    #expect(Self.hours(stage.simulation.notifications()[0]) == hours)
  }

  @Test func outOfOrderMeansAfterTheNext() async throws {
    let stage = try Stage()
    try stage.notify(.v2)
    stage.simulation.setNotificationFaults { $0.next = [.outOfOrder, nil, .outOfOrder] }
    for _ in 1...4 {
      try stage.simulation.buy("coins.100", on: "phone")
      stage.simulation.advance(by: .minutes(5))
      try await sender(stage).deliverDueNotifications()
    }
    #expect(arrivals(stage) == [2, 1, 4, 3])
  }

  @Test func chanceIsTheSeeds() async throws {
    func attempts(_ seed: UInt64) async throws -> [[SendAttempt]] {
      let stage = try Stage(seed: seed)
      try stage.notify(.v2)
      stage.simulation.setNotificationFaults { $0.rate = 0.5 }
      for _ in 1...40 {
        try stage.simulation.buy("coins.100", on: "phone")
        stage.simulation.advance(by: .minutes(20))
      }
      stage.simulation.advance(by: .days(20))
      try await sender(stage).deliverDueNotifications()
      return stage.simulation.notifications().map(\.attempts)
    }
    let first = try await attempts(1)
    #expect(first == (try await attempts(1)))
    #expect(first != (try await attempts(2)))
    // The usual faults lose no event.
    #expect(first.allSatisfy { $0.contains { $0.result == .success } })
    #expect(first.contains { $0.count > 1 })
  }

  @Test func runsOnTheRunningClock() async throws {
    let simulation = try AppStoreSimulation(
      configuration: .init(seed: 1, start: Stage.start, speed: 86_400))
    try simulation.addAppleID("ada")
    try simulation.addDevice("phone", appleID: "ada")
    try simulation.setNotificationTargets([NotificationTarget(.v2, url: Stage.url)])
    server.answer([500], then: 200)
    let server = server
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask {
        try? await NotificationSender(simulation: simulation, transport: server).run()
      }
      try simulation.buy("coins.100", on: "phone")
      while simulation.notifications().first?.hasArrived != true {
        try await Task.sleep(for: .milliseconds(5))
      }
      group.cancelAll()
    }
    #expect(simulation.notifications().first?.attempts.count == 2)
  }

  @Test(arguments: [
    ("late:60", NotificationFault.late(.seconds(60))), ("doubled", .doubled),
    ("out_of_order", .outOfOrder), ("lost", .lost), ("answer_lost", .answerLost),
    ("dropped", .dropped),
  ])
  func names(_ name: String, _ fault: NotificationFault) {
    #expect(NotificationFault(name: name) == fault)
  }

  @Test(arguments: ["", "late", "late:x", "late:-1", "late:99999999999", "never"])
  func wrongNames(_ name: String) {
    #expect(NotificationFault(name: name) == nil)
  }
}
