import AppStore
package import LedgerStorage
import Logging
import ServiceLifecycle
package import Subscriptions

/// What Apple sent and never arrived: Apple keeps a list.
///
/// https://developer.apple.com/documentation/appstoreserverapi/get-notification-history
extension NotificationIntake {
  /// A comparison begins this much before the end of the last one: what Apple had not listed yet
  /// then.
  static let comparisonOverlap: Duration = .hours(1)
  /// What Apple signed within this time may be on its way, and is left to the next comparison.
  static let deliveryTime: Duration = .minutes(1)
  /// As much as one comparison reads.
  ///
  /// The next one goes on from there at once: so a worker that is stopped never begins half a year
  /// anew.
  static let longestWindow: Duration = .days(7) + comparisonOverlap
  /// How often a list is begun anew whose page token had expired before its end was reached.
  static let readingLimit = 3

  /// How far back Apple remembers, less what clocks may differ.
  static func historyLength(_ environment: Environment) -> Duration {
    (environment == .production ? .days(180) : .days(30)) - .hours(1)
  }

  /// What a comparison came to.
  package enum Compared: Sendable {
    /// It is recorded, and its job will come again.
    case recorded(NotificationComparison)
    /// There is nothing to compare, and its job will come again.
    case nothing(because: String)
    /// Apple does not give all of the list now, or the program is to end: the job is to be done
    /// again, and not before what Apple wished for.
    ///
    /// What was found before that is taken, and counts when the job is done again.
    case failed(because: String, notBefore: Timestamp?)
    /// There is no key for the App Store Server API.
    case notPossible
  }

  /// Compares Apple's list of notifications with the inbox, and takes what is missing.
  ///
  /// What is found is verified like anything that is delivered, and stored and recorded in the same
  /// way, marked as found in the history. It goes from where the last comparison ended to now.
  ///
  /// - Parameters:
  ///   - job: The claimed job; it is done, or put off, together with what is recorded.
  ///   - bundleID: The app.
  ///   - environment: Which of Apple's two.
  ///   - interval: The time to the next comparison.
  /// - Returns: What came of it.
  /// - Throws: What the database says, or `CancellationError`.
  package func compare(
    _ job: Job, bundleID: String, environment: Environment, every interval: Duration
  ) async throws -> Compared {
    guard let serverAPI else { return .notPossible }
    let start = now()
    let last = try await ledger.lastComparisonEnd(bundleID: bundleID, environment: environment)
    let earliest = start - Self.historyLength(environment)
    let windowStart = last.map { max($0 - Self.comparisonOverlap, earliest) } ?? earliest
    let windowEnd = min(start - Self.deliveryTime, windowStart + Self.longestWindow)
    guard windowStart < windowEnd else {
      // A clock went back, or it is less than a minute since.
      try await ledger.repeat(job, at: start + interval, now: now())
      return .nothing(because: "It was compared a moment ago.")
    }
    var comparison = NotificationComparison(
      bundleID: bundleID, environment: environment, windowStart: windowStart,
      windowEnd: windowEnd, comparedAt: start)
    do {
      try await read(into: &comparison, from: serverAPI)
    } catch let error as AppStoreServerAPIError where error.code == .serverNotificationURLNotFound {
      try await ledger.repeat(job, at: start + interval, now: now())
      return .nothing(because: "Apple knows no address for notifications of the app.")
    } catch let error as AppStoreServerAPIError {
      return .failed(
        because: "\(error)",
        // What will not mend itself is no reason to ask every hour.
        notBefore: error.isRetryable ? error.notBefore : start + interval)
    } catch is CancellationError where Task.isShuttingDownGracefully {
      return .failed(because: "The worker was told to stop.", notBefore: nil)
    }
    comparison.comparedAt = now()
    let isLast = windowEnd >= start - Self.deliveryTime
    let recorded = try await ledger.record(
      comparison, by: job,
      next: isLast ? start + interval : comparison.comparedAt)
    log(recorded)
    return .recorded(recorded)
  }

  /// Reads the whole list of a window, and takes what is missing.
  private func read(
    into comparison: inout NotificationComparison, from serverAPI: AppStoreServerAPI
  ) async throws {
    var readings = 1
    while true {
      comparison.listed = 0
      comparison.refused = 0
      do {
        return try await readOnce(into: &comparison, from: serverAPI)
      } catch let error as AppStoreServerAPIError
        where error.code == .paginationTokenExpired && readings < Self.readingLimit
      {
        // The pages before it are known now, and pass quickly.
        readings += 1
      }
    }
  }

  private func readOnce(
    into comparison: inout NotificationComparison, from serverAPI: AppStoreServerAPI
  ) async throws {
    let query = NotificationHistoryQuery(
      startDate: comparison.windowStart, endDate: comparison.windowEnd)
    for try await page in serverAPI.notificationHistoryPages(
      query, of: comparison.bundleID, in: comparison.environment)
    {
      try await compare(page.content, into: &comparison)
      // There can be a million pages. What was found is taken, and whoever begins again passes over
      // it quickly.
      if Task.isShuttingDownGracefully { throw CancellationError() }
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
        "A notification in Apple's history is refused",
        metadata: ["reason": "\(refusal.reason.rawValue)", "detail": "\(refusal)"])
    }
    let missing = try await ledger.missingNotifications(
      among: listed.compactMap { $0.value?.storedID })
    guard !missing.isEmpty else { return }
    for part in listed {
      guard let notification = part.value, missing.contains(ExactText(notification.storedID))
      else { continue }
      let foundAt = now()
      let (_, isNew) = try await take(
        notification, payload: part.jws, at: foundAt, arrival: .history)
      // Otherwise Apple has delivered it in this moment.
      if isNew { comparison.addMissing(signedAt: notification.signedAt, foundAt: foundAt) }
    }
  }

  private func log(_ comparison: NotificationComparison) {
    // The first comparison looks at months, window by window; before the first release at nothing.
    let calm = comparison.listed > 0 ? Logger.Level.info : .debug
    logger.log(
      level: comparison.missing > 0 ? .warning : calm,
      comparison.missing > 0
        ? "Notifications were missing; Apple's history had them"
        : "No notification is missing",
      metadata: [
        "bundle_id": "\(comparison.bundleID)", "environment": "\(comparison.environment.rawValue)",
        "from": "\(comparison.windowStart)", "to": "\(comparison.windowEnd)",
        "listed": "\(comparison.listed)", "missing": "\(comparison.missing)",
        "refused": "\(comparison.refused)",
        "longest_delay_ms": "\(comparison.longestDelay?.inMilliseconds ?? 0)",
      ])
  }
}
