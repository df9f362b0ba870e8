import AppStore
package import LedgerStorage
import Logging
package import Subscriptions

/// A poll from the question what Apple can be asked with to the plan for the next one.
extension LinePoll {
  /// What asking about a line came to.
  package enum Outcome: Hashable, Sendable {
    /// Apple has answered; whether it said anything new.
    case polled(isNews: Bool)
    /// Apple has nothing to say of it, or there is nothing to ask with: it is looked at again some
    /// time.
    case passedOver(because: String)
    /// Apple could not be asked now; nor is there any use in it before the moment that it named.
    case postponed(because: String, notBefore: Timestamp?)
    /// Apple will not answer before somebody mends something; it is asked again all the same.
    case failed(because: String, notBefore: Timestamp)
    /// There is no such line any more, or nothing more to learn of it.
    case over
  }

  /// How long a question waits that Apple finds wrong: only another version of ours, or of Apple's,
  /// can mend that.
  private static let waitAfterFault: Duration = .hours(24)
  /// The same where our configuration is.
  private static let waitAfterMisconfiguration: Duration = .hours(1)

  /// Does a job: asks about its line, and plans when that is done again.
  ///
  /// - Parameter job: Claimed.
  /// - Returns: What came of it. The job is ended or has its next time where Apple has answered or
  ///   was passed over; otherwise it is for the caller to give back.
  /// - Throws: What the database says.
  package func poll(_ job: Job) async throws -> Outcome {
    let line = try job.originalTransaction
    let outcome = try await ask(about: line, doing: job)
    switch outcome {
    case .polled, .over: break
    case .passedOver(let reason): log(.info, "A poll came to nothing", line, reason)
    case .postponed(let reason, _): log(.notice, "A poll waits for Apple", line, reason)
    case .failed(let reason, _):
      log(.error, "A poll fails until somebody mends something", line, reason)
    }
    return outcome
  }

  /// Asks about a line at once, because somebody wants to know.
  ///
  /// - Returns: What came of it; ``Outcome/over`` if nothing is known of the line.
  /// - Throws: What the database says.
  package func pollNow(_ line: LineID) async throws -> Outcome {
    try await ask(about: line, doing: nil)
  }

  private func ask(about line: LineID, doing job: Job?) async throws -> Outcome {
    guard let known = try await ledger.lineToPoll(line) else { return .over }
    // They tell of refunds; whoever plans the next poll remembers it.
    let hasNotifications = try await ledger.hasNotifications(from: line.environment)
    if job != nil, !known.isSubscription, hasNotifications { return .over }
    let bundleID = known.source.bundleID ?? (apps.all.count == 1 ? apps.all[0].bundleID : nil)
    if let bundleID, apps[bundleID] == nil {
      return try await passOver(
        job, because: "\(bundleID) is not an app that is served here.")
    }
    if serverAPI != nil, let bundleID {
      return try await ask(about: known, of: bundleID, doing: job)
    }
    guard known.isSubscription else { return .over }
    guard let receipt = try await receipt(of: known.source) ?? known.imported?.receipt else {
      return try await passOver(
        job,
        because: serverAPI == nil
          ? "There is neither a key for the App Store Server API nor a receipt."
          : "Nobody has said to which of the apps it belongs.")
    }
    return try await show(receipt, for: known, of: bundleID, doing: job)
  }

  // MARK: By id

  private func ask(
    about known: Ledger.LineToPoll, of bundleID: String, doing job: Job?
  ) async throws -> Outcome {
    do {
      let polled =
        known.isSubscription
        ? try await poll(
          known.line, of: bundleID, naming: known.isUnheardOf ? known.imported?.transactionID : nil,
          doing: job)
        : try await pollRefunds(of: known.line, in: bundleID, doing: job)
      return .polled(isNews: (polled?.recorded.changedFamilies ?? 0) > 0)
    } catch let error as AppStoreServerAPIError {
      if error.isRetryable {
        return .postponed(because: error.description, notBefore: error.notBefore)
      }
      switch error.kind {
      case .notFound:
        return try await passOver(job, because: error.description)
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

  private func receipt(of source: LineSource) async throws -> String? {
    for receipt in source.receipts {
      switch receipt {
      case .submission(let id):
        if case .receipt(let data) = try await ledger.payload(of: id) { return data }
      case .notification(let id):
        if let stored = try await ledger.notification(id),
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
    _ receipt: String, for known: Ledger.LineToPoll, of bundleID: String?, doing job: Job?
  ) async throws -> Outcome {
    let polled = try await poll(
      receipt: receipt, of: bundleID, about: known.line, doing: job)
    switch polled.verification.verdict {
    case .verified: return .polled(isNews: (polled.recorded?.changedFamilies ?? 0) > 0)
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

  // MARK: Afterwards

  private func passOver(_ job: Job?, because reason: String) async throws -> Outcome {
    if let job { try await ledger.passOver(job, because: reason, at: now()) }
    return .passedOver(because: reason)
  }

  private func log(_ level: Logger.Level, _ message: Logger.Message, _ line: LineID, _ why: String)
  {
    logger.log(
      level: level, message,
      metadata: ["line": "\(line)", "reason": "\(why)"])
  }
}
