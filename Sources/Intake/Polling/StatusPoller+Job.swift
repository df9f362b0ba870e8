import AppStore
package import LedgerStorage
import Logging
package import Subscriptions

/// Poll jobs.
extension StatusPoller {
  /// The outcome of a poll.
  package enum Outcome: Hashable, Sendable {
    /// Apple answered.
    case polled(isChanged: Bool)
    /// Apple knows nothing of the original transaction, or can't be asked about it; it is polled
    /// again some time.
    case passedOver(because: String)
    /// Apple was unavailable; retry, not before the time that Apple asked for.
    case postponed(because: String, notBefore: Timestamp?)
    /// Something must be fixed before Apple answers; it is polled again all the same.
    case failed(because: String, notBefore: Timestamp)
    /// The original transaction does not exist, or there is nothing more to learn of it.
    case over
  }

  /// The delay after a request that Apple calls invalid, which only another version can fix.
  private static let waitAfterFault: Duration = .hours(24)
  private static let waitAfterMisconfiguration: Duration = .hours(1)

  /// Performs a claimed poll job.
  ///
  /// After `polled` and `passedOver` the job has ended or has its next time; otherwise the caller
  /// has to give it back.
  package func poll(_ job: Job) async throws -> Outcome {
    let line = try job.originalTransaction
    let outcome = try await ask(about: line, doing: job)
    switch outcome {
    case .polled, .over: break
    case .passedOver(let reason): log(.info, "Poll skipped", line, reason)
    case .postponed(let reason, _): log(.notice, "Poll pending, will be retried", line, reason)
    case .failed(let reason, _): log(.error, "Poll failed, needs a fix", line, reason)
    }
    return outcome
  }

  /// Polls immediately, on an operator's request.
  package func pollNow(_ line: OriginalTransactionKey) async throws -> Outcome {
    try await ask(about: line, doing: nil)
  }

  private func ask(about line: OriginalTransactionKey, doing job: Job?) async throws -> Outcome {
    guard let known = try await ledger.polls.pollRequest(line) else { return .over }
    // Notifications report refunds. The ledger remembers the answer for planning the next poll.
    let hasNotifications = try await ledger.polls.hasNotifications(from: line.environment)
    if job != nil, !known.isSubscription, hasNotifications { return .over }
    let bundleID = known.source.bundleID ?? app(nil)
    if let bundleID, app(bundleID) == nil {
      return try await passOver(job, because: "The app \(bundleID) is not configured.")
    }
    if serverAPI != nil, let bundleID {
      return try await ask(about: known, of: bundleID, doing: job)
    }
    guard known.isSubscription else { return .over }
    guard let receipt = try await receipt(of: known.source) ?? known.imported?.receipt else {
      return try await passOver(
        job,
        because: serverAPI == nil
          ? "No App Store Server API key is configured, and no receipt is stored."
          : "The app of the original transaction is not known.")
    }
    return try await show(receipt, for: known, of: bundleID, doing: job)
  }

  // MARK: By ID

  private func ask(
    about known: PollStore.PollRequest, of bundleID: String, doing job: Job?
  ) async throws -> Outcome {
    do {
      let polled =
        known.isSubscription
        ? try await poll(
          known.line, of: bundleID, naming: known.isUnknown ? known.imported?.transactionID : nil,
          doing: job)
        : try await pollRefunds(of: known.line, in: bundleID, doing: job)
      return .polled(isChanged: (polled?.recorded.changedOriginals ?? 0) > 0)
    } catch let error as AppStoreServerAPIError {
      if error.isRetryable {
        return .postponed(because: error.description, notBefore: error.notBefore)
      }
      switch error.kind {
      case .notFound: return try await passOver(job, because: error.description)
      case .invalidRequest where error.code == .invalidTransactionID:
        return try await passOver(job, because: error.description)
      case .unauthorized, .misconfigured:
        return .failed(
          because: error.description, notBefore: now() + Self.waitAfterMisconfiguration)
      case .invalidRequest, .forbidden, .unexpectedAnswer, .rateLimited, .unavailable,
        .unreachable:
        return .failed(because: error.description, notBefore: now() + Self.waitAfterFault)
      }
    }
  }

  // MARK: By receipt

  private func receipt(of source: PollTarget) async throws -> String? {
    for receipt in source.receipts {
      switch receipt {
      case .submission(let id):
        if case .receipt(let data) = try await ledger.submissions.payload(of: id) { return data }
      case .notification(let id):
        if let stored = try await ledger.notifications.notification(id),
          case .unsigned(let notification) = NotificationBody(parsing: stored.body.utf8),
          let data = notification.receiptData
        {
          return data
        }
      }
    }
    return nil
  }

  private func show(
    _ receipt: String, for known: PollStore.PollRequest, of bundleID: String?, doing job: Job?
  ) async throws -> Outcome {
    let polled = try await poll(receipt: receipt, of: bundleID, about: known.line, doing: job)
    switch polled.verification.verdict {
    case .verified: return .polled(isChanged: (polled.recorded?.changedOriginals ?? 0) > 0)
    case .rejected(let rejection):
      return try await passOver(job, because: rejection.reason)
    case .retry(let retry):
      if let limit = retry.limit, let job, job.attempts >= ReceiptRetry.Limit.attempts {
        return try await passOver(job, because: limit.rejection.reason)
      }
      return .postponed(because: retry.reason, notBefore: retry.notBefore)
    case .misconfigured(let fault):
      return .failed(
        because: fault.reason, notBefore: now() + Self.waitAfterMisconfiguration)
    }
  }

  private func passOver(_ job: Job?, because reason: String) async throws -> Outcome {
    if let job { try await ledger.polls.passOver(job, because: reason, at: now()) }
    return .passedOver(because: reason)
  }

  private func log(
    _ level: Logger.Level, _ message: Logger.Message, _ line: OriginalTransactionKey, _ why: String
  ) {
    logger.log(
      level: level, message,
      metadata: ["line": "\(line)", "reason": "\(why)"])
  }
}
