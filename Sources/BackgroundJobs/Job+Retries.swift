package import Intake
package import LedgerStorage

extension Job.Task {
  /// When it is tried again after a failure, and when it is given up.
  package var retries: RetrySchedule {
    switch self {
    case .verifySubmission, .processNotification, .pollLine: .apple
    // The database alone can fail them, and what they are for has its moment long after they were
    // put into the queue.
    case .tellAccount, .expireOrder: .forEver
    // Its deliveries are given up one by one, each for itself.
    case .deliverEvents: .forEver
    // Nobody would miss them in time.
    case .compareNotifications, .survey, .trimEvents, .foldMovements: .forEver
    }
  }
}
