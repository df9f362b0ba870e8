package import Subscriptions

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
