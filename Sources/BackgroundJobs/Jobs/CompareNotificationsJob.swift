import Intake
import LedgerStorage
import Logging
import Subscriptions

extension JobRunner {
  /// Compares Apple's notification history with the inbox, as it is done once a day.
  ///
  /// - Parameters:
  ///   - bundleID: The app.
  ///   - environment: Which of Apple's two.
  ///   - job: The job.
  /// - Returns: What came of it.
  /// - Throws: What the database says.
  func compareNotifications(
    of bundleID: String, in environment: Environment, as job: Job
  ) async throws -> JobOutcome {
    switch try await tools.notifications.compare(
      job, bundleID: bundleID, environment: environment)
    {
    case .recorded: return .settled
    case .nothing(let reason):
      logger.info(
        "Apple's notification history is not compared",
        metadata: [
          "bundle_id": "\(bundleID)", "environment": "\(environment.rawValue)",
          "reason": "\(reason)",
        ])
      return .settled
    case .failed(let reason, let notBefore): return .retry(because: reason, notBefore: notBefore)
    case .notPossible:
      // Whoever starts with a key puts it into the queue again.
      return .nothingLeft
    }
  }
}
