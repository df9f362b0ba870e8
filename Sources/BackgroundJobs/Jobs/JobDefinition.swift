package import Intake
package import LedgerStorage

extension Job.Task {
  /// When it is tried again after a failure, and when it is given up.
  package var retries: RetrySchedule {
    switch self {
    case .verifySubmission, .processNotification, .pollLine, .writeOwnership: .apple
    // It ends by itself when Apple's own patience does.
    case .answerConsumption: .forEver
    // Its deliveries are given up one by one, each for itself.
    case .deliverEvents: .forEver
    // Nobody would miss them in time, and start them again.
    case .tellAccount, .expireOrder, .compareNotifications, .survey, .trimEvents, .foldMovements,
      .mergeAccount, .ageOut:
      .forEver
    }
  }
}
