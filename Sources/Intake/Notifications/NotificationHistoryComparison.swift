import AppStore
package import LedgerStorage
import Logging
import ServiceLifecycle
package import Subscriptions

/// Finds notifications that never arrived, by comparing Apple's history with those stored.
///
/// https://developer.apple.com/documentation/appstoreserverapi/get-notification-history
extension NotificationIntake {
  /// The overlap of consecutive windows, for notifications that Apple lists late.
  static let comparisonOverlap: Duration = .hours(1)
  /// Notifications signed within this time may be in transit, and are left to the next comparison.
  static let deliveryTime: Duration = .minutes(1)
  /// The longest window; the next continues there, so that a stopped worker never repeats months.
  static let longestWindow: Duration = .days(7) + comparisonOverlap
  /// The attempts to read a list whose page tokens expire before its end.
  static let readingLimit = 3

  /// The length of Apple's history, less an hour for clock differences.
  static func historyLength(_ environment: Environment) -> Duration {
    (environment == .production ? .days(180) : .days(30)) - .hours(1)
  }

  package enum Compared: Sendable {
    /// Recorded, and the job is scheduled again.
    case recorded(NotificationComparison)
    /// There was nothing to compare, and the job is scheduled again.
    case nothing(because: String)
    /// The list is incomplete, what was found stored: retry, not before the time Apple asked for.
    case failed(because: String, notBefore: Timestamp?)
    /// There is no key for the App Store Server API.
    case notPossible
  }

  /// Compares Apple's history since the last comparison, and stores and records what is missing.
  ///
  /// The outcome and the job's next time are one database transaction.
  package func compare(
    _ job: Job, bundleID: String, environment: Environment, every interval: Duration
  ) async throws -> Compared {
    guard let serverAPI else { return .notPossible }
    let start = now()
    let last = try await ledger.notifications.lastComparisonEnd(
      bundleID: bundleID, environment: environment)
    let earliest = start - Self.historyLength(environment)
    let windowStart = last.map { max($0 - Self.comparisonOverlap, earliest) } ?? earliest
    let windowEnd = min(start - Self.deliveryTime, windowStart + Self.longestWindow)
    guard windowStart < windowEnd else {
      // A clock went back, or the last comparison is less than a minute old.
      try await ledger.jobs.repeat(job, at: start + interval, now: now())
      return .nothing(because: "The last comparison has just ended.")
    }
    var comparison = NotificationComparison(
      bundleID: bundleID, environment: environment, windowStart: windowStart,
      windowEnd: windowEnd, comparedAt: start)
    do {
      try await read(into: &comparison, from: serverAPI)
    } catch let error as AppStoreServerAPIError where error.code == .serverNotificationURLNotFound {
      try await ledger.jobs.repeat(job, at: start + interval, now: now())
      return .nothing(because: "The app has no notification URL in App Store Connect.")
    } catch let error as AppStoreServerAPIError {
      return .failed(
        because: "\(error)",
        // Errors that need a fix are not retried every hour.
        notBefore: error.isRetryable ? error.notBefore : start + interval)
    } catch is CancellationError where Task.isShuttingDownGracefully {
      return .failed(because: "The worker is shutting down.", notBefore: nil)
    }
    comparison.comparedAt = now()
    let isLast = windowEnd >= start - Self.deliveryTime
    let recorded = try await ledger.notifications.record(
      comparison, by: job, next: isLast ? start + interval : comparison.comparedAt)
    log(recorded)
    return .recorded(recorded)
  }

  private func read(
    into comparison: inout NotificationComparison, from serverAPI: AppStoreServerAPI
  ) async throws {
    let query = NotificationHistoryQuery(
      startDate: comparison.windowStart, endDate: comparison.windowEnd)
    var readings = 1
    while true {
      comparison.listed = 0
      comparison.refused = 0
      do {
        for try await page in serverAPI.notificationHistoryPages(
          query, of: comparison.bundleID, in: comparison.environment)
        {
          try await compare(page.content, into: &comparison)
          // There can be a million pages; a retry passes quickly over what was stored.
          if Task.isShuttingDownGracefully { throw CancellationError() }
        }
        return
      } catch let error as AppStoreServerAPIError
        where error.code == .paginationTokenExpired && readings < Self.readingLimit
      {
        // The notifications of the first pages are stored now, so they pass quickly.
        readings += 1
      }
    }
  }

  private func compare(
    _ page: NotificationPage, into comparison: inout NotificationComparison
  ) async throws {
    let listed = page.notifications.compactMap(\.notification)
    comparison.listed += listed.count
    for refusal in listed.compactMap(\.refusal) {
      comparison.refused += 1
      logger.error(
        "Notification in Apple's history refused",
        metadata: ["reason": "\(refusal.reason.rawValue)", "detail": "\(refusal)"])
    }
    let missing = try await ledger.notifications.missingNotifications(
      among: listed.compactMap { $0.value?.storedID })
    guard !missing.isEmpty else { return }
    for part in listed {
      guard let notification = part.value, missing.contains(ExactText(notification.storedID))
      else { continue }
      let foundAt = now()
      let (_, isNew) = try await take(
        notification, payload: part.jws, at: foundAt, arrival: .history)
      // Otherwise Apple has just delivered it.
      if isNew { comparison.addMissing(signedAt: notification.signedAt, foundAt: foundAt) }
    }
  }

  private func log(_ comparison: NotificationComparison) {
    // Before an app's release, the first comparison reads months of empty windows.
    let calm = comparison.listed > 0 ? Logger.Level.info : .debug
    logger.log(
      level: comparison.missing > 0 ? .warning : calm,
      comparison.missing > 0
        ? "Missed notifications found in Apple's history" : "No missed notifications",
      metadata: [
        "bundle_id": "\(comparison.bundleID)", "environment": "\(comparison.environment.rawValue)",
        "from": "\(comparison.windowStart)", "to": "\(comparison.windowEnd)",
        "listed": "\(comparison.listed)", "missing": "\(comparison.missing)",
        "refused": "\(comparison.refused)",
        "longest_delay_ms": "\(comparison.longestDelay?.inMilliseconds ?? 0)",
      ])
  }
}
