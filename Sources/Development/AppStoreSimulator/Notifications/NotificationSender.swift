package import AppStore
package import Subscriptions

/// Delivers notifications to apps' servers on Apple's schedule, by the simulated clock.
///
/// A delivery ends with the first response from 200 to 206. Otherwise it is retried: in production
/// 1, 12, 24, 48 and 72 hours after the previous attempt (version 1: 6, 24 and 48), in the sandbox
/// never. Either ``run()`` delivers as the clock runs, or a test delivers step by step.
package struct NotificationSender: Sendable {
  private let simulation: AppStoreSimulation
  private let transport: any AppStoreTransport
  /// The server's time limit, in real time.
  private let timeout: Duration

  private static let pollInterval = Duration.milliseconds(50)

  package init(
    simulation: AppStoreSimulation, transport: any AppStoreTransport,
    timeout: Duration = .seconds(30)
  ) {
    self.simulation = simulation
    self.transport = transport
    self.timeout = timeout
  }

  package func run() async throws {
    while true {
      try await deliverDueNotifications()
      try await Task.sleep(for: Self.pollInterval)
    }
  }

  /// Makes all attempts due by the simulated clock, in order, and returns the notifications after
  /// each attempt.
  ///
  /// If the clock has jumped, attempts count as made at the times they were due, so that a failed
  /// one is followed by all its retries.
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

// Notifications.
extension AppStoreSimulation {
  /// Sets the URLs for an app's notifications in one environment or both.
  ///
  /// Apple has one URL and version per environment; here there may be several. Without a URL, no
  /// notifications are created. A ``NotificationSender`` delivers them.
  package func setNotificationTargets(
    _ targets: [NotificationTarget], of bundleID: String? = nil,
    environment: Environment? = nil
  ) throws {
    try act { state in
      let app = try state.appNumber(bundleID)
      for environment in environment.map({ [$0] }) ?? Environment.allCases {
        state.mail.setTargets(
          targets, of: NotificationQueue.Addressee(app: app, environment: environment))
      }
    }
  }

  /// All notifications after the one with this number, with their delivery attempts; 0 returns all.
  package func notifications(after number: Int = 0) -> [SimulatedNotification] {
    act { Array($0.mail.notifications.dropFirst(max(0, number))) }
  }

  /// Creates a test notification, as `Request a Test Notification` does.
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

  package func setNotificationFaults(_ change: @Sendable (inout NotificationFaultPlan) -> Void) {
    act { change(&$0.mail.faults) }
  }

  /// Cancels the delivery of all existing notifications; later ones are delivered as usual.
  package func giveUpNotifications() {
    act { $0.mail.giveUp() }
  }

  // MARK: Delivery

  /// A due attempt with its faults.
  struct DueAttempt: Sendable {
    let delivery: Int
    let notification: SimulatedNotification
    let url: String
    let dueAt: Timestamp
    let isRequestLost: Bool
    let isAnswerLost: Bool
  }

  /// Takes the first attempt due until a time.
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
