package import AppStore
package import Subscriptions

/// Carries notifications to apps' servers, with Apple's schedule on the simulated clock.
///
/// A delivery is done with the first answer from 200 to 206; anything else is tried again, in
/// production 1, 12, 24, 48 and 72 hours after the attempt before it (version 1: 6, 24 and 48), in
/// the sandbox never. Either ``run`` carries whatever the running clock makes due, or a test does,
/// step by step.
package struct NotificationSender: Sendable {
  private let simulation: AppStoreSimulation
  private let transport: any AppStoreTransport
  /// How long a server may take, in real time.
  private let timeout: Duration

  /// How often `run` looks at the clock: short beside what anybody waits for.
  private static let pollInterval = Duration.milliseconds(50)

  /// A sender; nothing is sent before `run` or `deliverDueNotifications`.
  package init(
    simulation: AppStoreSimulation, transport: any AppStoreTransport,
    timeout: Duration = .seconds(30)
  ) {
    self.simulation = simulation
    self.transport = transport
    self.timeout = timeout
  }

  /// Delivers until the task is cancelled.
  package func run() async throws {
    while true {
      try await deliverDueNotifications()
      try await Task.sleep(for: Self.pollInterval)
    }
  }

  /// Makes every attempt that is due by the simulated clock, one after the other in the order of
  /// their times, and returns what came of each.
  ///
  /// Where the clock has jumped, attempts count as made at the times at which they were due, so
  /// that one that failed can be followed by all its retries.
  ///
  /// - Returns: The notifications as they stand after each attempt, which is their last.
  /// - Throws: `CancellationError`.
  @discardableResult
  package func deliverDueNotifications() async throws -> [SimulatedNotification] {
    let moment = simulation.now
    var delivered: [SimulatedNotification] = []
    while let attempt = simulation.takeDueAttempt(until: moment) {
      do {
        delivered.append(simulation.note(try await make(attempt), of: attempt))
      } catch {
        simulation.putBack(attempt)
        throw error
      }
    }
    return delivered
  }

  private func make(_ attempt: AppStoreSimulation.DueAttempt) async throws -> SendAttempt {
    func outcome(_ result: SendAttempt.Result, _ status: Int? = nil) -> SendAttempt {
      SendAttempt(url: attempt.url, at: attempt.dueAt, result: result, httpStatus: status)
    }
    guard !attempt.isRequestLost else { return outcome(.noResponse) }
    do {
      let response = try await transport.send(
        AppStoreRequest(
          method: "POST", url: attempt.url,
          headers: [HTTPHeader("Content-Type", "application/json")],
          body: attempt.notification.body, timeout: timeout))
      guard !attempt.isAnswerLost else { return outcome(.timedOut) }
      let isSuccess = (200...206).contains(response.status)
      return outcome(isSuccess ? .success : .unsuccessfulStatus, response.status)
    } catch let error as AppStoreTransportError {
      return outcome(SendAttempt.Result(error.kind), error.partial?.status)
    }
  }
}

extension SendAttempt.Result {
  fileprivate init(_ kind: AppStoreTransportError.Kind) {
    self =
      switch kind {
      case .timedOut: .timedOut
      case .nameNotResolved, .connectionFailed: .socketIssue
      case .tlsFailed: .tlsIssue
      case .connectionLost: .prematureClose
      case .answerTooLarge: .invalidResponse
      case .invalidURL, .other: .other
      }
  }
}

/// What Apple tells servers by itself.
extension AppStoreSimulation {
  /// Sets where notifications of an app go from now on, in one environment or in both.
  ///
  /// Apple knows one URL and one version per environment; here there may be several. Nothing is
  /// written for an app without any. Delivering is a ``NotificationSender``'s affair.
  package func setNotificationTargets(
    _ targets: [NotificationTarget], of bundleID: String? = nil,
    environment: Environment? = nil
  ) throws {
    try act { state in
      let app = try state.appNumber(bundleID)
      for environment in environment.map({ [$0] }) ?? Environment.allCases {
        state.mail.setTargets(
          targets, of: NotificationMail.Addressee(app: app, environment: environment))
      }
    }
  }

  /// Every notification written so far with the attempts to deliver it, after the one with the
  /// given number; 0 gives all.
  package func notifications(after number: Int = 0) -> [SimulatedNotification] {
    act { Array($0.mail.notifications.dropFirst(max(0, number))) }
  }

  /// Writes a test notification, as `Request a Test Notification` does.
  @discardableResult
  package func sendTestNotification(
    of bundleID: String? = nil, environment: Environment = .production
  ) throws -> SimulatedNotification {
    try act { state in
      let app = try state.appNumber(bundleID)
      guard let test = state.writeTest(app: app, environment: environment) else {
        throw SimulationError(.notPossible, ServerAPIError.noNotificationURL.message)
      }
      return test
    }
  }

  /// Changes which notifications do not arrive as they should.
  package func setNotificationFaults(_ change: @Sendable (inout NotificationFaultPlan) -> Void) {
    act { change(&$0.mail.faults) }
  }

  /// Gives up every notification that is on its way: what has not arrived by now never will.
  ///
  /// Notifications written from now on are carried as ever.
  package func giveUpNotifications() {
    act { $0.mail.giveUp() }
  }

  // MARK: Carrying

  /// An attempt that is due, and what it has to meet.
  struct DueAttempt: Sendable {
    let delivery: Int
    let notification: SimulatedNotification
    let url: String
    let dueAt: Timestamp
    let isRequestLost: Bool
    let isAnswerLost: Bool
  }

  /// The attempt that is due first, until a moment.
  func takeDueAttempt(until moment: Timestamp) -> DueAttempt? {
    act { state in
      guard let (number, dueAt) = state.mail.takeDue(until: moment) else { return nil }
      let delivery = state.mail.deliveries[number]
      let isFirst = delivery.attemptsMade == 0
      return DueAttempt(
        delivery: number, notification: state.mail.notifications[delivery.notification],
        url: delivery.target.url, dueAt: dueAt,
        isRequestLost: delivery.fault == .dropped || delivery.fault == .lost && isFirst,
        isAnswerLost: delivery.fault == .answerLost && isFirst)
    }
  }

  func putBack(_ attempt: DueAttempt) {
    act { $0.mail.putBack(attempt.delivery, at: attempt.dueAt) }
  }

  func note(_ result: SendAttempt, of attempt: DueAttempt) -> SimulatedNotification {
    act { state in
      state.mail.note(result, of: attempt.delivery)
      return state.mail.notifications[attempt.notification.number - 1]
    }
  }
}
